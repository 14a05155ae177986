//! Clients' view of a swap of their device.

use super::common::{on_disks, on_exact_disk};
use crate::Swappable;
use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos, Sectors,
};
use futures_util::future::join;
use std::cell::Cell;
use std::rc::Rc;

const SERVICE: Nanos = Nanos::from_micros(100);

fn on_swappable(test: impl AsyncFn(Swappable<BoxDevice>, BoxDevice, Env) + Clone + 'static) {
    on_exact_disk(SERVICE, async move |disk, env| {
        let disk = BoxDevice::new(disk);
        let device = Swappable::new(disk.clone());
        test(device, disk, env).await;
    });
}

async fn read(device: &impl Device, env: &Env) -> IoResult<Buf> {
    let buf = env.pool.get(4096).await;
    let (buf, result) = device.read(Lba::ZERO, buf).await;
    result.map(|()| buf)
}

async fn write(device: &impl Device, env: &Env, fua: Fua) -> IoResult {
    let buf = env.pool.get(4096).await;
    device.write(Lba::ZERO, buf.share(), fua).await
}

#[test]
fn a_pause_waits_for_what_is_in_flight_and_holds_the_rest_back() {
    on_swappable(async |device, _, env| {
        let timer = env.timer.clone();
        let began = timer.now();
        let paused = Rc::new(Cell::new(Nanos::ZERO));
        let (first, waits) = join(read(&device, &env), async {
            device.pause().await;
            paused.set(timer.now());
            let resume = async {
                timer.sleep(Nanos::from_millis(3)).await;
                device.resume();
            };
            join(read(&device, &env), resume).await.0
        })
        .await;
        first.and(waits).unwrap();
        assert_eq!(paused.get() - began, SERVICE);
        assert_eq!(timer.now() - paused.get(), Nanos::from_millis(3) + SERVICE);
        // With nothing in flight there is nothing to wait for.
        let began = timer.now();
        device.pause().await;
        assert_eq!(timer.now(), began);
    });
}

/// Swaps the disk for itself, as if it had been reopened.
async fn swap(device: &Swappable<BoxDevice>, disk: &BoxDevice) {
    device.pause().await;
    device.swap(disk.clone()).unwrap();
    device.resume();
}

#[test]
fn a_flush_that_cannot_cover_what_was_acknowledged_fails_once() {
    on_swappable(async |device, disk, env| {
        let refused = async |asked: &str| {
            swap(&device, &disk).await;
            let error = device.flush().await.expect_err(asked);
            assert_eq!(error.kind(), IoErrorKind::Gone);
            assert!(error.to_string().contains("may not be durable"), "{error}");
            device.flush().await.unwrap();
        };
        write(&device, &env, Fua::No).await.unwrap();
        refused("after a write").await;
        device
            .zero(Extent::new(Lba::ZERO, Sectors(8)))
            .await
            .unwrap();
        refused("after zeroes").await;
        // Two that follow each other are reported once.
        write(&device, &env, Fua::No).await.unwrap();
        swap(&device, &disk).await;
        refused("after two swaps").await;

        let covered = async |what: &str| {
            swap(&device, &disk).await;
            device.flush().await.expect(what);
        };
        covered("nothing was written").await;
        write(&device, &env, Fua::Yes).await.unwrap();
        covered("a durable write").await;
        write(&device, &env, Fua::No).await.unwrap();
        device.flush().await.unwrap();
        covered("a flushed write").await;
    });
}

/// A flush covers the writes acknowledged when it began, not those acknowledged while it ran.
#[test]
fn a_flush_does_not_cover_what_is_acknowledged_while_it_runs() {
    on_swappable(async |device, disk, env| {
        // Ends before the flush that begins a moment later.
        let flush = async {
            env.timer.sleep(Nanos::from_micros(50)).await;
            device.flush().await
        };
        let (written, flushed) = join(write(&device, &env, Fua::No), flush).await;
        written.and(flushed).unwrap();
        swap(&device, &disk).await;
        device.flush().await.expect_err("the write was not covered");
    });
}

#[test]
fn a_closed_device_says_why_until_another_is_below() {
    on_swappable(async |device, disk, env| {
        write(&device, &env, Fua::No).await.unwrap();
        device.close(IoError::new(IoErrorKind::Invalid, "is another disk"));
        let error = read(&device, &env).await.expect_err("closed");
        assert_eq!(error.kind(), IoErrorKind::Gone);
        assert!(error.to_string().ends_with("is another disk"), "{error}");
        device.flush().await.expect_err("closed");
        swap(&device, &disk).await;
        read(&device, &env).await.unwrap();
        device.flush().await.expect_err("the write was not covered");
    });
}

#[test]
fn a_device_of_another_shape_is_refused() {
    let size = Sectors::from_mib(8);
    let shapes = [(size, 1), (size - Sectors(8), 1), (size, 8)];
    on_disks(
        1,
        None,
        shapes,
        async move |[disk, shorter, coarser], env| {
            let device = Swappable::new(BoxDevice::new(disk));
            device.pause().await;
            for other in [shorter, coarser] {
                let refused = device.swap(BoxDevice::new(other));
                let message = refused.expect_err("of another shape").to_string();
                assert!(message.contains("had 16384 sectors"), "{message}");
            }
            device.resume();
            assert_eq!(device.device().geometry().sectors, size);
            read(&device, &env).await.unwrap();
        },
    );
}
