//! The device, gate and stream suites through the executor, on real devices.

use crate::common::{Loop, directory, file, host};
use block::conformance;
use block::{Address, Gate, Host, Sectors, ShardId};
use futures_channel::oneshot;
use shard::{Config, GateAsker, GateTable, Local, Mesh, RemoteGate, Shard, lane, run_alone};
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use uring::{DiskOptions, Uring, UringDriver};

const BYTES: u64 = 8 << 20;

/// Runs `main` as the only shard of `host`.
fn run<F>(mut host: Uring, main: impl FnOnce(Local<UringDriver>) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    run_alone(&mut host, main).unwrap();
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

/// The disk is on one shard, and the suite asks its gate from another.
#[test]
fn a_gate_of_another_shard() {
    let dir = directory();
    let small = DiskOptions {
        block: Some(Sectors(1)),
        ..DiskOptions::default()
    };
    let mut host = host();
    let (disk, _) = host.open_disk(file(&dir, BYTES), &small).unwrap();
    let mesh = Mesh::new(2);
    let (end, lane) = lane();
    let (show, shown) = oneshot::channel();
    let (done, is_done) = oneshot::channel::<()>();
    let at_home = Mutex::new(Some((lane, show, is_done)));
    let elsewhere = Mutex::new(Some((end, shown, done)));
    host.run(2, move |id, driver| {
        let is_home = id == ShardId(0);
        let home_parts = at_home.lock().unwrap().take_if(|_| is_home);
        let other_parts = elsewhere.lock().unwrap().take_if(|_| !is_home);
        let config = Config::default();
        Shard::boot(id, driver, mesh.clone(), config, move |local| async move {
            let env = local.env();
            if let Some((lane, show, is_done)) = home_parts {
                let table = Rc::new(GateTable::default());
                let pass = table.add(Gate::new(local.disk(disk).unwrap(), env.clone()));
                env.spawn.spawn(table.serve(lane, env.clone()));
                assert!(show.send(pass).is_ok());
                is_done.await.unwrap();
            } else if let Some((end, shown, done)) = other_parts {
                let gate = RemoteGate::new(GateAsker::begin(end, &local), shown.await.unwrap());
                conformance::boundary(&gate, 512, &env, 5).await;
                done.send(()).unwrap();
            }
        })
    })
    .unwrap();
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
