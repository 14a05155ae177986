//! Any sequence of requests reads back its own writes, in every shape.

use crate::common::{Setup, extent, run};
use block::{Device, Fua, Lba, Sectors};
use cache::{CacheMode, Config};
use proptest::prelude::*;

const SECTORS: u64 = 1024;

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    Zero(u64, u64),
    Switch(CacheMode),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let place = (0..SECTORS, 1..200u64).prop_map(|(at, len)| (at, len.min(SECTORS - at)));
    prop_oneof![
        6 => place.clone().prop_map(|(at, len)| Step::Read(at, len)),
        4 => (place.clone(), any::<u8>()).prop_map(|((at, len), byte)| Step::Write(at, len, byte)),
        1 => place.prop_map(|(at, len)| Step::Zero(at, len)),
        1 => (0..3usize).prop_map(|mode| Step::Switch(CacheMode::ALL[mode])),
        1 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_return_what_was_written(
        steps in prop::collection::vec(step(), 1..120),
        line_shift in 0..5u32,
        lines in 1..40u64,
        policy in prop::sample::select(vec!["lru", "auto"]),
    ) {
        let line_bytes = 4096u32 << line_shift;
        let setup = Setup {
            policy,
            origin: Sectors(SECTORS),
            pool: vec![Sectors(u64::from(line_bytes) / 512 * lines)],
            config: Config { line_bytes, ..Config::default() },
            ..Setup::default()
        };
        run(setup, move |rig| {
            let steps = steps.clone();
            async move {
                let mut model = vec![0u8; SECTORS as usize];
                for step in steps {
                    match step {
                        Step::Read(at, len) => {
                            let bytes = rig.read(at, len).await.unwrap();
                            for (i, sector) in bytes.chunks(512).enumerate() {
                                let expected = model[at as usize + i];
                                assert!(sector.iter().all(|b| *b == expected));
                            }
                        }
                        Step::Write(at, len, byte) => {
                            let mut buf = rig.buf(len).await;
                            buf.fill(byte);
                            rig.volume.write(Lba(at), buf.share(), Fua::No).await.unwrap();
                            model[at as usize..(at + len) as usize].fill(byte);
                        }
                        Step::Zero(at, len) => {
                            rig.volume.zero(extent(at, len)).await.unwrap();
                            model[at as usize..(at + len) as usize].fill(0);
                        }
                        Step::Switch(mode) => rig.volume.set_mode(mode),
                        Step::Settle => rig.cache.settle().await,
                    }
                    rig.cache.check();
                }
            }
        });
    }
}
