//! The controller and link models, in front of drives, against first principles.

use super::common::{derived, near, varied};
use crate::catalogue::controller::{DRIVE_CACHE, H710P, WRITE_THROUGH};
use crate::catalogue::hdd::SAS10K_146;
use crate::catalogue::link::{GIGABIT, TEN_GIGABIT};
use crate::catalogue::ssd::{NYTRO_400, X25_E};
use crate::measure::{ClosedLoop, random, request, sequential};
use crate::{
    Completed, Controller, ControllerParameters, DriveModel, DriveOp, DriveRequest, Hdd,
    LinkParameters, ModelledLink, SsdModel, SsdWear,
};
use block::{Extent, Fua, Lba, Nanos, Sectors};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

const PAGE: Sectors = Sectors(8);
const MIB: Sectors = Sectors::from_mib(1);

fn disk(phase: f64) -> Hdd {
    Hdd::new(&SAS10K_146, phase).unwrap()
}

fn flash() -> SsdModel {
    SsdModel::new(&NYTRO_400, SsdWear::Fresh).unwrap()
}

fn closed_loop(depth: u64, warm_up: u64, count: u64) -> ClosedLoop {
    ClosedLoop {
        depth,
        warm_up,
        count,
    }
}

/// The latency of `request` on an idle `model`.
fn alone(model: &mut impl DriveModel, now: Nanos, request: DriveRequest) -> Nanos {
    let mut done = Vec::new();
    model.arrive(now, request);
    while done.is_empty() {
        model.advance(model.next_event().unwrap(), &mut done);
    }
    assert_eq!(done[0].id, request.id);
    done[0].at - now
}

fn cached(parameters: &ControllerParameters) -> Controller<Hdd> {
    Controller::new(parameters, vec![disk(0.0)]).unwrap()
}

fn page(at_mib: u64) -> Extent {
    Extent::new(Lba(at_mib * MIB.0), PAGE)
}

/// Command and acknowledgement, both estimates.
const ACKNOWLEDGED: Nanos = Nanos::from_micros(20 + 50);

#[test]
fn a_cached_write_takes_command_and_acknowledgement_while_there_is_room() {
    let small = ControllerParameters {
        cache_mb: varied(1.0),
        ..H710P
    };
    let random_writes = || random(DriveOp::Write, PAGE, SAS10K_146.capacity(), 4);
    let burst = closed_loop(1, 0, 150);
    let burst = burst.run(&mut cached(&small), Nanos::ZERO, random_writes());
    assert!(
        burst
            .latencies
            .iter()
            .all(|latency| *latency == ACKNOWLEDGED)
    );

    // 244 pages fit; from then on each waits for one to be destaged.
    let sustained = closed_loop(1, 400, 2_000);
    let sustained = sustained.run(&mut cached(&small), Nanos::ZERO, random_writes());
    assert!(sustained.latency_mean_s() > 10.0 * ACKNOWLEDGED.as_secs_f64());
    let in_flight = sustained.iops() * sustained.latency_mean_s();
    near("requests in flight", in_flight, derived(1.0), 0.01).unwrap();

    // Destaging in sweeps beats the drive's own queue, as the cache sorts more writes.
    let direct = closed_loop(8, 100, 2_000);
    let direct = direct.run(&mut disk(0.0), Nanos::ZERO, random_writes());
    let (swept, queued) = (sustained.iops(), direct.iops());
    assert!(swept > queued, "{swept} IOPS destaged, {queued} direct");
}

#[test]
fn small_sequential_writes_are_destaged_at_the_media_rate() {
    for parameters in [H710P, DRIVE_CACHE] {
        let parameters = ControllerParameters {
            cache_mb: varied(8.0),
            ..parameters
        };
        // The writes that fit the cache are not counted.
        let run = closed_loop(32, 8_000, 40_000);
        let writes = sequential(DriveOp::Write, PAGE, Lba::ZERO);
        let run = run.run(&mut cached(&parameters), Nanos::ZERO, writes);
        near("destaged", run.mb_s(), SAS10K_146.rate_outer_mb_s, 0.02).unwrap();
    }
}

#[test]
fn idle_time_empties_the_cache_and_dirty_data_are_read_from_it() {
    let mut model = cached(&H710P);
    for id in 0..50 {
        let write = request(id, DriveOp::Write, page(id * 100));
        let now = Nanos::from_micros(id * 100);
        assert_eq!(alone(&mut model, now, write), ACKNOWLEDGED);
    }
    let now = Nanos::from_millis(6);
    let hit = alone(&mut model, now, request(50, DriveOp::Read, page(4_900)));
    assert_eq!(hit, ACKNOWLEDGED);
    let half_dirty = Extent::new(page(4_800).start, Sectors(16));
    let half = alone(
        &mut model,
        now + hit,
        request(51, DriveOp::Read, half_dirty),
    );
    assert!(half > Nanos::from_millis(1), "{half}");
    let mut done = Vec::new();
    while let Some(at) = model.next_event() {
        model.advance(at, &mut done);
    }
    assert_eq!(model.dirty_bytes(), 0);
    let miss = alone(
        &mut model,
        Nanos::from_secs(10),
        request(52, DriveOp::Read, page(900)),
    );
    assert!(miss > Nanos::from_millis(1), "{miss}");
}

/// A unit that takes a millisecond for each request in turn and notes where.
#[derive(Default)]
struct Noting {
    queue: VecDeque<(Nanos, u64)>,
    starts: Rc<RefCell<Vec<u64>>>,
}

impl DriveModel for Noting {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        self.starts.borrow_mut().push(request.extent.start.0);
        let begins = self.queue.back().map_or(now, |(done, _)| *done);
        let done = begins + Nanos::from_millis(1);
        self.queue.push_back((done, request.id));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.front().map(|(at, _)| *at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while self.next_event().is_some_and(|at| at <= now) {
            let next = self.queue.pop_front();
            done.extend(next.map(|(at, id)| Completed { at, id }));
        }
    }
}

#[test]
fn destaging_sweeps_upwards_and_joins_what_lies_side_by_side() {
    let unit = Noting::default();
    let starts = unit.starts.clone();
    let one_at_a_time = ControllerParameters {
        destage_depth: varied(1.0),
        ..H710P
    };
    let mut model = Controller::new(&one_at_a_time, vec![unit]).unwrap();
    // 500 goes out at once; later writes are swept from there upwards.
    for (id, start) in [500, 100, 900, 108, 700, 92].into_iter().enumerate() {
        let extent = Extent::new(Lba(start), PAGE);
        model.arrive(Nanos::ZERO, request(id as u64, DriveOp::Write, extent));
    }
    let mut done = Vec::new();
    while let Some(at) = model.next_event() {
        model.advance(at, &mut done);
    }
    assert_eq!(*starts.borrow(), [500, 700, 900, 92]);
}

#[test]
fn a_flush_waits_for_a_cache_that_forgets_and_only_for_that() {
    let flushed = |parameters: &ControllerParameters| {
        let mut model = cached(parameters);
        for id in 0..20 {
            model.arrive(Nanos::ZERO, request(id, DriveOp::Write, page(id * 1_000)));
        }
        model.arrive(Nanos::ZERO, request(20, DriveOp::Flush, Extent::default()));
        let mut done = Vec::new();
        while !done.iter().any(|completed: &Completed| completed.id == 20) {
            model.advance(model.next_event().unwrap(), &mut done);
        }
        (model.dirty_bytes(), done.len())
    };
    assert_eq!(flushed(&DRIVE_CACHE), (0, 21));
    let (dirty, _) = flushed(&H710P);
    assert!(dirty > 0);
}

#[test]
fn a_write_that_must_be_durable_passes_a_cache_that_forgets() {
    let mut write = request(0, DriveOp::Write, page(50_000));
    write.fua = Fua::Yes;
    let through = alone(&mut cached(&DRIVE_CACHE), Nanos::ZERO, write);
    assert!(through > Nanos::from_millis(1), "{through}");
    assert_eq!(alone(&mut cached(&H710P), Nanos::ZERO, write), ACKNOWLEDGED);
}

#[test]
fn command_time_caps_what_a_controller_passes_on() {
    let mut model = Controller::new(&WRITE_THROUGH, vec![flash()]).unwrap();
    let reads = random(DriveOp::Read, PAGE, NYTRO_400.capacity(), 4);
    let iops = closed_loop(64, 100, 20_000).run(&mut model, Nanos::ZERO, reads);
    let most = derived(1e6 / WRITE_THROUGH.command_us.value);
    near("IOPS", iops.iops(), most, 0.01).unwrap();
}

/// IOPS of `units` disks with eight random reads each.
fn iops_of_disks(units: u32) -> f64 {
    let disks = (0..units).map(|unit| disk(f64::from(unit) / 7.0)).collect();
    let mut model = Controller::new(&WRITE_THROUGH, disks).unwrap();
    let mut reads = random(DriveOp::Read, PAGE, SAS10K_146.capacity(), 4);
    let depth = u64::from(units) * 8;
    let run = closed_loop(depth, depth * 4, 5_000 * u64::from(units));
    let run = run.run(&mut model, Nanos::ZERO, |id| DriveRequest {
        unit: id as u32 % units,
        ..reads(id)
    });
    run.iops()
}

#[test]
fn seven_disks_behind_a_controller_serve_seven_times_as_much() {
    let one = iops_of_disks(1);
    near("seven disks", iops_of_disks(7), derived(7.0 * one), 0.02).unwrap();
}

/// The rate of streams of `op` to each of `units` flash drives behind links.
fn rate_over(parameters: &LinkParameters, op: DriveOp, units: u64) -> f64 {
    let drives = (0..units).map(|_| flash()).collect();
    let adapter = Controller::new(&WRITE_THROUGH, drives).unwrap();
    let mut model = ModelledLink::new(parameters, adapter).unwrap();
    let mut requests = sequential(op, MIB, Lba::ZERO);
    let run = closed_loop(4 * units, 16, 400);
    let run = run.run(&mut model, Nanos::ZERO, |id| DriveRequest {
        unit: (id % units) as u32,
        ..requests(id)
    });
    run.mb_s()
}

#[test]
fn a_link_caps_the_rate_both_ways() {
    for op in [DriveOp::Read, DriveOp::Write] {
        for parameters in [GIGABIT, TEN_GIGABIT] {
            // The drives behind a ten-gigabit link write 1000 MB/s each.
            let units = 2;
            let rate = rate_over(&parameters, op, units);
            near(parameters.name, rate, parameters.rate_mb_s, 0.01).unwrap();
        }
    }
}

#[test]
fn one_flow_uses_one_of_two_bonded_links() {
    let bonded = LinkParameters {
        links: varied(2.0),
        ..GIGABIT
    };
    let one = GIGABIT.rate_mb_s;
    near("one flow", rate_over(&bonded, DriveOp::Read, 1), one, 0.01).unwrap();
    let two = derived(2.0 * one.value);
    near("two flows", rate_over(&bonded, DriveOp::Read, 2), two, 0.01).unwrap();
}

#[test]
fn a_round_trip_and_the_transfer_add_to_the_drives_latency() {
    let flash = || SsdModel::new(&X25_E, SsdWear::Fresh).unwrap();
    let added = |op, extent| {
        let mut linked = ModelledLink::new(&GIGABIT, flash()).unwrap();
        let far = alone(&mut linked, Nanos::ZERO, request(0, op, extent));
        let here = alone(&mut flash(), Nanos::ZERO, request(0, op, extent));
        (far - here).as_secs_f64() * 1e6
    };
    let round_trip = GIGABIT.round_trip_us.value;
    let transfer = 4_096.0 / GIGABIT.rate_mb_s.value;
    for op in [DriveOp::Read, DriveOp::Write] {
        near(
            "page",
            added(op, page(1)),
            derived(round_trip + transfer),
            1e-4,
        )
        .unwrap();
    }
    let flush = added(DriveOp::Flush, Extent::default());
    near("flush", flush, GIGABIT.round_trip_us, 1e-4).unwrap();
}

#[test]
fn canary_a_link_of_twice_the_rate_is_found() {
    let faster = LinkParameters {
        rate_mb_s: varied(234.0),
        ..GIGABIT
    };
    let rate = rate_over(&faster, DriveOp::Read, 1);
    near("rate", rate, GIGABIT.rate_mb_s, 0.01).unwrap_err();
}

#[test]
fn an_impossible_parameter_names_value_range_and_remedy() {
    let endless = LinkParameters {
        links: varied(0.0),
        ..GIGABIT
    };
    assert_eq!(
        ModelledLink::new(&endless, flash())
            .unwrap_err()
            .to_string(),
        "1GbE: parameter links = 0 is outside 1..=64; give the number of links bonded together"
    );
    let negative = ControllerParameters {
        cache_mb: varied(-1.0),
        ..H710P
    };
    let error = Controller::new(&negative, vec![disk(0.0)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "H710P: parameter cache_mb = -1 is outside 0..=1000000; \
         give the write-back cache in MB, 0 for write-through"
    );
}
