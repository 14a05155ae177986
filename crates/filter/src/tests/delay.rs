//! `Delayed` takes the longer of the device's time and the model's.

use super::common::on_exact_disk;
use crate::{AccessVerb, DelayPacer, Delayed, RawAccess};
use block::{Device, Env, Extent, Fua, Lba, Nanos, Sectors};
use drives::catalogue::hdd;
use drives::{DriveModel, Hdd};
use std::cell::RefCell;
use std::rc::Rc;

const DEVICE: Nanos = Nanos::from_micros(100);

/// Each request is due a fixed span after it arrives.
struct Fixed {
    span: Nanos,
    due: Vec<(Nanos, u64)>,
    heard: Rc<RefCell<Vec<RawAccess>>>,
}

impl DelayPacer for Fixed {
    fn arrive(&mut self, now: Nanos, id: u64, access: &RawAccess) {
        self.heard.borrow_mut().push(*access);
        // Reads overtake: their model is twice as fast.
        let span = match access.verb {
            AccessVerb::Read => Nanos(self.span.0 / 2),
            _ => self.span,
        };
        self.due.push((now + span, id));
        self.due.sort();
    }
    fn next_due(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }
    fn take_due(&mut self, now: Nanos, due: &mut Vec<u64>) {
        let ready = self.due.iter().take_while(|(at, _)| *at <= now).count();
        due.extend(self.due.drain(..ready).map(|(_, id)| id));
    }
}

async fn took(env: &Env, work: impl Future) -> Nanos {
    let began = env.timer.now();
    work.await;
    env.timer.now() - began
}

#[test]
fn a_request_takes_the_longer_of_device_and_model() {
    for (model_us, expected_us) in [(20, 100), (700, 700)] {
        on_exact_disk(DEVICE, async move |disk, env| {
            let pacer = Fixed {
                span: Nanos::from_micros(model_us),
                due: Vec::new(),
                heard: Rc::default(),
            };
            let device = Delayed::new(disk, pacer, env.clone());
            let expected = Nanos::from_micros(expected_us);
            assert_eq!(took(&env, device.flush()).await, expected);
            let data = env.pool.get(512).await.share();
            let write = device.write(Lba(3), data, Fua::No);
            assert_eq!(took(&env, write).await, expected);
        });
    }
}

#[test]
fn a_later_request_that_is_due_earlier_is_sent_in_time() {
    on_exact_disk(Nanos(1), async |disk, env| {
        let pacer = Fixed {
            span: Nanos::from_millis(10),
            due: Vec::new(),
            heard: Rc::default(),
        };
        let device = Rc::new(Delayed::new(disk, pacer, env.clone()));
        let slow = device.clone();
        env.spawn.spawn(async move { slow.flush().await.unwrap() });
        env.timer.sleep(Nanos::from_millis(1)).await;
        let buf = env.pool.get(512).await;
        let read = device.read(Lba(0), buf);
        assert_eq!(took(&env, read).await, Nanos::from_millis(5));
    });
}

#[test]
fn refused_requests_and_extents_are_not_paced() {
    on_exact_disk(DEVICE, async |disk, env| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let pacer = Fixed {
            span: Nanos::from_secs(9),
            due: Vec::new(),
            heard: heard.clone(),
        };
        let device = Delayed::new(disk, pacer, env.clone());
        let whole = device.geometry().extent();
        let past = Extent::new(whole.end(), Sectors(1));
        device.zero(past).await.expect_err("past the end");
        device.extents(whole, &mut Vec::new()).await.unwrap();
        assert!(heard.borrow().is_empty());
    });
}

/// A drive model of the simulator, as the lab plugs one in.
struct Drive {
    pacer: drives::DrivePacer<Hdd>,
    done: Vec<drives::Completed>,
}

impl DelayPacer for Drive {
    fn arrive(&mut self, now: Nanos, id: u64, access: &RawAccess) {
        let op = match access.verb {
            AccessVerb::Read => drives::DriveOp::Read,
            AccessVerb::Write | AccessVerb::Zero => drives::DriveOp::Write,
            AccessVerb::Flush => drives::DriveOp::Flush,
            AccessVerb::Discard | AccessVerb::Extents => drives::DriveOp::Discard,
        };
        let request = drives::DriveRequest {
            id,
            unit: 0,
            op,
            extent: access.extent,
            fua: access.fua,
        };
        self.pacer.arrive(now, request);
    }
    fn next_due(&self) -> Option<Nanos> {
        self.pacer.next_due()
    }
    fn take_due(&mut self, now: Nanos, due: &mut Vec<u64>) {
        self.pacer.take_due(now, &mut self.done);
        due.extend(self.done.drain(..).map(|done| done.id));
    }
}

/// Returns the time of `access` on an idle drive, by the model itself.
fn cost(mut drive: Hdd, began: Nanos, access: RawAccess) -> Nanos {
    let request = drives::DriveRequest {
        id: 0,
        unit: 0,
        op: drives::DriveOp::Read,
        extent: access.extent,
        fua: access.fua,
    };
    drive.arrive(began, request);
    let mut done = Vec::new();
    while done.is_empty() {
        let next = drive.next_event().expect("the request is in flight");
        drive.advance(next, &mut done);
    }
    done[0].at - began
}

#[test]
fn a_drive_of_the_simulator_plugs_in() {
    on_exact_disk(Nanos(1), async |disk, env| {
        let drive = || Hdd::new(&hdd::ST3500320AS, 0.25).expect("a drive of the catalogue");
        let pacer = Drive {
            pacer: drives::DrivePacer::new(drive()),
            done: Vec::new(),
        };
        let device = Delayed::new(disk, pacer, env.clone());
        let buf = env.pool.get(4096).await;
        let began = env.timer.now();
        let measured = took(&env, device.read(Lba(8000), buf)).await;
        let access = RawAccess {
            verb: AccessVerb::Read,
            extent: Extent::new(Lba(8000), Sectors(8)),
            fua: Fua::No,
        };
        assert_eq!(measured, cost(drive(), began, access));
        assert!(measured > Nanos::from_micros(100), "{measured}");
    });
}
