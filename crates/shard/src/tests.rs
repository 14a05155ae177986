//! The executor over a driver that the test works by hand.

use crate::located::{LocatedAsk, LocatedGate, LocatedReader};
use crate::task::Waiter;
use crate::{Config, Local, Mesh, Shard};
use block::{
    Address, AskedRead, Boundary, Completion, Connector, Device, DiskPlace, Driver, DriverOp, Fua,
    Gate, Generations, Geometry, IoError, IoErrorKind, IoResult, Lba, LocatedEnd, LocatedRead,
    Nanos, Payload, Pool, ReadTaker, Request, RequestTaker, Sectors, ShardId, ShardTurn, SharedBuf,
    Stream, Tag, TargetId, Token, TurnProgress, Unpark,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::mpsc;

/// Submitted operations, completions to come, and the time.
#[derive(Default)]
struct Bench {
    submitted: Vec<(Token, DriverOp)>,
    due: VecDeque<Completion>,
    closed: Vec<TargetId>,
    now: Nanos,
    clock_reads: u32,
    /// Of each disk; 0 is 1024.
    sectors: u64,
}

impl Bench {
    /// Completes the `i`th submitted operation, counted from the oldest.
    fn finish(&mut self, i: usize, result: u64) {
        let (token, op) = self.submitted.remove(i);
        self.due.push_back(Completion {
            token,
            result: Ok(result),
            payload: op.into_payload(),
        });
    }
}

struct Manual {
    bench: Rc<RefCell<Bench>>,
    pool: Pool,
}

struct CountUnpark(AtomicU32);

impl Unpark for CountUnpark {
    fn unpark(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Driver for Manual {
    fn now(&self) -> Nanos {
        let mut bench = self.bench.borrow_mut();
        bench.clock_reads += 1;
        bench.now
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn submit(&mut self, token: Token, _: TargetId, op: DriverOp) {
        self.bench.borrow_mut().submitted.push((token, op));
    }
    fn park(&mut self, deadline: Nanos, done: &mut Vec<Completion>) {
        let mut bench = self.bench.borrow_mut();
        if bench.due.is_empty() && deadline != Nanos::MAX {
            bench.now = bench.now.max(deadline);
        }
        done.extend(bench.due.drain(..));
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(CountUnpark(AtomicU32::new(0)))
    }
    fn geometry(&self, _: TargetId) -> Option<Geometry> {
        let sectors = match self.bench.borrow().sectors {
            0 => 1024,
            sectors => sectors,
        };
        Some(Geometry::new("manual", Sectors(sectors), Sectors(1)))
    }
    fn peer_closed(&self, _: TargetId) -> bool {
        false
    }
    fn close(&mut self, target: TargetId) {
        self.bench.borrow_mut().closed.push(target);
    }
}

struct Rig {
    bench: Rc<RefCell<Bench>>,
    turn: Box<dyn ShardTurn>,
    pool: Pool,
}

impl Rig {
    fn boot<F>(depth: u32, main: impl FnOnce(Local<Manual>) -> F) -> Rig
    where
        F: Future<Output = ()> + 'static,
    {
        let config = Config {
            depth,
            ..Config::default()
        };
        Rig::bounded(config, main)
    }

    fn bounded<F>(config: Config, main: impl FnOnce(Local<Manual>) -> F) -> Rig
    where
        F: Future<Output = ()> + 'static,
    {
        let bench = Rc::new(RefCell::new(Bench::default()));
        let pool = Pool::new(1 << 20);
        let driver = Manual {
            bench: bench.clone(),
            pool: pool.clone(),
        };
        let turn = Shard::boot(ShardId(0), driver, Mesh::new(1), config, main);
        Rig { bench, turn, pool }
    }

    fn run(&mut self) -> TurnProgress {
        loop {
            match self.turn.run_once() {
                TurnProgress::Ready => self.turn.park(Nanos::ZERO),
                progress => return progress,
            }
        }
    }

    fn deliver(&mut self) -> TurnProgress {
        self.turn.park(Nanos::ZERO);
        self.run()
    }
}

fn never() -> impl Future<Output = ()> {
    std::future::pending()
}

#[test]
fn a_shard_without_work_looks_for_some_before_it_sleeps() {
    let config = Config {
        busy_poll: Nanos(50),
        ..Config::default()
    };
    let mut rig = Rig::bounded(config, |local| async move {
        loop {
            local.env().timer.sleep(Nanos(1000)).await;
        }
    });
    let at = |rig: &mut Rig, now: u64| {
        rig.bench.borrow_mut().now = Nanos(now);
        rig.turn.run_once()
    };
    for now in [0, 1, 49] {
        assert_eq!(at(&mut rig, now), TurnProgress::Ready);
    }
    assert_eq!(at(&mut rig, 50), TurnProgress::Idle(Nanos(1000)));
    assert_eq!(at(&mut rig, 1000), TurnProgress::Ready, "it has worked");
    assert_eq!(at(&mut rig, 1049), TurnProgress::Ready);
    assert_eq!(at(&mut rig, 1050), TurnProgress::Idle(Nanos(2000)));
}

#[test]
fn the_clock_is_read_once_a_turn() {
    let times = Rc::new(RefCell::new(Vec::new()));
    let seen = times.clone();
    let mut rig = Rig::boot(1, |local| async move {
        let timer = local.env().timer;
        loop {
            for _ in 0..3 {
                seen.borrow_mut().push(timer.now());
            }
            timer.sleep(Nanos(10)).await;
        }
    });
    for _ in 0..3 {
        let before = rig.bench.borrow().clock_reads;
        let TurnProgress::Idle(at) = rig.run() else {
            panic!("sleeps")
        };
        assert_eq!(rig.bench.borrow().clock_reads - before, 1);
        rig.turn.park(at);
    }
    let want = [0, 0, 0, 10, 10, 10, 20, 20, 20].map(Nanos);
    assert_eq!(*times.borrow(), want);
}

#[test]
fn an_idle_shard_looks_seldom_and_one_with_work_in_time() {
    let looks = Rc::new(RefCell::new(Vec::new()));
    let seen = looks.clone();
    let mut rig = Rig::boot(1, |local| async move {
        let disk = local.disk(TargetId(0)).unwrap();
        let env = local.env();
        env.spawn.spawn(async move {
            let timer = local.env().timer;
            loop {
                timer.idle_sleep(Nanos(10), Nanos(100)).await;
                seen.borrow_mut().push(timer.now().0);
            }
        });
        let buf = env.pool.get(512).await;
        let (_, result) = disk.read(Lba(0), buf).await;
        result.unwrap();
        env.timer.sleep(Nanos(40)).await;
        never().await;
    });
    // The start is work, after which the shard is idle.
    for at in [10, 110] {
        assert_eq!(rig.run(), TurnProgress::Idle(Nanos(at)));
        rig.turn.park(Nanos(at));
    }
    assert_eq!(rig.run(), TurnProgress::Idle(Nanos(210)));
    // So is a completion, and so is a timer of another kind at 190.
    rig.bench.borrow_mut().now = Nanos(150);
    rig.bench.borrow_mut().finish(0, 0);
    assert_eq!(rig.deliver(), TurnProgress::Idle(Nanos(160)));
    for at in [160, 190, 200, 300] {
        assert_eq!(rig.run(), TurnProgress::Idle(Nanos(at)));
        rig.turn.park(Nanos(at));
    }
    rig.run();
    assert_eq!(*looks.borrow(), [10, 110, 150, 160, 190, 200, 300]);
}

#[test]
fn a_full_target_makes_requests_wait_in_order() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let mut rig = Rig::boot(2, |local| async move {
        let disk = Rc::new(local.disk(TargetId(0)).unwrap());
        for i in 0..6u64 {
            let (disk, env, seen) = (disk.clone(), local.env(), seen.clone());
            local.env().spawn.spawn(async move {
                let buf = env.pool.get(512).await;
                let (_, result) = disk.read(Lba(i), buf).await;
                result.unwrap();
                seen.borrow_mut().push(i);
            });
        }
        never().await;
    });
    rig.run();
    let mut submitted = Vec::new();
    for _ in 0..6 {
        let mut bench = rig.bench.borrow_mut();
        assert!(bench.submitted.len() <= 2, "in flight within the depth");
        let DriverOp::Read(at, _) = &bench.submitted[0].1 else {
            panic!("a read")
        };
        submitted.push(at.0);
        bench.finish(0, 0);
        drop(bench);
        rig.deliver();
    }
    assert_eq!(submitted, [0, 1, 2, 3, 4, 5]);
    assert_eq!(*order.borrow(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_dropped_future_abandons_the_wait_and_not_the_operation() {
    let mut rig = Rig::boot(1, |local| async move {
        let disk = local.disk(TargetId(0)).unwrap();
        let env = local.env();
        for at in [0, 1, 2] {
            let buf = env.pool.get(4096).await;
            let write = disk.write(Lba(at * 8), buf.share(), Fua::No);
            assert!(env.timer.timeout(Nanos(10), write).await.is_none());
        }
        never().await;
    });
    for _ in 0..3 {
        let TurnProgress::Idle(at) = rig.run() else {
            panic!("waits for the limit")
        };
        rig.turn.park(at);
    }
    rig.run();
    assert_eq!(
        rig.pool.total_bytes() - rig.pool.free_bytes(),
        3 * 4096,
        "held until completion"
    );
    for at in [0, 8, 16] {
        let DriverOp::Write(lba, ..) = rig.bench.borrow().submitted[0].1 else {
            panic!("a write")
        };
        assert_eq!(lba, Lba(at));
        rig.bench.borrow_mut().finish(0, 0);
        rig.deliver();
    }
    assert_eq!(rig.pool.free_bytes(), rig.pool.total_bytes());
}

/// An earlier change would otherwise undo writes after the flush.
#[test]
fn a_flush_waits_for_changes_that_were_given_up() {
    let mut rig = Rig::boot(1, |local| async move {
        let disk = local.disk(TargetId(0)).unwrap();
        let env = local.env();
        // The second one waits for the first at its target.
        for at in [0, 8] {
            let data = env.pool.get(512).await.share();
            let write = disk.write(Lba(at), data, Fua::No);
            assert!(env.timer.timeout(Nanos(10), write).await.is_none());
        }
        disk.flush().await.unwrap();
    });
    for _ in 0..2 {
        let TurnProgress::Idle(at) = rig.run() else {
            panic!("waits for the limit")
        };
        rig.turn.park(at);
    }
    for _ in 0..2 {
        rig.run();
        let is_write = matches!(rig.bench.borrow().submitted[..], [(_, DriverOp::Write(..))]);
        assert!(is_write, "the flush waits");
        rig.bench.borrow_mut().finish(0, 0);
        rig.deliver();
    }
    rig.run();
    let is_flush = matches!(rig.bench.borrow().submitted[..], [(_, DriverOp::Flush)]);
    assert!(is_flush, "nothing is left to wait for");
    rig.bench.borrow_mut().finish(0, 0);
    assert_eq!(rig.deliver(), TurnProgress::Done);
}

#[test]
fn an_abandoned_write_keeps_later_ones_off_its_range() {
    let mut rig = Rig::boot(8, |local| async move {
        let env = local.env();
        let gate = Gate::new(local.disk(TargetId(0)).unwrap(), env.clone());
        let first = env.pool.get(512).await.share();
        let second = env.pool.get(512).await.share();
        let write = gate.write(0, first, Fua::No);
        assert!(env.timer.timeout(Nanos(10), write).await.is_none());
        gate.write(0, second, Fua::No).await.unwrap();
    });
    let TurnProgress::Idle(at) = rig.run() else {
        panic!("waits for the limit")
    };
    rig.turn.park(at);
    rig.run();
    assert_eq!(rig.bench.borrow().submitted.len(), 1, "the second waits");
    rig.bench.borrow_mut().finish(0, 0);
    rig.deliver();
    assert_eq!(rig.bench.borrow().submitted.len(), 1);
    rig.bench.borrow_mut().finish(0, 0);
    assert_eq!(rig.deliver(), TurnProgress::Done);
    drop(rig.turn);
    assert_eq!(rig.pool.free_bytes(), rig.pool.total_bytes());
}

#[test]
fn a_connection_that_nobody_waits_for_is_closed() {
    let mut rig = Rig::boot(1, |local| async move {
        let connector = local.connector();
        let connect = connector.connect(Address::Unix("x".into()));
        assert!(
            local
                .env()
                .timer
                .timeout(Nanos(10), connect)
                .await
                .is_none()
        );
        never().await;
    });
    let TurnProgress::Idle(at) = rig.run() else {
        panic!("waits for the limit")
    };
    rig.turn.park(at);
    rig.run();
    rig.bench.borrow_mut().finish(0, 7);
    rig.deliver();
    assert_eq!(rig.bench.borrow().closed, [TargetId(7)]);
}

/// The driver may have given the number of a closed stream to another one.
#[test]
fn a_closed_stream_submits_nothing_more() {
    let mut rig = Rig::boot(2, |local| async move {
        let address = Address::Unix("peer".into());
        let socket = local.connector().connect(address).await.unwrap();
        socket.close();
        let env = local.env();
        let data = env.pool.get(100).await.share();
        let (parts, sent) = socket.send(vec![data]).await;
        assert!(parts.is_empty());
        assert_eq!(sent.unwrap_err().kind(), IoErrorKind::Stream);
        let (_, received) = socket.recv(env.pool.get(100).await).await;
        assert_eq!(received.unwrap_err().kind(), IoErrorKind::Stream);
    });
    rig.run();
    rig.bench.borrow_mut().finish(0, 7);
    assert_eq!(rig.deliver(), TurnProgress::Done);
    assert!(rig.bench.borrow().submitted.is_empty());
}

#[test]
#[should_panic(expected = "completed twice")]
fn a_driver_that_completes_twice_is_caught() {
    let mut rig = Rig::boot(1, |local| async move {
        let disk = local.disk(TargetId(0)).unwrap();
        disk.flush().await.unwrap();
        never().await;
    });
    rig.run();
    let (token, _) = rig.bench.borrow_mut().submitted.remove(0);
    for _ in 0..2 {
        let completion = Completion {
            token,
            result: Ok(0),
            payload: Payload::None,
        };
        rig.bench.borrow_mut().due.push_back(completion);
    }
    rig.deliver();
}

#[test]
fn sleeps_end_in_order_and_an_error_reaches_its_caller() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let mut rig = Rig::boot(1, |local| async move {
        for ms in [3, 1, 2] {
            let (env, seen) = (local.env(), seen.clone());
            local.env().spawn.spawn(async move {
                env.timer.sleep(Nanos::from_millis(ms)).await;
                seen.borrow_mut().push(ms);
            });
        }
        let disk = local.disk(TargetId(0)).unwrap();
        assert_eq!(disk.flush().await.unwrap_err().kind(), IoErrorKind::Media);
        local.env().timer.sleep(Nanos::from_millis(9)).await;
    });
    rig.run();
    let (token, _) = rig.bench.borrow_mut().submitted.remove(0);
    let result = Err(IoError::new(IoErrorKind::Media, "unreadable"));
    rig.bench.borrow_mut().due.push_back(Completion {
        token,
        result,
        payload: Payload::None,
    });
    loop {
        match rig.deliver() {
            TurnProgress::Idle(at) => rig.turn.park(at),
            TurnProgress::Done => break,
            TurnProgress::Ready => unreachable!("run goes on until idle"),
        }
    }
    assert_eq!(*order.borrow(), [1, 2, 3]);
}

/// A driver for real threads: no disks, and a park that a channel ends.
struct Threaded {
    pool: Pool,
    inbox: mpsc::Receiver<()>,
    unparker: Arc<Sender>,
}

struct Sender(mpsc::Sender<()>, Arc<AtomicU32>);

impl Unpark for Sender {
    fn unpark(&self) {
        self.1.fetch_add(1, Relaxed);
        // The receiver may have ended.
        let _ = self.0.send(());
    }
}

impl Driver for Threaded {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn submit(&mut self, _: Token, _: TargetId, op: DriverOp) {
        panic!("no target performs {op:?}")
    }
    fn park(&mut self, deadline: Nanos, _: &mut Vec<Completion>) {
        if deadline == Nanos::MAX {
            self.inbox.recv().expect("the unparker keeps a sender");
        }
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.unparker.clone()
    }
    fn geometry(&self, _: TargetId) -> Option<Geometry> {
        None
    }
    fn peer_closed(&self, _: TargetId) -> bool {
        false
    }
    fn close(&mut self, _: TargetId) {}
}

#[test]
fn calls_between_threads_all_arrive_and_wake_sleepers() {
    const SHARDS: u32 = 3;
    const CALLS: u64 = 20_000;
    let mesh = Mesh::new(SHARDS);
    let unparks = Arc::new(AtomicU32::new(0));
    let finished = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        for id in (0..SHARDS).map(ShardId) {
            let (mesh, unparks, finished) = (mesh.clone(), unparks.clone(), finished.clone());
            scope.spawn(move || {
                let (tx, inbox) = mpsc::channel();
                let unparker = Arc::new(Sender(tx, unparks));
                let driver = Threaded {
                    pool: Pool::new(1 << 20),
                    inbox,
                    unparker,
                };
                let mut turn = Shard::boot(id, driver, mesh, Config::default(), |local| {
                    client(local, finished)
                });
                loop {
                    match turn.run_once() {
                        TurnProgress::Ready => turn.park(Nanos::ZERO),
                        TurnProgress::Idle(at) => turn.park(at),
                        TurnProgress::Done => break,
                    }
                }
            });
        }
    });
    assert_eq!(finished.load(SeqCst), SHARDS);
    assert!(
        unparks.load(SeqCst) <= SHARDS * (2 * CALLS as u32 + 8),
        "no call needs two system calls"
    );

    async fn client(local: Local<Threaded>, finished: Arc<AtomicU32>) {
        let next = ShardId((local.id().0 + 1) % SHARDS);
        let mut sum = 0;
        for i in 0..CALLS {
            let mut buf = local.env().pool.get(512).await;
            buf[..8].copy_from_slice(&i.to_le_bytes());
            let data = buf.share();
            sum += local
                .call(next, move |_| async move {
                    u64::from_le_bytes(data[..8].try_into().unwrap())
                })
                .await
                .unwrap();
        }
        assert_eq!(sum, CALLS * (CALLS - 1) / 2);
        finished.fetch_add(1, SeqCst);
        // Stays to serve the others: the last one ends the shards by a message.
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        local.put(Rc::new(Cell::new(Some(stop))));
        if finished.load(SeqCst) == SHARDS {
            for other in (0..SHARDS).map(ShardId) {
                local.mesh().post(other, |local| {
                    type Stop = Cell<Option<futures_channel::oneshot::Sender<()>>>;
                    drop(local.get::<Stop>().and_then(|stop| stop.take()));
                });
            }
        }
        // Ends by the sender's being dropped.
        let _ = stopped.await;
        // A call to a shard that has ended fails with `Gone`.
        let last = local.call(next, |_| async {}).await;
        assert!(last.is_ok() || last.unwrap_err().kind() == IoErrorKind::Gone);
    }
}

/// Two shards of one thread, run in turns until neither has work.
fn both<F, G>(
    first: impl FnOnce(Local<Manual>) -> F,
    second: impl FnOnce(Local<Manual>) -> G,
) -> [Box<dyn ShardTurn>; 2]
where
    F: Future<Output = ()> + 'static,
    G: Future<Output = ()> + 'static,
{
    let mesh = Mesh::new(2);
    let driver = || Manual {
        bench: Rc::default(),
        pool: Pool::new(1 << 20),
    };
    let config = Config {
        depth: 1,
        ..Config::default()
    };
    [
        Shard::boot(ShardId(0), driver(), mesh.clone(), config, first),
        Shard::boot(ShardId(1), driver(), mesh, config, second),
    ]
}

fn run_in_turns(shards: &mut [Box<dyn ShardTurn>]) {
    for _ in 0..20 {
        for shard in &mut *shards {
            while shard.run_once() == TurnProgress::Ready {}
        }
    }
}

#[test]
fn a_lane_answers_each_request_whoever_still_waits() {
    let (end, server) = crate::lane::<u32, u32>();
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (came, served) = (answers.clone(), Rc::new(Cell::new(0)));
    let count = served.clone();
    let mut shards = both(
        |local| async move {
            let asker = end.begin(&local.env());
            let ask = |n: u32| {
                let (asker, came) = (asker.clone(), came.clone());
                async move {
                    let answer = asker.ask(n).await;
                    came.borrow_mut().push(answer);
                }
            };
            for n in [5, 1, 3] {
                local.env().spawn.spawn(ask(n));
            }
            // One that is abandoned once polled.
            let mut abandoned = Box::pin(ask(2));
            std::future::poll_fn(|cx| {
                assert!(abandoned.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(abandoned);
            asker.send(7);
            // Its answer needs no task of the other shard.
            assert_eq!(asker.ask(0).await, Some(100));
            never().await;
        },
        |local| async move {
            let timer = local.env().timer;
            let at_once = |n: &u32| (*n == 0).then_some(100);
            let carry_out = move |n: u32| {
                let (timer, count) = (timer.clone(), count.clone());
                async move {
                    timer.sleep(Nanos(u64::from(n))).await;
                    count.set(count.get() + 1);
                    n * 10
                }
            };
            server.serve(local.env(), at_once, carry_out).await;
        },
    );
    for _ in 0..8 {
        run_in_turns(&mut shards);
        shards[1].park(Nanos(10));
    }
    assert_eq!(*answers.borrow(), [Some(10), Some(30), Some(50)]);
    assert_eq!(served.get(), 5, "those that nobody waits for too");
}

#[test]
fn a_lane_whose_other_end_is_gone_answers_none() {
    for begun in [false, true] {
        let (end, server) = crate::lane::<u32, u32>();
        let answer = Rc::new(Cell::new(None));
        let came = answer.clone();
        let mut shards = both(
            |local| async move {
                let asker = end.begin(&local.env());
                came.set(Some(asker.ask(1).await));
                never().await;
            },
            move |local| async move {
                match begun {
                    true => {
                        let timer = local.env().timer;
                        let serving =
                            server.serve(local.env(), |_| None, |_| std::future::pending());
                        assert!(timer.timeout(Nanos(5), serving).await.is_none());
                    }
                    false => drop(server),
                }
                never().await;
            },
        );
        for _ in 0..3 {
            run_in_turns(&mut shards);
            shards[1].park(Nanos(10));
        }
        assert_eq!(answer.take(), Some(None), "begun: {begun}");
    }
}

/// Waits without a task, and holds its shard: a cycle.
struct ShardHolder {
    #[expect(dead_code, reason = "held for its drop")]
    held: Rc<()>,
    local: Local<Manual>,
    generations: Generations,
    taken: RefCell<Vec<IoResult<usize>>>,
}

impl RequestTaker for ShardHolder {
    fn take_next(self: Rc<Self>, _: Tag, next: IoResult<Request>) {
        let next = next.map(|request| request.bytes());
        self.taken.borrow_mut().push(next);
    }
}

impl ReadTaker for ShardHolder {
    fn take_read(self: Rc<Self>, _: &AskedRead, result: IoResult<SharedBuf>) {
        self.taken.borrow_mut().push(result.map(|data| data.len()));
    }
}

impl LocatedGate for ShardHolder {
    fn generations(&self) -> &Generations {
        &self.generations
    }
    fn count(&self, _: &AskedRead, _: &LocatedEnd, _: bool) {}
    fn read_otherwise(self: Rc<Self>, asked: AskedRead, taker: Rc<dyn ReadTaker>) {
        let error = IoError::new(IoErrorKind::Media, "refused");
        taker.take_read(&asked, Err(error));
    }
}

impl ShardHolder {
    /// Begins to wait for a request, and reads of one block and of two, at a slot each.
    fn begin(held: Rc<()>, local: &Local<Manual>) -> Rc<ShardHolder> {
        let holder = Rc::new(ShardHolder {
            held,
            local: local.clone(),
            generations: Generations::new(Nanos(80), 16),
            taken: RefCell::default(),
        });
        let waiter = Waiter::Request(holder.clone(), Tag(3));
        let ops = &local.0.ops;
        ops.start(TargetId(1), DriverOp::Next(Tag(3), None), waiter);
        for blocks in [1, 2] {
            holder.read(Lba(8), blocks);
        }
        holder
    }

    /// Begins to read blocks at `at`, each of a slot of its own.
    fn read(self: &Rc<Self>, at: Lba, blocks: usize) {
        let place = DiskPlace {
            target: TargetId(0),
            at,
        };
        let slot = |number: usize| LocatedRead {
            place,
            blocks: 1,
            skip: 0,
            checksum: crc_fast::crc32_iscsi(&[0; 4096]),
            member: 0,
            generation: self.generations.of(number as u32),
            more: None,
        };
        let mut read = slot(0);
        if blocks > 1 {
            let rest = (1..blocks).map(slot).collect();
            read.more.get_or_insert_default().rest = rest;
        }
        let reader = LocatedReader::of(&self.local);
        let ask = LocatedAsk {
            asked: AskedRead::of(0, blocks * 4096),
            begun: reader.now(),
            is_kept: false,
            gate: self.clone(),
            taker: self.clone(),
        };
        reader.begin(read, ask);
    }
}

type BegunHolder = Rc<RefCell<Option<Rc<ShardHolder>>>>;

/// A rig with a holder, and the count of the holder's part.
fn held() -> (Rig, Rc<()>, BegunHolder) {
    let (alive, begun) = (Rc::new(()), Rc::new(RefCell::new(None)));
    let (held, place) = (alive.clone(), begun.clone());
    let mut rig = Rig::boot(8, move |local| async move {
        place.replace(Some(ShardHolder::begin(held, &local)));
        never().await
    });
    rig.run();
    (rig, alive, begun)
}

#[test]
fn a_wait_without_a_task_ends_in_the_turn_that_takes_the_completion_in() {
    let (mut rig, _, begun) = held();
    let holder = begun.take().unwrap();
    // The wait for a request, and three reads, of which the last has another content.
    assert_eq!(rig.bench.borrow().submitted.len(), 4);
    for (op, taken) in [(1, 1), (1, 1), (1, 2)] {
        let mut bench = rig.bench.borrow_mut();
        if let DriverOp::Read(_, buf) = &mut bench.submitted[op].1 {
            buf.fill(u8::from(taken == 2));
        }
        bench.finish(op, 0);
        drop(bench);
        rig.deliver();
        assert_eq!(holder.taken.borrow().len(), taken);
    }
    let taken = holder.taken.take();
    assert_eq!(taken[0].as_ref().ok(), Some(&4096));
    assert!(taken[1].is_err(), "a slot has another checksum");
    let token = rig.bench.borrow_mut().submitted.remove(0).0;
    let flush = Completion {
        token,
        result: Ok(0),
        payload: Payload::Request(Request::Flush),
    };
    rig.bench.borrow_mut().due.push_back(flush);
    rig.deliver();
    assert_eq!(holder.taken.take().len(), 1);
    assert_eq!(holder.local.tasks(), 2, "main, and the looks at the reads");
}

#[test]
fn a_read_that_is_late_is_read_otherwise_and_its_disk_answers_nobody() {
    let (mut rig, _, begun) = held();
    let holder = begun.take().unwrap();
    // Nothing completes: time passes to the next look.
    for _ in 0..12 {
        if let TurnProgress::Idle(deadline) = rig.run() {
            rig.turn.park(deadline);
        }
    }
    let taken = holder.taken.take();
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(Result::is_err));
    for _ in 0..3 {
        rig.bench.borrow_mut().finish(1, 0);
        rig.deliver();
    }
    assert!(holder.taken.borrow().is_empty());
    assert_eq!(holder.local.tasks(), 1, "nobody looks at no reads");
}

#[test]
fn a_larger_disk_that_gets_the_number_of_another_is_read_whole() {
    let (rig, _, begun) = held();
    let holder = begun.take().unwrap();
    holder.read(Lba(2000), 1);
    assert_eq!(holder.taken.take().len(), 1, "past the end");
    rig.bench.borrow_mut().sectors = 4096;
    holder.read(Lba(2000), 1);
    assert!(holder.taken.borrow().is_empty(), "it is read");
    assert_eq!(rig.bench.borrow().submitted.len(), 5);
}

#[test]
fn a_shard_that_ends_forgets_who_waits_without_a_task() {
    let (rig, alive, begun) = held();
    drop(begun.take());
    assert_eq!(Rc::strong_count(&alive), 2, "the shard holds it");
    drop(rig);
    assert_eq!(Rc::strong_count(&alive), 1);
}
