//! Clients that use all the memory that they may: half of it.

use crate::common::{Bench, drive, options, plan, refused};
use block::{BoxDevice, Device, Extent, Geometry, Lba, Nanos, Sectors};
use futures_util::future::join_all;
use raid::{Array, ArrayPlan, Level, MemberCandidate, Options, create};
use sim::{DiskSpec, SimHost, SimWorld};

const MIB: u64 = 2048;

/// State of a member.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Sound,
    Missing,
    Hangs,
}

/// Arrays of `members` devices each; an array of more than one depth has arrays for members, but
/// for its last.
#[derive(Clone, Copy, Debug)]
struct Tree {
    level: Level,
    members: usize,
    chunk: u64,
    over: Option<&'static Tree>,
}

const WIDE: Tree = Tree {
    level: Level::Raid5,
    members: 3,
    chunk: 2048,
    over: None,
};
const MIRROR: Tree = Tree {
    level: Level::Raid1,
    members: 2,
    ..WIDE
};

impl Tree {
    fn disks(&self) -> usize {
        let below = self.over.map_or(1, Tree::disks);
        (self.members - 1) * below + 1
    }

    async fn make(&self, bench: &Bench, disks: &[usize], options: &Options) -> Array {
        let below = self.over.map_or(1, Tree::disks);
        let mut members = Vec::new();
        for disks in disks.chunks(below) {
            members.push(match self.over.filter(|_| disks.len() == below) {
                None => bench.candidate(disks[0]),
                Some(tree) => {
                    let array = Box::pin(tree.make(bench, disks, options)).await;
                    MemberCandidate::new(BoxDevice::new(array), format!("c{}", disks[0]))
                }
            });
        }
        let plan = ArrayPlan {
            name: format!("array{}", disks[0]),
            chunk: Sectors(self.chunk),
            zeroed: true,
            ..plan(self.level)
        };
        let mut fresh = || bench.uuid();
        create(
            &bench.env,
            &plan,
            members,
            vec![],
            &mut fresh,
            options.clone(),
        )
        .await
        .unwrap()
    }
}

/// Runs as many requests of `sectors` at once as fit half of `memory`, one each `step` sectors:
/// writes, then reads, then zeroes.
fn load(memory: usize, tree: &'static Tree, fate: Fate, (sectors, step): (u64, u64)) {
    let mut world = SimWorld::new(1);
    let disks: Vec<_> = (0..tree.disks())
        .map(|i| {
            let geometry = Geometry::new(format!("disk-{i}"), Sectors::from_mib(160), Sectors(1));
            world.add_disk(DiskSpec::new(geometry)).unwrap()
        })
        .collect();
    let hung = disks[0];
    let mut sim = SimHost::new(world).pool_bytes(memory);
    drive(&mut sim, &disks, async move |bench| {
        let timeout = Some(Nanos::from_secs(1));
        let options = Options {
            timeout,
            ..options()
        };
        let all: Vec<usize> = (0..tree.disks()).collect();
        let array = tree.make(&bench, &all, &options).await;
        match fate {
            Fate::Sound => {}
            Fate::Missing => array.fail(0).await.unwrap(),
            Fate::Hangs => bench.control.hang(hung),
        }
        let pool = &bench.env.pool;
        let bytes = sectors as usize * 512;
        let most = array.geometry().sectors.0 / step - 1;
        let clients = most.min((memory / 2 / bytes.next_power_of_two()) as u64);
        let at = |client: u64| client * step + 8;
        let name = format!("{tree:?} {fate:?} {clients} x {sectors}");
        let soon = Nanos::from_secs(600);
        let writes = join_all((0..clients).map(|c| bench.write(&array, at(c), sectors, c as u8)));
        let done = bench.env.timer.timeout(soon, writes).await;
        let done = done.unwrap_or_else(|| panic!("writes hang: {name}"));
        assert!(done.into_iter().all(|written| written.is_ok()), "{name}");
        let reads = join_all((0..clients).map(|c| bench.read(&array, at(c), sectors)));
        let done = bench.env.timer.timeout(soon, reads).await;
        let done = done.unwrap_or_else(|| panic!("reads hang: {name}"));
        for (client, data) in done.into_iter().enumerate() {
            assert!(
                data.unwrap().iter().all(|byte| *byte == client as u8),
                "{name}"
            );
        }
        let held: Vec<_> = join_all((0..clients).map(|_| pool.get(bytes))).await;
        let array = &array;
        let zeroes = (0..clients).map(|c| async move {
            let extent = Extent::new(Lba(at(c)), Sectors(sectors));
            array.zero(extent).await
        });
        let done = bench.env.timer.timeout(soon, join_all(zeroes)).await;
        let done = done.unwrap_or_else(|| panic!("zeroes hang: {name}"));
        assert!(done.into_iter().all(|zeroed| zeroed.is_ok()), "{name}");
        drop(held);
        assert!(bench.holds(array, at(0), sectors, 0).await);
        // Only the buffers that a device keeps may exceed the memory.
        let kept = pool.total_bytes() - pool.free_bytes() + pool.beside_bytes();
        assert_eq!(kept > 0, fate == Fate::Hangs, "{kept} bytes kept: {name}");
        let over = pool.over_bytes_max();
        assert!(over <= kept, "{over} bytes over, {kept} kept: {name}");
    });
}

#[test]
fn stripes_of_any_chunk_end_with_all_that_clients_may_use() {
    const NARROW: Tree = Tree {
        members: 5,
        chunk: 128,
        ..WIDE
    };
    const MANY: Tree = Tree {
        members: 7,
        chunk: 1024,
        ..WIDE
    };
    for fate in [Fate::Sound, Fate::Missing, Fate::Hangs] {
        load(32 << 20, &WIDE, fate, (3072, 4096));
        load(64 << 20, &WIDE, fate, (3072, 4096));
        load(64 << 20, &WIDE, fate, (4096, 4096));
        load(32 << 20, &NARROW, fate, (384, 512));
        load(32 << 20, &NARROW, fate, (8, 16));
        load(64 << 20, &MANY, fate, (3960, 6144));
    }
}

#[test]
fn arrays_of_arrays_end_with_all_that_clients_may_use() {
    const MIRROR_OF_STRIPES: Tree = Tree {
        over: Some(&WIDE),
        ..MIRROR
    };
    const STRIPES_OF_MIRRORS: Tree = Tree {
        over: Some(&MIRROR),
        ..WIDE
    };
    const STRIPES_OF_STRIPES: Tree = Tree {
        over: Some(&WIDE),
        ..WIDE
    };
    for fate in [Fate::Sound, Fate::Missing, Fate::Hangs] {
        load(64 << 20, &MIRROR_OF_STRIPES, fate, (3072, 4096));
        load(64 << 20, &STRIPES_OF_MIRRORS, fate, (3072, 4096));
        load(96 << 20, &STRIPES_OF_STRIPES, fate, (3072, 4096));
        load(96 << 20, &STRIPES_OF_STRIPES, fate, (128, MIB / 4));
    }
}

#[test]
fn memory_too_small_for_the_stripes_is_refused_with_what_it_takes() {
    for (memory, fits) in [(24u64, true), (20, false)] {
        let mut world = SimWorld::new(1);
        let disks: Vec<_> = (0..3)
            .map(|i| {
                let name = format!("disk-{i}");
                let geometry = Geometry::new(name, Sectors::from_mib(64), Sectors(1));
                world.add_disk(DiskSpec::new(geometry)).unwrap()
            })
            .collect();
        let mut sim = SimHost::new(world).pool_bytes((memory << 20) as usize);
        drive(&mut sim, &disks, async move |bench| {
            let plan = ArrayPlan {
                chunk: Sectors(2048),
                ..plan(Level::Raid5)
            };
            let made = bench.make(&plan, &[0, 1, 2], &[]).await;
            if fits {
                made.unwrap();
                return;
            }
            let message = refused(made);
            assert!(
                message.contains("raise `buffers` of `[daemon]` to 24 MiB"),
                "{message}"
            );
        });
    }
}
