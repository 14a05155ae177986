//! Devices that only some machines have, named by the environment; `vm/tests/`
//! gives them in a guest.
//!
//!     URING_TEST_DEVICES    paths, which are overwritten: each must conform
//!     URING_TEST_DOOMED     a path, which is overwritten
//!     URING_TEST_DOOM       a shell command that makes that device fail or go

use crate::common::{filled, host, perform, wait};
use block::conformance::{self, DriverRig};
use block::{Completion, Driver, DriverOp, Fua, IoError, IoErrorKind, Lba, Nanos, Payload, Token};
use std::process::Command;
use uring::DiskOptions;

fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        eprintln!("skipped: {name} is not set");
    }
    value
}

#[test]
fn given_devices_conform() {
    let Some(devices) = variable("URING_TEST_DEVICES") else {
        return;
    };
    for device in devices.split_whitespace() {
        let host = host();
        let exclusive = DiskOptions {
            exclusive: true,
            ..DiskOptions::default()
        };
        let (disk, geometry) = host.open_disk(device, &exclusive).unwrap();
        eprintln!("{geometry:?}");
        let rig = DriverRig {
            disk,
            listener: None,
        };
        conformance::run(conformance::driver(host.driver().unwrap(), rig, 1));
    }
}

/// Every operation in flight when a device fails still ends, with an error that names the failure,
/// and no later one succeeds.
#[test]
fn a_device_that_fails_under_load() {
    const DEPTH: u64 = 32;
    let Some(device) = variable("URING_TEST_DOOMED") else {
        return;
    };
    let doom = variable("URING_TEST_DOOM").expect("how it fails");
    let host = host();
    let (disk, _) = host.open_disk(&device, &DiskOptions::default()).unwrap();
    let mut driver = host.driver().unwrap();
    let pool = driver.pool().clone();

    let read = |token: u64| DriverOp::Read(Lba(token % 64 * 8), pool.try_get(4096).unwrap());
    for token in 0..DEPTH {
        driver.submit(Token(token), disk, read(token));
    }
    let mut doom = Command::new("sh").args(["-c", &doom]).spawn().unwrap();
    let mut done: Vec<Completion> = Vec::new();
    let (mut next, mut passed) = (DEPTH, 0);
    let first = loop {
        driver.park(driver.now() + Nanos::from_secs(60), &mut done);
        assert!(!done.is_empty(), "an operation never ends");
        let mut first: Option<IoError> = None;
        for completion in done.drain(..) {
            match completion.result {
                Ok(_) => {
                    passed += 1;
                    let op = match completion.payload {
                        Payload::Buf(buf) => {
                            DriverOp::Write(Lba(next % 64 * 8), buf.share(), Fua::No)
                        }
                        _ => read(next),
                    };
                    driver.submit(Token(next), disk, op);
                    next += 1;
                }
                Err(error) => first = Some(error),
            }
        }
        if let Some(error) = first {
            break error;
        }
    };
    eprintln!("after {passed} operations: {first}");
    assert!(passed > 0);
    assert!(
        matches!(first.kind(), IoErrorKind::Media | IoErrorKind::Gone),
        "{first}"
    );
    assert!(doom.wait().unwrap().success());

    let data = filled(&driver, 4096, 1).share();
    let write = DriverOp::Write(Lba::ZERO, data, Fua::Yes);
    driver.submit(Token(u64::MAX), disk, write);
    loop {
        let completion = wait(&mut driver, 1).pop().unwrap();
        if completion.token == Token(u64::MAX) {
            let error = completion.result.unwrap_err();
            eprintln!("a durable write: {error}");
            break;
        }
    }
    let (result, _) = perform(&mut driver, disk, DriverOp::Flush);
    assert!(result.is_err(), "a flush passes on a device that is lost");
    drop(driver);
    assert_eq!(pool.free_bytes(), pool.total_bytes());
}
