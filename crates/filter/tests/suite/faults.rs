//! `Faulty` does what its rules say, the same for the same seed.

use crate::common::{on_disk, on_exact_disk};
use block::{Buf, Device, Env, Extent, Fua, Kind, Lba, Nanos, Sectors};
use filter::{Effect, Faulty, Rule, Verb};
use std::cell::RefCell;
use std::rc::Rc;

async fn filled(env: &Env, byte: u8) -> Buf {
    let mut buf = env.pool.get(4096).await;
    buf.fill(byte);
    buf
}

async fn write(device: &impl Device, env: &Env, at: u64, byte: u8) -> Result<(), Kind> {
    let data = filled(env, byte).await.share();
    let result = device.write(Lba(at), data, Fua::No).await;
    result.map_err(|error| error.kind())
}

async fn read(device: &impl Device, env: &Env, at: u64) -> Result<Vec<u8>, Kind> {
    let (buf, result) = device.read(Lba(at), filled(env, 0xee).await).await;
    result.map(|()| buf.to_vec()).map_err(|error| error.kind())
}

#[test]
fn errors_strike_where_and_as_often_as_asked() {
    on_disk(1, 1, async |disk, env| {
        let faulty = Faulty::new(disk, env.clone(), 1);
        let control = faulty.control();
        write(&faulty, &env, 0, 1).await.unwrap();
        let bad = Rule {
            within: Some(Extent::new(Lba(4), Sectors(1))),
            times: 2,
            ..Rule::new(&[Verb::Read], Effect::Fail(Kind::Media))
        };
        control.add(bad).unwrap();
        assert_eq!(read(&faulty, &env, 8).await, Ok(vec![0; 4096]));
        assert_eq!(read(&faulty, &env, 0).await, Err(Kind::Media));
        write(&faulty, &env, 0, 2).await.unwrap();
        assert_eq!(read(&faulty, &env, 0).await, Err(Kind::Media));
        assert_eq!(read(&faulty, &env, 0).await, Ok(vec![2; 4096]));
        assert_eq!(control.injected(), 2);
    });
}

#[test]
fn a_failed_write_may_or_may_not_have_landed() {
    on_disk(1, 1, async |disk, env| {
        let faulty = Faulty::new(disk, env.clone(), 1);
        for (effect, left) in [
            (Effect::Fail(Kind::Gone), 0),
            (Effect::FailAfter(Kind::Gone), 1),
        ] {
            let id = faulty
                .control()
                .add(Rule::new(&[Verb::Write], effect))
                .unwrap();
            assert_eq!(write(&faulty, &env, 0, 1).await, Err(Kind::Gone));
            assert!(faulty.control().remove(id) && !faulty.control().remove(id));
            assert_eq!(read(&faulty, &env, 0).await, Ok(vec![left; 4096]));
        }
    });
}

#[test]
fn corruption_flips_one_bit_of_the_answer_or_of_the_medium() {
    on_disk(1, 1, async |disk, env| {
        let faulty = Faulty::new(disk, env.clone(), 1);
        let wrong_bits = |bytes: Vec<u8>| -> u32 { bytes.iter().map(|b| b.count_ones()).sum() };
        for (verb, stays) in [(Verb::Read, 0), (Verb::Write, 1)] {
            let rule = Rule::new(&[verb], Effect::FlipBit);
            faulty.control().add(rule).unwrap();
            write(&faulty, &env, 0, 0).await.unwrap();
            assert_eq!(wrong_bits(read(&faulty, &env, 0).await.unwrap()), 1);
            faulty.control().clear();
            assert_eq!(wrong_bits(read(&faulty, &env, 0).await.unwrap()), stays);
        }
    });
}

#[test]
fn lost_requests_are_acknowledged() {
    on_disk(1, 1, async |disk, env| {
        let faulty = Faulty::new(disk, env.clone(), 1);
        let lose = Rule::new(&[Verb::Write, Verb::Zero, Verb::Read], Effect::Lose);
        faulty.control().add(lose).unwrap();
        assert_eq!(write(&faulty, &env, 0, 9).await, Ok(()));
        assert_eq!(read(&faulty, &env, 0).await, Ok(vec![0xee; 4096]));
        faulty.control().clear();
        assert_eq!(read(&faulty, &env, 0).await, Ok(vec![0; 4096]));
    });
}

#[test]
fn delays_add_up_to_what_was_asked_and_stuck_requests_wait_for_release() {
    on_exact_disk(Nanos::from_micros(100), async |disk, env| {
        let faulty = Faulty::new(disk, env.clone(), 1);
        let control = faulty.control();
        let slow = Effect::Delay(Nanos::from_millis(3));
        let id = control.add(Rule::new(&[Verb::Flush], slow)).unwrap();
        let began = env.timer.now();
        faulty.flush().await.unwrap();
        assert_eq!(env.timer.now() - began, Nanos::from_millis(3));

        control.remove(id);
        let id = control
            .add(Rule::new(&[Verb::Read], Effect::Stick))
            .unwrap();
        let began = env.timer.now();
        let release = control.clone();
        let timer = env.timer.clone();
        env.spawn.spawn(async move {
            timer.sleep(Nanos::from_secs(5)).await;
            release.remove(id);
        });
        read(&faulty, &env, 0).await.unwrap();
        assert_eq!(env.timer.now() - began, Nanos::from_secs(5));
    });
}

#[test]
fn the_same_seed_strikes_the_same_requests() {
    let strikes = |seed: u64| {
        let struck = Rc::new(RefCell::new(Vec::new()));
        let found = struck.clone();
        on_disk(1, 1, async move |disk, env| {
            let faulty = Faulty::new(disk, env.clone(), seed);
            let rule = Rule {
                per_million: 300_000,
                ..Rule::new(&[Verb::Read], Effect::Fail(Kind::Media))
            };
            faulty.control().add(rule).unwrap();
            for i in 0..200 {
                if read(&faulty, &env, i * 8).await.is_err() {
                    found.borrow_mut().push(i);
                }
            }
        });
        struck.take()
    };
    let first = strikes(5);
    assert_eq!(first, strikes(5));
    assert_ne!(first, strikes(6));
    assert!((30..90).contains(&first.len()), "{} of 200", first.len());
}

#[test]
fn impossible_rules_are_refused() {
    on_disk(1, 1, async |disk, env| {
        let control = Faulty::new(disk, env, 1).control();
        let often = Rule {
            per_million: 1_000_001,
            ..Rule::new(&[Verb::Read], Effect::Lose)
        };
        for rule in [often, Rule::new(&[], Effect::Lose)] {
            let error = control.add(rule).expect_err("an impossible rule");
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
        }
    });
}
