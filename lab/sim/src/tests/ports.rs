//! Ports of the simulated world: the contract, and the requests left by a dead server.

use crate::{PortClient, PortRequest, PortSpec, ServiceSpan, SimDriver, SimHost, SimWorld};
use block::conformance::{self, PortClients};
use block::{Extent, Fua, IoErrorKind, Lba, Nanos, Port, Request, Sectors, Tag, TargetId};
use shard::{Local, run_alone};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Requests of tasks, to the world and back.
#[derive(Default)]
struct Questions {
    next: u64,
    asked: VecDeque<PortRequest>,
    answers: BTreeMap<u64, (Result<(), IoErrorKind>, Vec<u8>)>,
    waiting: BTreeMap<u64, Waker>,
}

/// Shared by the world and its tasks, which are on one thread.
#[derive(Clone, Default)]
struct Desk(Arc<Mutex<Questions>>);

impl PortClient for Desk {
    fn ask(&mut self, _now: Nanos) -> Option<PortRequest> {
        self.0.lock().unwrap().asked.pop_front()
    }

    fn answered(&mut self, id: u64, result: Result<(), IoErrorKind>, data: Vec<u8>) {
        let mut questions = self.0.lock().unwrap();
        let old = questions.answers.insert(id, (result, data));
        assert!(old.is_none(), "{id} is answered twice");
        if let Some(waker) = questions.waiting.remove(&id) {
            waker.wake();
        }
    }
}

impl Desk {
    fn put(&self, request: Request, data: Vec<u8>) -> u64 {
        let mut questions = self.0.lock().unwrap();
        questions.next += 1;
        let id = questions.next;
        questions.asked.push_back(PortRequest { id, request, data });
        id
    }

    fn answers(&self) -> usize {
        self.0.lock().unwrap().answers.len()
    }
}

impl PortClients for Desk {
    async fn ask(&self, request: Request, data: Vec<u8>) -> Option<Vec<u8>> {
        let id = self.put(request, data);
        poll_fn(|cx| {
            let mut questions = self.0.lock().unwrap();
            if let Some((result, data)) = questions.answers.remove(&id) {
                return Poll::Ready(result.is_ok().then_some(data));
            }
            questions.waiting.insert(id, cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

fn world(seed: u64, tags: u16) -> (SimWorld, TargetId, Desk) {
    let desk = Desk::default();
    let mut world = SimWorld::new(seed);
    let latency = ServiceSpan {
        min: Nanos::from_micros(1),
        max: Nanos::from_micros(50),
    };
    let client = Box::new(desk.clone());
    let spec = PortSpec {
        tags,
        latency,
        client,
    };
    let target = world.add_port(spec).unwrap();
    (world, target, desk)
}

#[test]
fn it_conforms() {
    for seed in 0..16 {
        let (world, target, desk) = world(seed, 1 + (seed % 20) as u16);
        let ended = run_alone(&mut SimHost::new(world), move |local| async move {
            let port = Rc::new(local.port(target).unwrap());
            conformance::port(port, &desk, &local.env(), seed).await;
        });
        assert!(ended.is_ok(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_requests_out_in_the_same_order() {
    let order = |seed| {
        let (world, target, desk) = world(seed, 4);
        for n in 0..20 {
            desk.put(
                Request::Discard(Extent::new(Lba(n), Sectors(1))),
                Vec::new(),
            );
        }
        let mut sim = SimHost::new(world);
        let order = run_alone(&mut sim, move |local| async move {
            let given = Rc::new(RefCell::new(Vec::new()));
            serve(&local, target, given.clone());
            while desk.answers() < 20 {
                local.env().timer.sleep(Nanos::from_micros(10)).await;
            }
            given.take()
        });
        (order.unwrap(), sim.world().trace_hash())
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1).0, order(2).0);
}

/// Serves all requests without bytes.
fn serve(local: &Local<SimDriver>, target: TargetId, given: Rc<RefCell<Vec<Request>>>) {
    let port = Rc::new(local.port(target).unwrap());
    for tag in (0..port.tags()).map(Tag) {
        let (port, given) = (port.clone(), given.clone());
        local.env().spawn.spawn(async move {
            let mut answer = None;
            while let Ok(request) = port.next(tag, answer.take()).await {
                given.borrow_mut().push(request);
                answer = Some(Ok(None));
            }
        });
    }
}

/// A server dies with its tags in every state. The next server gets the unanswered requests, and
/// the client gets each answer once.
#[test]
fn what_a_dead_server_held_is_given_to_the_next() {
    for seed in 0..50 {
        let (world, target, desk) = world(seed, 6);
        let extent = |n: u64| Extent::new(Lba(8 * n), Sectors(8));
        for n in 0..12 {
            match n % 2 {
                0 => desk.put(Request::Write(extent(n), Fua::No), vec![n as u8; 4096]),
                _ => desk.put(Request::Zero(extent(n)), Vec::new()),
            };
        }
        let mut sim = SimHost::new(world);
        // The server takes some requests, answers some, and ends.
        run_alone(&mut sim, move |local| async move {
            let port = Rc::new(local.port(target).unwrap());
            for tag in (0..6).map(Tag) {
                let (port, env) = (port.clone(), local.env());
                local.env().spawn.spawn(async move {
                    let request = port.next(tag, None).await.unwrap();
                    if let (Request::Write(..), true) = (request, tag.0 < 4) {
                        let buf = env.pool.get(request.bytes()).await;
                        let (buf, taken) = port.take(tag, buf).await;
                        taken.unwrap();
                        drop(buf);
                    }
                });
            }
            let span = Nanos::from_micros(1 + seed * 3);
            local.env().timer.sleep(span).await;
        })
        .unwrap();
        assert_eq!(desk.answers(), 0);
        let asked = desk.clone();
        run_alone(&mut sim, move |local| async move {
            let port = Rc::new(local.port(target).unwrap());
            for tag in (0..6).map(Tag) {
                let (port, env) = (port.clone(), local.env());
                local.env().spawn.spawn(async move {
                    let mut answer = None;
                    while let Ok(request) = port.next(tag, answer.take()).await {
                        if let Request::Write(at, _) = request {
                            let buf = env.pool.get(4096).await;
                            let (buf, taken) = port.take(tag, buf).await;
                            taken.unwrap();
                            assert!(buf.iter().all(|b| *b == (at.start.0 / 8) as u8));
                        }
                        answer = Some(Ok(None));
                    }
                });
            }
            while asked.answers() < 12 {
                local.env().timer.sleep(Nanos::from_micros(10)).await;
            }
        })
        .unwrap();
        assert_eq!(desk.answers(), 12, "seed {seed}");
    }
}
