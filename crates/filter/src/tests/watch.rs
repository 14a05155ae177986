//! Reports of `Metered` and `Latencies` on known traffic.

use super::common::on_exact_disk;
use crate::{AccessVerb, Latencies, Metered, ObservedDevice};
use block::{Device, Env, Extent, Lba, Nanos, Sectors};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

const SERVICE: Nanos = Nanos::from_micros(100);

async fn read(device: &impl Device, env: &Env, at: u64, bytes: usize) {
    let buf = env.pool.get(bytes).await;
    let (_, result) = device.read(Lba(at), buf).await;
    result.expect("a sound read");
}

/// Polls both to their ends.
async fn both(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_left, mut b_left) = (true, true);
    poll_fn(|cx| {
        a_left = a_left && a.as_mut().poll(cx).is_pending();
        b_left = b_left && b.as_mut().poll(cx).is_pending();
        if a_left || b_left {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

#[test]
fn a_meter_counts_rates_queue_and_utilisation() {
    on_exact_disk(SERVICE, async |disk, env| {
        let timer = env.timer.clone();
        let device = Metered::meter(disk, timer.clone());
        read(&device, &env, 0, 4096).await;
        let before = device.watch().snapshot(timer.now());
        for i in 0..10 {
            both(
                read(&device, &env, i, 4096),
                read(&device, &env, i + 8, 8192),
            )
            .await;
        }
        timer.sleep(Nanos::from_millis(1)).await;
        let interval = device.watch().snapshot(timer.now()).since(&before);

        // Two at a time for 100 us, ten times, then 1 ms idle.
        assert_eq!(interval.span, Nanos::from_millis(2));
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a}, not {b}");
        close(interval.iops(AccessVerb::Read), 20.0 / 0.002);
        close(
            interval.mb_s(AccessVerb::Read),
            10.0 * 12288.0 / 1e6 / 0.002,
        );
        close(interval.utilisation(), 0.5);
        close(interval.queue_mean(), 1.0);
        let reads = interval.tally(AccessVerb::Read);
        assert_eq!((reads.requests, reads.sectors, reads.errors), (20, 240, 0));
        let median = reads.latency.value_at_quantile(0.5);
        assert!((100_000..101_000).contains(&median), "{median} ns");
        assert_eq!(reads.latency.len(), 20);
        assert_eq!(interval.tally(AccessVerb::Write).requests, 0);
    });
}

#[test]
fn requests_are_counted_by_how_long_they_took() {
    on_exact_disk(SERVICE, async |disk, env| {
        let device = ObservedDevice::new(disk, Latencies::new(&[50, 100, 150]), env.timer.clone());
        read(&device, &env, 0, 4096).await;
        both(read(&device, &env, 8, 4096), read(&device, &env, 16, 8192)).await;
        device.flush().await.expect("a sound flush");
        let end = device.geometry().sectors.0;
        let (_, refused) = device.read(Lba(end), env.pool.get(4096).await).await;
        refused.unwrap_err();
        let reads = device.watch().reads();
        // A request that takes as long as a bound is in its bucket.
        assert_eq!(reads.counts, [0, 3, 0]);
        assert_eq!((reads.requests, reads.sectors), (3, 32));
        assert_eq!(reads.time, Nanos::from_micros(300));
        assert_eq!(device.watch().writes().requests, 0);

        let coarse = ObservedDevice::new(device, Latencies::new(&[50]), env.timer.clone());
        read(&coarse, &env, 0, 4096).await;
        let reads = coarse.watch().reads();
        assert_eq!((reads.requests, reads.counts), (1, vec![0]));
    });
}

#[test]
fn a_meter_over_no_time_reports_zero() {
    on_exact_disk(SERVICE, async |disk, env| {
        let device = Metered::meter(disk, env.timer.clone());
        let snapshot = device.watch().snapshot(env.timer.now());
        let interval = snapshot.since(&snapshot);
        assert_eq!(interval.iops(AccessVerb::Read), 0.0);
        assert_eq!(interval.utilisation(), 0.0);
    });
}

#[test]
fn errors_and_abandoned_requests_are_counted_apart() {
    on_exact_disk(SERVICE, async |disk, env| {
        let device = Metered::meter(disk, env.timer.clone());
        let past = Extent::new(device.geometry().extent().end(), Sectors(1));
        device.zero(past).await.expect_err("past the end");
        {
            let mut flush = pin!(device.flush());
            poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx).is_ready())).await;
            let during = device.watch().snapshot(env.timer.now());
            assert_eq!(during.in_flight(), 1);
        }
        let after = device.watch().snapshot(env.timer.now());
        assert_eq!(after.in_flight(), 0);
        assert_eq!(after.tally(AccessVerb::Zero).errors, 1);
        assert_eq!(after.tally(AccessVerb::Flush).abandoned, 1);
        assert_eq!(after.tally(AccessVerb::Flush).requests, 0);
    });
}
