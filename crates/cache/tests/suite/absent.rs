//! Devices that stop answering or fail while their pool is opened: the pool opens without them, and
//! does not trust them after their return.

use crate::place::{LINE, Place, Rig};
use block::{Device, Extent, IoErrorKind, Lba, Sectors};
use cache::{Counter, DeviceFindings};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, RunOutcome, When};

/// Two devices that were closed in order, the lines on the first.
fn filled(seed: u64) -> Place {
    let mut place = Place::new(seed, 2);
    run(&mut place, |rig| async move {
        rig.fill().await;
        rig.end().await;
    });
    place
}

fn run<F>(place: &mut Place, test: impl Fn(Rig) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    assert_eq!(place.run(&[0, 1], test), RunOutcome::Done);
}

/// Applies `effect` to the first device from now on.
fn befalls(place: &mut Place, ops: OpFilter, effect: FaultEffect) {
    befalls_when(place, ops, None, When::Always, effect);
}

fn befalls_when(
    place: &mut Place,
    ops: OpFilter,
    within: Option<Extent>,
    when: When,
    effect: FaultEffect,
) {
    let rule = FaultRule {
        disk: place.pool[0],
        ops,
        within,
        when,
        effect,
    };
    let plan = FaultPlan::of(vec![rule]);
    place.sim.world_mut().set_plan(plan).unwrap();
}

/// The pool serves without its first device, and does not trust the device afterwards.
fn goes_on_without(mut place: Place, is_opened: bool) {
    run(&mut place, move |rig| async move {
        let (here, absent) = (&rig.opened.devices, &rig.opened.absent);
        match is_opened {
            true => assert_eq!(rig.count(Counter::DevicesEjected), 1),
            false => {
                assert_eq!((here.len(), here[0].at), (1, 1));
                assert_eq!((absent.len(), absent[0].0), (1, 0));
                assert_eq!(rig.opened.missing, ["pool-0"]);
            }
        }
        rig.cache.warmed().await;
        for line in 0..16 {
            rig.write(line * LINE, LINE, 5).await;
        }
        rig.volume.flush().await.unwrap();
        rig.agrees().await;
        rig.end().await;
    });
    let first = place.pool[0];
    place
        .sim
        .world_mut()
        .set_plan(FaultPlan::default())
        .unwrap();
    place.sim.world().control().release(first);
    run(&mut place, |rig| async move {
        let found = rig.opened.devices[0].found;
        assert!(matches!(found, DeviceFindings::Unusable(_)), "{found:?}");
        assert_eq!(rig.opened.absent, []);
        rig.cache.warmed().await;
        rig.expect(0, LINE, 5).await;
        rig.agrees().await;
    });
}

#[test]
fn a_device_that_answers_nothing_is_absent() {
    let mut place = filled(1);
    befalls(&mut place, OpFilter::All, FaultEffect::Stick(None));
    goes_on_without(place, false);
}

#[test]
fn so_is_one_that_fails_what_it_is_asked() {
    let mut place = filled(2);
    befalls(
        &mut place,
        OpFilter::All,
        FaultEffect::Fail(IoErrorKind::Gone),
    );
    goes_on_without(place, false);
}

#[test]
fn so_is_one_whose_superblocks_cannot_be_read() {
    for kind in [
        IoErrorKind::Media,
        IoErrorKind::ReadOnly,
        IoErrorKind::Invalid,
    ] {
        let mut place = filled(6);
        befalls(&mut place, OpFilter::Reads, FaultEffect::Fail(kind));
        goes_on_without(place, false);
    }
}

#[test]
fn so_is_one_that_was_cut_short() {
    let mut place = filled(7);
    let first = place.pool[0];
    let whole = place.sim.world().geometry(first).unwrap().sectors;
    for left in [Sectors::from_mib(7), Sectors(8)] {
        place.sim.world_mut().reshape(first, left, Sectors(1));
        run(&mut place, |rig| async move {
            let absent = &rig.opened.absent;
            assert_eq!((absent.len(), absent[0].0), (1, 0), "{absent:?}");
            rig.cache.warmed().await;
            rig.agrees().await;
            rig.end().await;
        });
    }
    place.sim.world_mut().reshape(first, whole, Sectors(1));
    run(&mut place, |rig| async move {
        assert_eq!(rig.opened.absent, []);
        rig.agrees().await;
    });
}

#[test]
fn so_is_one_that_becomes_unresponsive_after_its_superblocks_were_read() {
    let mut place = filled(3);
    let areas = layout::LayoutPlan::new(Sectors::from_mib(8), LINE as u32 / 8);
    let bitmap = areas.unwrap().bitmap;
    let within = Extent::new(bitmap.lba(Lba::ZERO, 0), Sectors(bitmap.blocks * 8));
    // The first read of them is that which looks for the superblocks.
    let when = When::Nth(2);
    befalls_when(
        &mut place,
        OpFilter::Reads,
        Some(within),
        when,
        FaultEffect::Stick(None),
    );
    goes_on_without(place, false);
}

#[test]
fn one_that_takes_no_writes_is_ejected_as_the_pool_opens() {
    let mut place = filled(4);
    befalls(&mut place, OpFilter::Writes, FaultEffect::Stick(None));
    goes_on_without(place, true);
}

#[test]
fn a_pool_of_which_no_device_answers_opens_and_serves() {
    let mut place = Place::filled(5);
    befalls(&mut place, OpFilter::All, FaultEffect::Stick(None));
    place.done(&[0], |rig| async move {
        assert_eq!(rig.opened.devices.len(), 0);
        rig.write(0, LINE, 5).await;
        rig.expect(0, LINE, 5).await;
        rig.agrees().await;
        rig.end().await;
    });
}
