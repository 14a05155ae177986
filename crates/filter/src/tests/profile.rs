//! The profile that `Profiling` makes of known traffic.

use super::common::on_disk;
use crate::{ObservedDevice, Profiling};
use block::{Device, Env, Extent, Fua, Lba, Nanos, Sectors};

const LINE_BYTES: u32 = 65536;

fn profiled<D: Device>(disk: D, env: &Env) -> ObservedDevice<D, Profiling> {
    let profiling = Profiling::new(disk.geometry().sectors, LINE_BYTES, env.timer.now());
    ObservedDevice::new(disk, profiling, env.timer.clone())
}

#[test]
fn each_line_that_a_request_touches_is_counted() {
    on_disk(1, 1, async |disk, env| {
        let device = profiled(disk, &env);
        // Sectors 120 to 135 touch two lines, the others one each.
        for (at, bytes) in [(120, 8192), (0, 512), (127, 512)] {
            let buf = env.pool.get(bytes).await;
            device.read(Lba(at), buf).await.1.expect("a sound read");
        }
        let data = env.pool.get(4096).await.share();
        let write = device.write(Lba(128), data, Fua::No).await;
        write.expect("a sound write");
        let beyond = env.pool.get(4096).await;
        device.read(Lba(1 << 40), beyond).await.1.unwrap_err();
        device.flush().await.expect("a sound flush");
        let extent = Extent::new(Lba(0), Sectors(8));
        device.discard(extent).await.expect("a sound discard");

        device.watch().tick(Nanos::from_secs(100));
        let profile = device.watch().profile();
        assert_eq!((profile.reads, profile.writes), (5, 1));
        assert_eq!(profile.line_bytes, u64::from(LINE_BYTES));
        assert!(profile.seconds > 99.0);
        let regions = device.watch().regions();
        assert_eq!((regions.region_lines(), regions.regions().len()), (1, 128));
        let counts = |n: usize| (regions.regions()[n].reads, regions.regions()[n].writes);
        assert_eq!((counts(0), counts(1), counts(2)), ((3, 0), (1, 1), (0, 0)));
        assert!(
            device.watch().state_bytes() < 1 << 20,
            "{}",
            device.watch().state_bytes()
        );
    });
}

#[test]
fn what_belongs_to_a_stream_is_hot_but_in_no_curve() {
    on_disk(1, 1, async |disk, env| {
        let device = profiled(disk, &env);
        device.watch().leave_out(|extent| extent.start >= Lba(128));
        for at in [0, 128, 0] {
            let buf = env.pool.get(4096).await;
            device.read(Lba(at), buf).await.1.expect("a sound read");
        }
        assert_eq!(device.watch().profile().reads, 2);
        assert_eq!(device.watch().regions().regions()[1].reads, 1);
    });
}
