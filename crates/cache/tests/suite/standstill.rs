//! An origin that is to be copied, or replaced, under a volume.

use crate::common::{ORIGIN_TIME, Rig, Setup, extent, run};
use block::{Device, Fua, IoErrorKind, Lba, Nanos};
use cache::Counter;
use futures_util::future::join;

/// Writes the origin behind the cache's back.
async fn replace(rig: &Rig, at: u64, sectors: usize, byte: u8) {
    let mut buf = rig.env.pool.get(sectors * 512).await;
    buf.fill(byte);
    let origin = rig.local.disk(rig.origin).unwrap();
    origin.write(Lba(at), buf.share(), Fua::No).await.unwrap();
}

#[test]
fn changes_wait_while_quiesced_and_reads_do_not() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 8, 1).await.unwrap();
        rig.volume.quiesce().await.unwrap();
        assert_eq!(
            rig.volume.quiesce().await.unwrap_err().kind(),
            IoErrorKind::Busy
        );
        let begin = rig.env.timer.now();
        let span = Nanos::from_secs(1);
        let writes = async {
            let zero = rig.volume.zero(extent(64, 8));
            let (written, zeroed) = join(rig.write(0, 8, 2), zero).await;
            written.unwrap();
            zeroed.unwrap();
            assert!(rig.env.timer.now() - begin >= span);
        };
        let meanwhile = async {
            rig.expect(0, 8, 1).await;
            rig.volume.flush().await.unwrap();
            rig.env.timer.sleep(span).await;
            rig.expect(0, 8, 1).await;
            rig.volume.resume().unwrap();
            assert_eq!(
                rig.volume.resume().unwrap_err().kind(),
                IoErrorKind::Invalid
            );
        };
        join(writes, meanwhile).await;
        rig.expect(0, 8, 2).await;
    });
}

#[test]
fn quiescing_waits_for_writes_in_flight() {
    run(Setup::default(), |rig| async move {
        let (written, quiesced) = join(rig.write(0, 8, 1), rig.volume.quiesce()).await;
        written.unwrap();
        quiesced.unwrap();
        assert!(
            rig.env.timer.now() >= ORIGIN_TIME + ORIGIN_TIME,
            "the write, then the flush"
        );
    });
}

#[test]
fn closing_a_quiesced_volume_ends_what_waits() {
    run(Setup::default(), |rig| async move {
        rig.volume.quiesce().await.unwrap();
        let (written, ()) = join(rig.write(0, 8, 1), rig.volume.close()).await;
        assert_eq!(written.unwrap_err().kind(), IoErrorKind::Gone);
    });
}

#[test]
fn an_invalidated_volume_reads_what_its_origin_holds_now() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 256, 1).await.unwrap();
        rig.expect(0, 256, 1).await;
        replace(&rig, 0, 256, 2).await;
        rig.expect(0, 256, 1).await;
        rig.volume.invalidate().await.unwrap();
        rig.expect(0, 256, 2).await;
        rig.cache.settle().await;
        rig.expect(0, 256, 2).await;
        assert_eq!(rig.count(Counter::Invalidations), 1);
        rig.cache.check();
    });
}

#[test]
fn a_read_that_began_before_an_invalidation_is_not_kept() {
    run(Setup::default(), |rig| async move {
        replace(&rig, 0, 8, 1).await;
        // The read begins while the origin is flushed, and ends after all that was
        // cached is forgotten.
        let change = async {
            rig.volume.invalidate().await.unwrap();
            replace(&rig, 0, 8, 2).await;
        };
        let read = async {
            rig.env.timer.sleep(Nanos(2000)).await;
            // The read may return either: the origin is being replaced.
            rig.read(0, 8).await.unwrap();
        };
        join(change, read).await;
        rig.cache.settle().await;
        rig.expect(0, 8, 2).await;
        assert_eq!(rig.count(Counter::RejectedOverwritten), 1);
    });
}
