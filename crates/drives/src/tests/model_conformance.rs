//! The promises of every service-time model, checked on each model and on nested ones with random
//! requests. Canaries show that each check can fail.

use crate::catalogue::{Drive, controller, hdd, link, ssd};
use crate::{
    Completed, Controller, ControllerParameters, DriveModel, DriveOp, DrivePacer, DriveRequest,
    Hdd, ModelledLink, SsdModel, SsdWear,
};
use block::{Extent, Fua, Lba, Nanos, Sectors};
use std::collections::HashMap;

const REQUESTS: u64 = 2_000;
const UNITS: u32 = 7;

/// Bursts of random requests with pauses in between, all inside `sectors`.
fn requests(seed: u64, sectors: Sectors, units: u32) -> Vec<(Nanos, DriveRequest)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut now = Nanos::ZERO;
    (0..REQUESTS)
        .map(|id| {
            if rng.u32(0..20) == 0 {
                now += Nanos::from_micros(rng.u64(0..200_000));
            } else if rng.bool() {
                now += Nanos(rng.u64(0..2_000_000));
            }
            let len = Sectors(1 << rng.u32(0..10));
            // Half of the requests fall close together and overlap.
            let span = if rng.bool() { sectors.0 } else { 8_192 };
            let start = Lba(rng.u64(0..span - len.0));
            let op = match rng.u32(0..20) {
                0 => DriveOp::Flush,
                1 => DriveOp::Discard,
                2..=9 => DriveOp::Write,
                _ => DriveOp::Read,
            };
            let fua = if rng.u32(0..4) == 0 {
                Fua::Yes
            } else {
                Fua::No
            };
            let request = DriveRequest {
                id,
                unit: rng.u32(0..units),
                op,
                extent: Extent::new(start, len),
                fua,
            };
            (now, request)
        })
        .collect()
}

/// Runs `model` through `requests`; returns the completed ones, or the broken promise.
fn run(
    model: &mut impl DriveModel,
    requests: &[(Nanos, DriveRequest)],
) -> Result<Vec<Completed>, &'static str> {
    let mut arrivals = requests.iter().peekable();
    let mut arrived = HashMap::new();
    let (mut all, mut done, mut last) = (Vec::new(), Vec::new(), Nanos::ZERO);
    loop {
        let event = model.next_event();
        let arrival = arrivals.peek().map(|(at, _)| *at);
        let Some(now) = event.into_iter().chain(arrival).min() else {
            break;
        };
        if now < last {
            return Err("an event lies in the past");
        }
        last = now;
        model.advance(now, &mut done);
        if model.next_event().is_some_and(|next| next <= now) {
            return Err("an event that was due is still there");
        }
        for completed in done.drain(..) {
            if completed.at > now {
                return Err("completed in the future");
            }
            if all
                .last()
                .is_some_and(|last: &Completed| last.at > completed.at)
            {
                return Err("completed out of order");
            }
            match arrived.remove(&completed.id) {
                None => return Err("completed twice or never arrived"),
                Some(at) if completed.at <= at => return Err("completed on arrival"),
                Some(_) => all.push(completed),
            }
        }
        while let Some((_, request)) = arrivals.next_if(|(at, _)| *at <= now) {
            arrived.insert(request.id, now);
            model.arrive(now, *request);
        }
    }
    if arrived.is_empty() {
        Ok(all)
    } else {
        Err("lost a request")
    }
}

/// Checks a model on several seeds, and that two runs are the same.
fn conforms<M: DriveModel>(sectors: Sectors, make: impl Fn() -> M) {
    for seed in 0..8 {
        let requests = requests(seed, sectors, UNITS);
        let first = run(&mut make(), &requests);
        let first = first.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        assert_eq!(first.len() as u64, REQUESTS);
        let second = run(&mut make(), &requests).unwrap();
        assert!(first == second, "seed {seed}: two runs differ");
    }
}

fn seven_disks() -> Vec<Hdd> {
    let phases = (0..UNITS).map(|unit| f64::from(unit) / f64::from(UNITS));
    phases
        .map(|phase| Hdd::new(&hdd::SAS10K_146, phase).unwrap())
        .collect()
}

fn seven_behind(parameters: &ControllerParameters) -> Controller<Hdd> {
    Controller::new(parameters, seven_disks()).unwrap()
}

#[test]
fn drives_conform() {
    for drive in Drive::all() {
        for wear in [SsdWear::Fresh, SsdWear::Steady] {
            conforms(drive.capacity(), || drive.model(0.3, wear).unwrap());
        }
    }
}

#[test]
fn controllers_conform_in_front_of_seven_disks() {
    for mut parameters in controller::ALL {
        conforms(hdd::SAS10K_146.capacity(), || seven_behind(&parameters));
        // A cache that is nearly always full.
        parameters.cache_mb.value = parameters.cache_mb.value.min(0.5);
        conforms(hdd::SAS10K_146.capacity(), || seven_behind(&parameters));
    }
}

#[test]
fn links_conform_in_front_of_controllers_and_drives() {
    for mut parameters in link::ALL {
        parameters.links.value = 2.0;
        conforms(hdd::SAS10K_146.capacity(), || {
            ModelledLink::new(&parameters, seven_behind(&controller::H710P)).unwrap()
        });
        conforms(ssd::X25_E.capacity(), || {
            ModelledLink::new(
                &parameters,
                SsdModel::new(&ssd::X25_E, SsdWear::Fresh).unwrap(),
            )
            .unwrap()
        });
    }
}

/// A model that breaks a promise on its reports.
struct Broken<F> {
    model: Hdd,
    spoil: F,
}

impl<F: FnMut(&mut Vec<Completed>)> DriveModel for Broken<F> {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        self.model.arrive(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.model.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        self.model.advance(now, done);
        (self.spoil)(done);
    }
}

#[test]
fn canary_each_broken_promise_is_found() {
    let broken = |spoil: fn(&mut Vec<Completed>)| {
        let model = Hdd::new(&hdd::SAS10K_146, 0.0).unwrap();
        let requests = requests(0, hdd::SAS10K_146.capacity(), 1);
        run(&mut Broken { model, spoil }, &requests).unwrap_err()
    };
    assert_eq!(broken(|done| done.retain(|c| c.id != 7)), "lost a request");
    assert_eq!(
        broken(|done| done.extend_from_within(..)),
        "completed twice or never arrived"
    );
    assert_eq!(
        broken(|done| done.iter_mut().for_each(|c| c.at = Nanos::MAX)),
        "completed in the future"
    );
    assert_eq!(
        broken(|done| done.iter_mut().for_each(|c| c.at = Nanos::ZERO)),
        "completed on arrival"
    );
}

#[test]
fn a_pacer_keeps_the_models_schedule_however_late_it_is_asked() {
    let disk = || Hdd::new(&hdd::SAS10K_146, 0.0).unwrap();
    let requests = requests(1, hdd::SAS10K_146.capacity(), 1);
    let expected = run(&mut disk(), &requests).unwrap();
    let mut pacer = DrivePacer::new(disk());
    let mut due = Vec::new();
    let mut rng = fastrand::Rng::with_seed(2);
    for (at, request) in &requests {
        pacer.arrive(*at, *request);
        if rng.u32(0..50) == 0 {
            // A clock read a little earlier on another core changes nothing.
            pacer.take_due(*at - Nanos(1_000), &mut due);
        }
    }
    let mut clock = requests.last().unwrap().0;
    while let Some(next) = pacer.next_due() {
        clock = clock.max(next) + Nanos(rng.u64(0..10_000_000));
        let before = due.len();
        pacer.take_due(clock, &mut due);
        assert!(due[before..].iter().all(|completed| completed.at <= clock));
    }
    assert_eq!(due, expected);
}
