//! An origin that lost acknowledged writes: the flushes that fail, and the lines that may still be
//! hits.

use crate::forgetful::Forgetful;
use crate::place::{LINE, Leaf, Place, Rig};
use block::{BoxDevice, Device, Fua, Lba, Nanos};
use cache::{Cache, Counter, Volume, VolumeConfig};

/// A line in another region than the first.
const FAR: u64 = 32 << 11;

/// A volume over a forgetful origin, in a rig's pool.
struct San {
    rig: Rig,
    origin: Forgetful,
    volume: Volume<Leaf>,
}

fn volume(cache: &Cache<Leaf>, origin: &Forgetful) -> Volume<Leaf> {
    let config = VolumeConfig::whole("san");
    let below = BoxDevice::new(origin.clone());
    cache.add_volume(config, below).unwrap()
}

impl San {
    fn new(rig: Rig) -> San {
        let disk = rig.local.disk(rig.origin).unwrap();
        let origin = Forgetful::new(BoxDevice::new(disk), rig.env.pool.clone());
        San {
            volume: volume(&rig.cache, &origin),
            origin,
            rig,
        }
    }

    async fn write(&self, at: u64, byte: u8, fua: Fua) -> block::IoResult {
        let mut buf = self.rig.buf(LINE).await;
        buf.fill(byte);
        self.volume.write(Lba(at), buf.share(), fua).await
    }

    async fn expect(&self, at: u64, byte: u8) {
        let (buf, result) = self.volume.read(Lba(at), self.rig.buf(LINE).await).await;
        result.unwrap();
        assert!(
            buf.iter().all(|b| *b == byte),
            "sector {at}: {} for {byte}",
            buf[0]
        );
    }

    /// The line at `at` is the content of the origin.
    async fn agrees(&self, at: u64) {
        let (raw, result) = self.origin.read(Lba(at), self.rig.buf(LINE).await).await;
        result.unwrap();
        self.expect(at, raw[0]).await;
    }

    /// A line far away that is durable, and one of `byte` that the origin has forgotten.
    async fn lose(&self, byte: u8) {
        self.write(FAR, 1, Fua::No).await.unwrap();
        self.write(0, 2, Fua::No).await.unwrap();
        self.volume.flush().await.unwrap();
        // Until their bits are cleared.
        self.rig.sleep(400).await;
        self.write(0, byte, Fua::No).await.unwrap();
        self.expect(0, byte).await;
        self.origin.restart();
    }

    async fn end(&self) {
        self.volume.close().await;
        self.rig.end().await;
    }
}

fn run<F>(seed: u64, test: impl Fn(San) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let mut place = Place::new(seed, 1);
    place.done(&[0], move |rig| test(San::new(rig)));
}

#[test]
fn a_loss_that_the_pools_own_flush_met_is_reported_to_a_client() {
    run(1, |san| async move {
        san.lose(3).await;
        let before = san.origin.flushes();
        // Until a commit has flushed the origin, and once more.
        san.rig.sleep(1000).await;
        assert!(san.origin.flushes() > before, "no commit came");
        san.expect(0, 2).await;
        let error = san.volume.flush().await.unwrap_err();
        assert!(error.to_string().contains("may not be durable"), "{error}");
        san.volume.flush().await.unwrap();
        san.expect(0, 2).await;
        san.expect(FAR, 1).await;
        assert_eq!(san.rig.count(Counter::OriginFlushErrors), 1);
        san.end().await;
    });
}

#[test]
fn no_hit_serves_what_the_origin_lost() {
    run(2, |san| async move {
        san.lose(3).await;
        san.volume.flush().await.unwrap_err();
        san.expect(0, 2).await;
        // Durable lines are not given up.
        let hits = san.rig.count(Counter::ReadsHit);
        san.expect(FAR, 1).await;
        assert_eq!(san.rig.count(Counter::ReadsHit), hits + 1);
        san.end().await;
    });
}

#[test]
fn a_loss_met_while_a_volume_is_quiesced_is_still_reported_to_a_client() {
    run(3, |san| async move {
        san.lose(3).await;
        san.volume.quiesce().await.unwrap_err();
        san.volume.quiesce().await.unwrap();
        san.volume.resume().unwrap();
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.expect(0, 2).await;
        san.end().await;
    });
}

#[test]
fn no_snapshot_is_taken_without_a_word_of_what_the_pools_own_flush_found_lost() {
    run(6, |san| async move {
        san.lose(3).await;
        // Until the pool has flushed the origin of its own accord.
        san.rig.sleep(1000).await;
        san.volume.quiesce().await.unwrap_err();
        assert!(!san.volume.is_quiesced());
        san.volume.quiesce().await.unwrap();
        san.volume.resume().unwrap();
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.end().await;
    });
}

#[test]
fn a_loss_that_a_durable_write_met_is_reported_to_the_next_flush() {
    run(4, |san| async move {
        san.lose(3).await;
        san.write(FAR, 9, Fua::Yes).await.unwrap_err();
        san.expect(0, 2).await;
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.end().await;
    });
}

#[test]
fn a_loss_met_by_a_flush_that_was_given_up_is_reported_to_the_next() {
    run(5, |san| async move {
        san.lose(3).await;
        // The flush waits for a disk of 2 ms when its caller gives up.
        let flush = san.volume.flush();
        let given_up = san.rig.env.timer.timeout(Nanos::from_micros(10), flush);
        assert!(given_up.await.is_none());
        san.rig.sleep(100).await;
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.expect(0, 2).await;
        san.end().await;
    });
}

/// The origin had the write before the loss, and answered later.
#[test]
fn a_write_that_is_acknowledged_after_a_loss_was_reported_fails_the_next_flush_too() {
    run(8, |san| async move {
        san.lose(3).await;
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        // Its region is marked already.
        san.write(0, 4, Fua::No).await.unwrap();
        san.volume.flush().await.unwrap();
        let held = san.origin.hold();
        let write = san.write(0, 5, Fua::No);
        let flush = async {
            san.rig.env.timer.sleep(Nanos::from_millis(20)).await;
            san.origin.restart();
            san.volume.flush().await.unwrap_err();
            drop(held);
        };
        let (written, ()) = futures_util::future::join(write, flush).await;
        written.unwrap();
        san.expect(0, 4).await;
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.end().await;
    });
}

/// The pool has the lost bytes in flight when the origin forgets them, and when the origin reports
/// that.
#[test]
fn what_a_slow_pool_device_gets_of_a_lost_write_is_no_hit() {
    for (seed, between) in [(9, 0), (10, 20)] {
        run(seed, move |san| async move {
            san.write(0, 4, Fua::No).await.unwrap();
            san.volume.flush().await.unwrap();
            san.rig.control.hang(san.rig.pool[0]);
            san.write(0, 5, Fua::No).await.unwrap();
            san.origin.restart();
            san.rig.sleep(between).await;
            san.volume.flush().await.unwrap_err();
            san.rig.control.release(san.rig.pool[0]);
            san.rig.cache.settle().await;
            san.expect(0, 4).await;
            san.volume.flush().await.unwrap();
            san.end().await;
        });
    }
}

#[test]
fn a_flush_covers_only_the_writes_that_ended_before_it() {
    let mut place = Place::new(6, 1);
    // So that no commit flushes while the client does.
    place.period_ms = 100;
    place.cut(&[0], |rig| async move {
        let san = San::new(rig);
        san.lose(3).await;
        san.volume.flush().await.unwrap_err();
        san.volume.flush().await.unwrap();
        san.rig.sleep(400).await;
        // A slow flush, and a write that ends meanwhile.
        san.write(0, 5, Fua::No).await.unwrap();
        let (timer, flushes) = (&san.rig.env.timer, san.origin.flushes());
        let flush = async {
            san.volume.flush().await.unwrap();
            timer.now()
        };
        let write = async {
            timer.sleep(Nanos::from_millis(5)).await;
            san.write(FAR, 6, Fua::No).await.unwrap();
            timer.now()
        };
        let (flushed, written) = futures_util::future::join(flush, write).await;
        assert!(written < flushed, "it ended after the flush");
        assert_eq!(san.origin.flushes(), flushes + 1, "another flush ended");
        // Nothing but commits for a while: the write's bit may be cleared only after a flush
        // of its own.
        san.rig.sleep(400).await;
        san.origin.restart();
        san.rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        let san = San::new(rig);
        san.rig.cache.warmed().await;
        san.agrees(FAR).await;
        san.expect(FAR, 6).await;
        san.end().await;
    });
}

#[test]
fn what_was_lost_is_no_hit_after_a_crash_either() {
    for quick in [false, true] {
        let mut place = Place::new(7, 1);
        place.cut(&[0], move |rig| async move {
            let san = San::new(rig);
            san.lose(3).await;
            san.volume.flush().await.unwrap_err();
            san.volume.flush().await.unwrap();
            if !quick {
                // The bits are cleared.
                san.rig.sleep(1000).await;
            }
            san.rig.cut().await;
        });
        place.done(&[0], |rig| async move {
            let san = San::new(rig);
            san.rig.cache.warmed().await;
            san.expect(0, 2).await;
            san.expect(FAR, 1).await;
            san.end().await;
        });
    }
}
