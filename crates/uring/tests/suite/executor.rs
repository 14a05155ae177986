//! The device, gate and stream suites through the executor, on real devices.

use crate::common::{Loop, directory, file, host};
use block::conformance;
use block::{Address, Sectors};
use shard::{Local, run_alone};
use std::path::Path;
use uring::{DiskOptions, Uring, UringDriver};

const BYTES: u64 = 8 << 20;

/// Runs `main` as the only shard of `host`.
fn run<F>(mut host: Uring, main: impl FnOnce(Local<UringDriver>) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    run_alone(&mut host, main);
}

fn devices_and_gates(path: impl AsRef<Path>, options: &DiskOptions) {
    let host = host();
    let (disk, _) = host.open_disk(path, options).unwrap();
    run(host, move |local| async move {
        let env = local.env();
        conformance::device(&local.disk(disk).unwrap(), &env, 5).await;
        conformance::gate(local.disk(disk).unwrap(), &env, 5).await;
    });
}

#[test]
fn a_disk_in_small_blocks() {
    let dir = directory();
    let small = DiskOptions {
        block: Some(Sectors(1)),
        ..DiskOptions::default()
    };
    devices_and_gates(file(&dir, BYTES), &small);
}

#[test]
fn a_loop_device_in_large_blocks() {
    let dir = directory();
    let options = ["--direct-io=on", "--sector-size", "4096"];
    if let Some(device) = Loop::attach(&file(&dir, BYTES), &options) {
        devices_and_gates(device.path(), &DiskOptions::default());
    }
}

#[test]
fn streams() {
    let dir = directory();
    let unix = dir.path().join("socket");
    let unix = Address::Unix(unix.to_str().unwrap().into());
    for address in [unix, Address::Tcp("127.0.0.1:0".into())] {
        let host = host();
        let (listener, bound) = host.listen(&address).unwrap();
        run(host, move |local| {
            let bound = bound.clone();
            async move {
                let env = local.env();
                let (connector, listener) = (local.connector(), local.listener(listener));
                conformance::stream(&connector, &listener, bound, &env, 5).await;
            }
        });
    }
}
