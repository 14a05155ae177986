//! A device that lost acknowledged writes reports that once; every client has to get the report,
//! whichever shard serves it.

use block::{
    Address, Boundary, Device, Fua, Gate, Geometry, IoError, IoErrorKind, IoResult, Layer, Lba,
    Nanos, Sectors, ShardId, Signal, TargetId,
};
use nbd::client::{Client, Options};
use nbd::serve::{ExportClients, ExportOptions, NbdServer, ServerLimits};
use shard::{
    Config, GateAsker, GateEnd, GatePass, GateTable, Local, Mesh, RemoteGate, Shard, ShardDisk,
    lane,
};
use sim::{DiskSpec, LinkSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The shard of the device, and another that serves it.
const HOME: ShardId = ShardId(0);
const FURTHER: ShardId = ShardId(1);

/// A disk of which one flush fails.
struct Loses {
    disk: ShardDisk<SimDriver>,
    lost: Rc<Cell<bool>>,
}

impl Layer for Loses {
    type Below = ShardDisk<SimDriver>;

    fn below(&self) -> &ShardDisk<SimDriver> {
        &self.disk
    }

    async fn flush(&self) -> IoResult {
        if self.lost.take() {
            return Err(IoError::new(IoErrorKind::Media, "writes were lost"));
        }
        self.disk.flush().await
    }
}

/// The address of the server of each shard.
fn address(shard: u32) -> Address {
    Address::Unix(format!("/run/nbd{shard}").into())
}

/// Clients of one export, and the switch that makes its device lose writes.
struct Clients {
    local: Local<SimDriver>,
    lost: Rc<Cell<bool>>,
    came: Cell<u32>,
}

impl Clients {
    /// A client of the home shard, then one of the other, and so on.
    async fn connect(&self) -> Client {
        let shard = self.came.replace(self.came.get() + 1) % 2;
        let options = Options::new(address(shard), "");
        let client = Client::connect(self.local.env(), self.local.connector(), options);
        client.await.unwrap()
    }

    async fn write(&self, client: &Client) {
        let mut buf = self.local.env().pool.get(4096).await;
        buf.fill(1);
        client.write(Lba(0), buf.share(), Fua::No).await.unwrap();
    }

    /// Lets a client that is dropped say farewell.
    async fn leave(&self, client: Client) {
        drop(client);
        let pause = block::Nanos::from_secs(1);
        self.local.env().timer.sleep(pause).await;
    }
}

fn serve<G: Boundary>(
    local: &Local<SimDriver>,
    gate: G,
    clients: Option<ExportClients>,
    listener: TargetId,
) -> Rc<NbdServer<G>> {
    let limits = ServerLimits {
        connections_max: 8,
        memory_bytes_max: 16 << 20,
        ..ServerLimits::default()
    };
    let server = NbdServer::new(local.env(), limits, None, Rc::new(|_| ())).unwrap();
    let options = ExportOptions::default();
    match clients {
        Some(clients) => server.add_beside("", gate, &options, clients).unwrap(),
        None => server.add("", gate, &options).unwrap(),
    }
    let (serving, listener) = (server.clone(), local.listener(listener));
    let serves = async move { serving.serve(listener).await };
    local.env().spawn.spawn(serves);
    server
}

/// The further shard's way to the gate, and its end.
struct Further {
    way: Cell<Option<(GateEnd, GatePass, ExportClients)>>,
    is_over: Cell<bool>,
    signal: Signal,
}

async fn further(local: Local<SimDriver>, listener: TargetId) {
    let its = local.get::<Further>().unwrap();
    let (end, pass, clients) = its.signal.until_some(|| its.way.take()).await;
    let gate = RemoteGate::new(GateAsker::begin(end, &local), pass);
    let server = serve(&local, gate, Some(clients), listener);
    its.signal.until(|| its.is_over.get()).await;
    server.shut_down(Nanos::from_secs(1)).await;
}

async fn home<F: Future<Output = ()>>(
    local: Local<SimDriver>,
    disk: TargetId,
    listener: TargetId,
    test: impl FnOnce(Clients) -> F,
) {
    let lost = Rc::<Cell<bool>>::default();
    let device = Loses {
        disk: local.disk(disk).unwrap(),
        lost: lost.clone(),
    };
    let gate = Gate::new(device, local.env());
    let table = Rc::new(GateTable::default());
    let (end, served) = lane();
    let pass = table.add(gate.clone());
    local.env().spawn.spawn(table.serve(served, local.env()));
    let server = serve(&local, gate, None, listener);
    let clients = server.clients("").unwrap();
    let mesh = local.mesh().clone();
    mesh.post(FURTHER, move |local| {
        let its = local.get::<Further>().unwrap();
        its.way.set(Some((end, pass, clients)));
        its.signal.notify();
    });
    test(Clients {
        local: local.clone(),
        lost,
        came: Cell::new(0),
    })
    .await;
    mesh.post(FURTHER, |local| {
        let its = local.get::<Further>().unwrap();
        its.is_over.set(true);
        its.signal.notify();
    });
    server.shut_down(Nanos::from_secs(1)).await;
}

fn run<F>(test: impl FnOnce(Clients) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let mut world = SimWorld::new(1);
    let geometry = Geometry::new("disk", Sectors::from_mib(1), Sectors(1));
    let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
    let listeners = [0, 1].map(|n| world.listen(address(n), LinkSpec::local()).unwrap());
    let (mesh, test) = (Mesh::new(2), Rc::new(RefCell::new(Some(test))));
    let outcome = SimHost::new(world).drive(2, move |id, driver| {
        let test = test.clone();
        Shard::boot(id, driver, mesh.clone(), Config::default(), move |local| {
            local.put(Rc::new(Further {
                way: Cell::default(),
                is_over: Cell::default(),
                signal: Signal::default(),
            }));
            async move {
                match id {
                    HOME => {
                        let test = test.take().expect("one home");
                        home(local, disk, listeners[0], test).await;
                    }
                    _ => further(local, listeners[1]).await,
                }
            }
        })
    });
    assert_eq!(outcome, RunOutcome::Done);
}

#[test]
fn each_client_of_an_export_hears_of_a_loss_once() {
    run(|clients| async move {
        let (a, b) = (clients.connect().await, clients.connect().await);
        for client in [&a, &b] {
            clients.write(client).await;
        }
        clients.lost.set(true);
        for client in [&a, &b] {
            let error = client.flush().await.unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::Media, "{error}");
            client.flush().await.unwrap();
        }
        clients.connect().await.flush().await.unwrap();
    });
}

#[test]
fn a_client_that_comes_back_hears_of_a_loss_met_while_it_was_away() {
    run(|clients| async move {
        let (a, b) = (clients.connect().await, clients.connect().await);
        clients.write(&a).await;
        clients.leave(a).await;
        clients.lost.set(true);
        b.flush().await.unwrap_err();
        let back = clients.connect().await;
        back.flush().await.unwrap_err();
        back.flush().await.unwrap();
        b.flush().await.unwrap();
    });
}
