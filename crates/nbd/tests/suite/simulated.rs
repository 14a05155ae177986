//! Client and server back to back in the simulator: the device contract, and connections that break
//! or stall at the places of a plan.

use block::conformance;
use block::conformance::BeginningGate;
use block::{
    Address, BoxDevice, Buf, Device, Env, Extent, Fua, Gate, Geometry, IoErrorKind, IoResult, Lba,
    Nanos, Sectors, SharedBuf, TargetId,
};
use nbd::client::{Client, Options};
use nbd::serve::{ExportOptions, NbdServer, ServerLimits};
use shard::{Config, Local, Mesh, Shard, ShardDisk};
use sim::{
    Direction, DiskSpec, FaultClass, FaultEffect, FaultPlan, FaultRule, LinkSpec, OpFilter,
    RunOutcome, SimDriver, SimHost, SimRng, SimWorld, StreamEffect, StreamRule, When,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MIB: u64 = 16;

fn address() -> Address {
    Address::Unix("/run/nbd".into())
}

/// Runs `client` on one shard against a server on another; returns the outcome.
fn back_to_back<F, W>(
    seed: u64,
    block: Sectors,
    plan: FaultPlan,
    client: W,
) -> (RunOutcome, SimHost)
where
    F: Future<Output = ()> + 'static,
    W: Fn(Local<SimDriver>, Env) -> F + 'static,
{
    let geometry = Geometry::new("disk", Sectors::from_mib(MIB), block);
    back_to_back_on(geometry, seed, plan, client)
}

/// Runs as [`back_to_back`] does, with a disk of this geometry.
fn back_to_back_on<F, W>(
    geometry: Geometry,
    seed: u64,
    plan: FaultPlan,
    client: W,
) -> (RunOutcome, SimHost)
where
    F: Future<Output = ()> + 'static,
    W: Fn(Local<SimDriver>, Env) -> F + 'static,
{
    let mut world = SimWorld::new(seed);
    let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
    let listener = world.listen(address(), LinkSpec::local()).unwrap();
    world.set_plan(plan).unwrap();
    let mut sim = SimHost::new(world);
    let mesh = Mesh::new(2);
    let client = Rc::new(client);
    let outcome = sim.drive(2, move |id, driver| {
        let client = client.clone();
        let serves = id.0 == 0;
        Shard::boot(
            id,
            driver,
            mesh.clone(),
            Config::default(),
            |local| async move {
                if !serves {
                    client(local.clone(), local.env()).await;
                    return shut_down(&local);
                }
                let limits = ServerLimits {
                    connections_max: 8,
                    memory_bytes_max: 16 << 20,
                    stall_timeout: Nanos::from_secs(5),
                    ..ServerLimits::default()
                };
                let server = NbdServer::new(local.env(), limits, None, Rc::new(|_| ())).unwrap();
                let gate = Gate::new(local.disk(disk).unwrap(), local.env());
                let gate = BeginningGate::new(gate, local.env());
                server.add("", gate, &ExportOptions::default()).unwrap();
                local.put(server.clone());
                server.serve(local.listener(listener)).await;
                server.shut_down(Nanos::from_secs(1)).await;
            },
        )
    });
    (outcome, sim)
}

#[test]
fn a_disk_of_4096_is_offered_as_one() {
    for native in [Sectors(1), Sectors(8)] {
        let offered = Rc::new(Cell::new(None));
        let found = offered.clone();
        let mut geometry = Geometry::new("disk", Sectors::from_mib(MIB), Sectors(8));
        geometry.native = native;
        let client = move |local: Local<SimDriver>, env: Env| {
            let found = found.clone();
            async move {
                let options = Options::new(address(), "");
                let client = Client::connect(env.clone(), local.connector(), options).await;
                let client = client.unwrap();
                found.set(Some((client.geometry().native, client.geometry().block)));
            }
        };
        let (outcome, _) = back_to_back_on(geometry, 1, FaultPlan::default(), client);
        assert_eq!(outcome, RunOutcome::Done);
        assert_eq!(offered.get(), Some((native, native)));
    }
}

/// Stops the server.
fn shut_down(local: &Local<SimDriver>) {
    local.mesh().post(block::ShardId(0), |local| {
        let Some(server) = local.get::<NbdServer<BeginningGate<Gate<ShardDisk<SimDriver>>>>>()
        else {
            return;
        };
        local.env().spawn.spawn(async move {
            server.shut_down(Nanos::from_secs(1)).await;
        });
    });
}

async fn connect(local: &Local<SimDriver>, env: &Env) -> Client {
    let mut options = Options::new(address(), "");
    // More than the connections that any plan here breaks.
    options.attempts_max = 40;
    Client::connect(env.clone(), local.connector(), options)
        .await
        .unwrap()
}

#[test]
fn a_client_is_a_device() {
    for seed in 0..6 {
        let block = Sectors(if seed % 2 == 0 { 1 } else { 8 });
        let (outcome, _) = back_to_back(
            seed,
            block,
            FaultPlan::default(),
            move |local, env| async move {
                let client = connect(&local, &env).await;
                conformance::device(&client, &env, seed).await;
            },
        );
        assert_eq!(outcome, RunOutcome::Done, "seed {seed}");
    }
}

/// A client that keeps its written data, and compares.
struct Checked {
    client: Client,
    env: Env,
    model: RefCell<Vec<u8>>,
}

impl Checked {
    async fn new(local: &Local<SimDriver>, env: &Env) -> Checked {
        Checked {
            client: connect(local, env).await,
            env: env.clone(),
            model: RefCell::new(vec![0; (MIB << 20) as usize]),
        }
    }

    fn data(&self, sectors: u64, fill: u8) -> SharedBuf {
        let mut buf: Buf = self.env.pool.try_get((sectors * 512) as usize).unwrap();
        buf.fill(fill);
        buf.share()
    }

    async fn write(&self, at: u64, sectors: u64, fill: u8) -> IoResult {
        let data = self.data(sectors, fill);
        self.client.write(Lba(at), data, Fua::No).await?;
        let range = (at * 512) as usize..((at + sectors) * 512) as usize;
        self.model.borrow_mut()[range].fill(fill);
        Ok(())
    }

    async fn verify(&self, at: u64, sectors: u64) -> IoResult {
        let buf = self.env.pool.try_get((sectors * 512) as usize).unwrap();
        let (buf, result) = self.client.read(Lba(at), buf).await;
        result?;
        let start = (at * 512) as usize;
        let model = self.model.borrow();
        assert!(
            buf[..] == model[start..start + buf.len()],
            "sectors {at}+{sectors} differ"
        );
        Ok(())
    }
}

fn streams(rules: impl IntoIterator<Item = StreamRule>) -> FaultPlan {
    FaultPlan {
        streams: rules.into_iter().collect(),
        ..FaultPlan::default()
    }
}

/// Connections that break at many places, in messages and between them: every request succeeds in
/// the end, and reads return the written data.
#[test]
fn connections_that_break_cost_time_alone() {
    let mut cuts = 0;
    for seed in 0..20 {
        let mut rng = SimRng::new(seed);
        let rules = (0..30).map(|connection| {
            let scale = rng.between(4, 17);
            StreamRule {
                connection: Some(connection),
                direction: match rng.between(0, 1) {
                    0 => Direction::ToListener,
                    _ => Direction::FromListener,
                },
                byte: 200 + rng.between(0, 1 << scale),
                effect: StreamEffect::Cut,
            }
        });
        let plan = streams(rules);
        let (outcome, sim) = back_to_back(seed, Sectors(1), plan, move |local, env| async move {
            let disk = Checked::new(&local, &env).await;
            let mut rng = SimRng::new(seed);
            for _ in 0..60 {
                let sectors = rng.between(1, 200);
                let at = rng.between(0, MIB * 2048 - 200);
                let result = match rng.between(0, 9) {
                    0..=4 => disk.write(at, sectors, rng.between(1, 255) as u8).await,
                    5..=8 => disk.verify(at, sectors).await,
                    _ => match disk.client.flush().await {
                        // Reported once after a loss.
                        Err(error) if error.kind() == IoErrorKind::Gone => Ok(()),
                        result => result,
                    },
                };
                if let Err(error) = result {
                    panic!("seed {seed}: {error}");
                }
            }
            for at in (0..MIB * 2048).step_by(2048) {
                disk.verify(at, 2048).await.unwrap();
            }
        });
        assert_eq!(outcome, RunOutcome::Done, "seed {seed}");
        cuts += sim.world().tally().count(FaultClass::StreamCut);
    }
    assert!(cuts > 100, "only {cuts} connections were cut");
}

/// A write acknowledged on a connection that is lost before the flush may be forgotten by a
/// restarted server. The flush must not claim the write.
#[test]
fn a_flush_never_claims_what_another_connection_acknowledged() {
    let cut = StreamRule {
        connection: Some(0),
        direction: Direction::ToListener,
        byte: 100_000,
        effect: StreamEffect::Cut,
    };
    let (outcome, sim) = back_to_back(1, Sectors(1), streams([cut]), |local, env| async move {
        let disk = Checked::new(&local, &env).await;
        disk.write(0, 8, 1).await.unwrap();
        disk.client.flush().await.unwrap();
        disk.write(8, 8, 2).await.unwrap();
        assert_eq!(disk.client.standing().losses(), 0);
        // This one meets the cut and is sent again.
        disk.write(1000, 400, 3).await.unwrap();
        assert_eq!(
            disk.client.standing().losses(),
            1,
            "it is known before a flush"
        );
        let error = disk.client.flush().await.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Gone);
        assert!(error.to_string().contains("may not be durable"), "{error}");
        disk.client.flush().await.unwrap();
        disk.verify(0, 2000).await.unwrap();
    });
    assert_eq!(outcome, RunOutcome::Done);
    assert_eq!(sim.world().tally().count(FaultClass::StreamCut), 1);
}

/// A durable write that was lost with its connection may still land, after a later one to the same
/// place. A caller that forbids that has the write fail.
#[test]
fn a_durable_write_is_not_asked_again_where_that_is_not_wanted() {
    for repeat in [false, true] {
        let cut = StreamRule {
            connection: Some(0),
            direction: Direction::ToListener,
            byte: 100_000,
            effect: StreamEffect::Cut,
        };
        let plan = streams([cut]);
        let (outcome, sim) = back_to_back(1, Sectors(1), plan, move |local, env| async move {
            let mut options = Options::new(address(), "");
            options.repeat_durable_writes = repeat;
            let client = Client::connect(env.clone(), local.connector(), options);
            let client = client.await.unwrap();
            let data = env.pool.try_get(200 << 10).unwrap().share();
            let written = client.write(Lba(0), data.clone(), Fua::Yes).await;
            match (repeat, written) {
                (true, written) => written.unwrap(),
                (false, written) => {
                    let error = written.unwrap_err();
                    assert_eq!(error.kind(), IoErrorKind::Gone);
                    assert!(error.to_string().contains("not asked again"), "{error}");
                }
            }
            client.write(Lba(0), data, Fua::Yes).await.unwrap();
        });
        assert_eq!(outcome, RunOutcome::Done);
        assert_eq!(sim.world().tally().count(FaultClass::StreamCut), 1);
    }
}

/// The server may be back with another disk: nothing is asked of the disk before it is recognised,
/// and nothing at all of another disk.
#[test]
fn nothing_is_asked_of_a_later_connection_before_it_is_recognised() {
    let cut = StreamRule {
        connection: Some(0),
        direction: Direction::ToListener,
        byte: 100_000,
        effect: StreamEffect::Cut,
    };
    let (outcome, _) = back_to_back(1, Sectors(1), streams([cut]), |local, env| async move {
        let looks = Rc::new(Cell::new(0));
        let mut options = Options::new(address(), "");
        let (seen, memory) = (looks.clone(), env.clone());
        options.recognise = Some(Rc::new(move |now: BoxDevice| {
            let (seen, memory) = (seen.clone(), memory.clone());
            Box::pin(async move {
                seen.set(seen.get() + 1);
                let (buf, read) = now.read(Lba(1000), memory.pool.take(4096)).await;
                read?;
                assert!(buf.iter().all(|byte| *byte == 0), "the write came before");
                Ok((seen.get() < 3).then(|| "it is another".to_owned()))
            })
        }));
        let client = Client::connect(env.clone(), local.connector(), options);
        let client = client.await.unwrap();
        let standing = client.standing();
        assert_eq!((standing.other(), standing.trouble()), (None, None));
        let mut data = env.pool.try_get(200 << 10).unwrap();
        data.fill(7);
        let data = data.share();
        let refused = client.write(Lba(1000), data.clone(), Fua::No).await;
        let error = refused.unwrap_err().to_string();
        let expected = "another export answers in its place (it is another)";
        assert!(error.contains(expected), "{error}");
        assert!(standing.other().is_some() && standing.trouble().is_some());
        while standing.trouble().is_some() {
            env.timer.sleep(Nanos::from_millis(50)).await;
        }
        assert_eq!((standing.other(), looks.get()), (None, 3));
        client.write(Lba(1000), data, Fua::No).await.unwrap();
    });
    assert_eq!(outcome, RunOutcome::Done);
}

/// Nothing was unflushed, so nothing can have been forgotten.
#[test]
fn a_loss_after_a_flush_is_not_reported() {
    let cut = StreamRule {
        connection: Some(0),
        direction: Direction::FromListener,
        byte: 20_000,
        effect: StreamEffect::Cut,
    };
    let (outcome, sim) = back_to_back(1, Sectors(1), streams([cut]), |local, env| async move {
        let disk = Checked::new(&local, &env).await;
        disk.write(0, 8, 1).await.unwrap();
        disk.client.flush().await.unwrap();
        disk.verify(0, 100).await.unwrap();
        disk.client.flush().await.unwrap();
    });
    assert_eq!(outcome, RunOutcome::Done);
    assert_eq!(sim.world().tally().count(FaultClass::StreamCut), 1);
}

/// A server that stalls counts as lost in bounded time.
#[test]
fn a_server_that_stalls_is_left() {
    let stall = StreamRule {
        connection: Some(0),
        direction: Direction::FromListener,
        byte: 20_000,
        effect: StreamEffect::Stall(None),
    };
    let (outcome, sim) = back_to_back(1, Sectors(1), streams([stall]), |local, env| async move {
        let disk = Checked::new(&local, &env).await;
        let begun = env.timer.now();
        disk.verify(0, 100).await.unwrap();
        let waited = env.timer.now().since(begun);
        assert!(waited >= Nanos::from_secs(15), "{waited}");
        assert!(waited <= Nanos::from_secs(31), "{waited}");
    });
    assert_eq!(outcome, RunOutcome::Done);
    assert_eq!(sim.world().tally().count(FaultClass::StreamStalled), 1);
}

/// A write that takes too long has no waiter any more. After a successful flush it can no longer
/// undo a later write to its place.
#[test]
fn a_flush_waits_for_writes_that_were_given_up() {
    let slow = FaultRule {
        disk: TargetId(0),
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(64), Sectors(8))),
        when: When::Nth(1),
        effect: FaultEffect::Delay(Nanos::from_secs(3)),
    };
    let plan = FaultPlan::of(vec![slow]);
    let (outcome, sim) = back_to_back(1, Sectors(1), plan, |local, env| async move {
        let disk = Checked::new(&local, &env).await;
        let begun = env.timer.now();
        let late = disk.write(64, 8, 1);
        let late = env.timer.timeout(Nanos::from_millis(100), late).await;
        assert!(late.is_none(), "it was not slow");
        disk.client.flush().await.unwrap();
        let waited = env.timer.now().since(begun);
        assert!(waited >= Nanos::from_secs(3), "{waited}");
        disk.write(64, 8, 2).await.unwrap();
        disk.verify(64, 8).await.unwrap();
    });
    assert_eq!(outcome, RunOutcome::Done);
    assert_eq!(sim.world().overlaps(TargetId(0)), 0);
}

/// A server that is gone for good: one clear error in bounded time, and later
/// requests fail at once.
#[test]
fn a_server_that_is_gone_fails_requests_in_bounded_time() {
    let (outcome, _) = back_to_back(
        1,
        Sectors(1),
        FaultPlan::default(),
        |local, env| async move {
            let disk = Checked::new(&local, &env).await;
            disk.verify(0, 8).await.unwrap();
            shut_down(&local);
            env.timer.sleep(Nanos::from_secs(1)).await;
            let begun = env.timer.now();
            let error = disk.verify(0, 8).await.unwrap_err();
            let waited = env.timer.now().since(begun);
            assert_eq!(error.kind(), IoErrorKind::Gone, "{error}");
            let said = error.to_string();
            assert!(said.contains("has not been reached for 30 s"), "{said}");
            assert!(waited >= Nanos::from_secs(30), "{waited}");
            assert!(waited <= Nanos::from_secs(60), "{waited}");
            let begun = env.timer.now();
            disk.verify(0, 8).await.unwrap_err();
            assert!(env.timer.now().since(begun) < Nanos::from_millis(1));
        },
    );
    assert_eq!(outcome, RunOutcome::Done);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let (_, sim) = back_to_back(
            9,
            Sectors(1),
            FaultPlan::default(),
            |local, env| async move {
                let disk = Checked::new(&local, &env).await;
                for at in 0..50 {
                    disk.write(at * 100, 100, at as u8 + 1).await.unwrap();
                    disk.verify(at * 50, 80).await.unwrap();
                }
            },
        );
        sim.world().trace_hash()
    };
    assert_eq!(run(), run());
}
