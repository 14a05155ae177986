//! Places of a scheme that only tests have, on a platform that has nothing else.

use crate::event::Event;
use crate::place::{self, Role};
use crate::platform::{LogWitness, Platform, Process, Remembered};
use block::{BoxDevice, Device as _, Fua, Geometry, IoError, IoResult, Kind, Lba, Nanos, Sectors};
use control::address::NbdUri;
use control::config::{self, Name};
use control::place::Place;
use origin::Identity;
use shard::{Config, Disk, Local, Mesh, Shard};
use sim::{DiskSpec, Outcome, Sim, SimDriver, World};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

/// A shard, and no files.
#[derive(Clone)]
struct Bare(Local<SimDriver>);

fn none<T>() -> IoResult<T> {
    Err(IoError::new(Kind::Unsupported, "no files are here"))
}

impl Platform for Bare {
    type Driver = SimDriver;
    type Hold = ();

    fn local(&self) -> &Local<SimDriver> {
        &self.0
    }

    async fn open_disk(&self, _: &config::Device, _: &Path) -> IoResult<(Disk<SimDriver>, ())> {
        none()
    }

    fn claim_export(&self, _: &NbdUri) -> IoResult {
        none()
    }

    fn read_certificates(&self, _: &Path) -> IoResult<Vec<u8>> {
        none()
    }

    async fn configuration(&self) -> Result<config::Config, String> {
        Err("no files are here".into())
    }

    async fn witness(&self, _: &Name) -> IoResult<(BoxDevice, ())> {
        none()
    }

    async fn other_pools(&self, _: &[&str]) -> IoResult<Vec<Remembered>> {
        none()
    }

    async fn log_witness(&self, _: &Name) -> IoResult<(BoxDevice, ())> {
        none()
    }

    async fn logs(&self) -> IoResult<Vec<LogWitness>> {
        none()
    }

    async fn identity(&self, place: &str) -> Identity {
        Identity::new(place)
    }

    async fn place(&self, device: &config::Device) -> Place {
        Place::said(device)
    }

    fn host(&self) -> String {
        "test".into()
    }

    fn time_of_day(&self) -> u64 {
        1
    }

    fn clock(&self) -> Nanos {
        Nanos::from_secs(1)
    }

    fn uuid(&self) -> u128 {
        1
    }

    fn process(&self) -> Process {
        Process::default()
    }

    fn event(&self, _: Event) {}
}

#[test]
fn a_scheme_that_is_in_the_table_opens_its_places_and_no_others() {
    let mut world = World::new(1);
    let geometry = Geometry::new("disk", Sectors::from_mib(1), Sectors(1));
    let target = world.add_disk(DiskSpec::new(geometry)).unwrap();
    let ended = Rc::new(Cell::new(false));
    let seen = ended.clone();
    let outcome = Sim::new(world).drive(1, move |id, driver| {
        let (ended, mesh) = (ended.clone(), Mesh::new(1));
        Shard::boot(id, driver, mesh, Config::default(), async move |local| {
            let platform = Bare(local);
            let device = |place: String| {
                config::Device::parse(&format!("name = \"a\"\npath = \"{place}\"")).unwrap()
            };
            let ours = device(format!("/target/{}", target.0));
            let opened = place::open(&platform, &ours, Role::Origin).await.unwrap();
            assert_eq!(opened.place, format!("/target/{}", target.0));
            let pool = platform.local().env().pool;
            let mut buf = pool.take(4096);
            buf.fill(7);
            let leaf = &opened.leaf;
            leaf.write(Lba(8), buf.share(), Fua::Yes).await.unwrap();
            let (buf, read) = leaf.read(Lba(8), pool.take(4096)).await;
            assert!(read.is_ok() && buf.iter().all(|byte| *byte == 7));
            let other = device("/dev/disk".into());
            let refused = place::open(&platform, &other, Role::Origin).await;
            assert_eq!(refused.err().unwrap().kind(), Kind::Unsupported);
            ended.set(true);
        })
    });
    assert!(outcome == Outcome::Done && seen.get(), "{outcome:?}");
}
