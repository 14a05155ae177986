//! A device that lost acknowledged writes reports that once; every client has to get the report.

use block::{
    Address, Device, Fua, Gate, Geometry, IoError, IoErrorKind, IoResult, Layer, Lba, Sectors,
};
use nbd::client::{Client, Options};
use nbd::serve::{ExportOptions, NbdServer, ServerLimits};
use shard::{Local, ShardDisk};
use sim::{DiskSpec, LinkSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::run_alone;
use std::cell::Cell;
use std::rc::Rc;

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

fn address() -> Address {
    Address::Unix("/run/nbd".into())
}

/// Clients of one export, and the switch that makes its device lose writes.
struct Clients {
    local: Local<SimDriver>,
    lost: Rc<Cell<bool>>,
}

impl Clients {
    async fn connect(&self) -> Client {
        let options = Options::new(address(), "");
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

fn run<F>(test: impl FnOnce(Clients) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let mut world = SimWorld::new(1);
    let geometry = Geometry::new("disk", Sectors::from_mib(1), Sectors(1));
    let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
    let listener = world.listen(address(), LinkSpec::local()).unwrap();
    let serve = move |local: Local<SimDriver>| async move {
        let limits = ServerLimits {
            connections_max: 8,
            memory_bytes_max: 16 << 20,
            ..ServerLimits::default()
        };
        let server = NbdServer::new(local.env(), limits, None, Rc::new(|_| ())).unwrap();
        let lost = Rc::<Cell<bool>>::default();
        let device = Loses {
            disk: local.disk(disk).unwrap(),
            lost: lost.clone(),
        };
        let gate = Gate::new(device, local.env());
        server.add("", gate, &ExportOptions::default()).unwrap();
        let (serving, listener) = (server.clone(), local.listener(listener));
        local.env().spawn.spawn(async move {
            serving.serve(listener).await;
        });
        test(Clients { local, lost }).await;
        server.shut_down(block::Nanos::from_secs(1)).await;
    };
    let (outcome, _) = run_alone(&mut SimHost::new(world), serve);
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
