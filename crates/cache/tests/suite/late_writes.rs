//! Writes that fail and land later, over whatever was written there since.

use crate::place::{LINE, Place, Rig};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors};
use cache::{CacheMode, Counter, DeviceState, NewPoolDevice};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, When};

/// Time until a failed write lands.
const LATE: Nanos = Nanos::from_millis(2000);

/// The first write of `within` on a disk fails, and lands later.
fn late(place: &mut Place, rule: FaultRule) {
    let plan = FaultPlan::of(vec![rule]);
    place.sim.world_mut().set_plan(plan).unwrap();
}

async fn write(rig: &Rig, at: u64, byte: u8) -> block::IoResult {
    let mut buf = rig.buf(8).await;
    buf.fill(byte);
    rig.volume.write(Lba(at), buf.share(), Fua::No).await
}

/// A first write of the origin's first line that lands later, `meanwhile`, a crash after it has
/// landed, and the bytes served then.
fn origin_late<F>(seed: u64, meanwhile: impl Fn(Rig) -> F + 'static)
where
    F: Future<Output = Rig>,
{
    let mut place = Place::new(seed, 1);
    let rule = FaultRule {
        disk: place.origin,
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(0), Sectors(8))),
        when: When::Nth(1),
        effect: FaultEffect::Late(LATE),
    };
    late(&mut place, rule);
    let meanwhile = std::rc::Rc::new(meanwhile);
    place.cut(&[0], move |rig| {
        let meanwhile = meanwhile.clone();
        async move {
            let begin = rig.env.timer.now();
            let error = write(&rig, 0, 7).await.unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::Timeout);
            let rig = meanwhile(rig).await;
            // Promoted before the write lands, and in the map once no bit is left to clear.
            rig.expect(0, 8, 0).await;
            rig.cache.settle().await;
            rig.sleep(400).await;
            assert!(rig.count(Counter::MapCommits) > 0);
            assert!(rig.env.timer.now() < begin + LATE, "it has landed");
            rig.sleep(2000).await;
            rig.volume.flush().await.unwrap();
            rig.cut().await;
        }
    });
    place.done(&[0], |rig| async move {
        rig.cache.warmed().await;
        rig.expect(0, 8, 7).await;
        rig.agrees().await;
    });
}

#[test]
fn a_region_stays_suspect_where_a_failed_write_may_land_yet() {
    origin_late(1, |rig| async move { rig });
}

#[test]
fn it_stays_suspect_under_the_id_that_an_invalidated_volume_gets() {
    origin_late(2, |rig| async move {
        rig.volume.invalidate().await.unwrap();
        rig
    });
    origin_late(3, |rig| async move {
        rig.volume.invalidate().await.unwrap();
        rig.volume.invalidate().await.unwrap();
        rig
    });
}

/// A failed write of a bitmap ejects its device. When the device is back, as a new one, that write
/// lands in the place of the bitmap that was written since.
#[test]
fn a_bitmap_that_lands_late_on_a_device_that_is_back_undoes_none() {
    let region = u64::from(8 * 1024u32);
    for more in 0..3 {
        let mut place = Place::new(10 + more, 1);
        let disk = place.pool[0];
        let plan = layout::LayoutPlan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
        let rule = FaultRule {
            disk,
            ops: OpFilter::Writes,
            within: Some(plan.bitmap.extent(Lba(0))),
            // Two of a device that is new, and the first of a client's write.
            when: When::Nth(3),
            effect: FaultEffect::Late(LATE),
        };
        late(&mut place, rule);
        place.cut(&[0], move |rig| async move {
            let begin = rig.env.timer.now();
            write(&rig, region * 8, 1).await.unwrap();
            let member = &rig.cache.devices()[0];
            assert!(matches!(member.state, DeviceState::Ejected(_)));
            rig.cache.remove_device(member.id).await.unwrap();
            let device = NewPoolDevice::whole(rig.local.disk(disk).unwrap(), "controller");
            rig.cache.join(device, 77).await.unwrap();
            rig.fill().await;
            // Until all bits are cleared.
            rig.sleep(400).await;
            for i in 0..more {
                write(&rig, region * (9 + i), 1).await.unwrap();
            }
            let until = begin + LATE - Nanos::from_millis(6);
            rig.env.timer.sleep(until - rig.env.timer.now()).await;
            // Only a bit covers these, until the log does.
            rig.volume.set_mode(CacheMode::PassThrough);
            write(&rig, 0, 5).await.unwrap();
            rig.sleep(10).await;
            rig.cut().await;
        });
        place.done(&[0], |rig| async move {
            rig.cache.warmed().await;
            rig.agrees().await;
        });
    }
}
