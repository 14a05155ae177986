//! A sample of a new level, in tests: chunks in turn, each on three neighbouring members.
//! This file and its line in `level.rs` are all that it takes.

use super::{Layout, MEMBERS_MAX, Piece, Redundancy, Room, near};
use block::{Extent, Lba, Sectors};

const COPIES: u64 = 3;

pub(super) struct Triple;

impl Layout for Triple {
    fn name(&self) -> &'static str {
        "triple"
    }

    fn code(&self) -> u8 {
        200
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::Copies
    }

    fn is_striped(&self) -> bool {
        true
    }

    fn members(&self) -> (usize, usize) {
        (3, MEMBERS_MAX)
    }

    fn sectors(&self, room: &Room) -> Sectors {
        near::sectors(COPIES, room)
    }

    fn width(&self, room: &Room) -> Sectors {
        Sectors(room.chunk.0 * room.members() as u64)
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        near::first_piece(COPIES, room, extent)
    }

    fn sector_at(&self, room: &Room, role: usize, at: Lba) -> Option<Lba> {
        near::sector_at(COPIES, room, role, at)
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        near::can_run(COPIES, members, present)
    }
}

/// Arrays of it are made, written, lose two of five members, are assembled again and filled.
#[test]
fn an_array_of_the_sample_lives_as_any_other() {
    use crate::{Candidate, Level, Options, Plan, Start, Uuid, assemble, create};
    use block::{BoxDevice, Device as _, Fua, Geometry, ShardId};
    use shard::{Config, Mesh, Shard};
    use sim::{DiskSpec, Outcome, Sim, World};
    use std::{cell::Cell, rc::Rc};

    let mut world = World::new(1);
    let disks = [0, 1, 2, 3, 4].map(|n| {
        let geometry = Geometry::new(format!("disk-{n}"), Sectors::from_mib(8), Sectors(1));
        world.add_disk(DiskSpec::new(geometry)).unwrap()
    });
    let ended = Rc::new(Cell::new(false));
    let seen = ended.clone();
    let outcome = Sim::new(world).drive(1, move |_, driver| {
        let (ended, mesh, config) = (ended.clone(), Mesh::new(1), Config::default());
        Shard::boot(ShardId(0), driver, mesh, config, async move |local| {
            let (env, mut names) = (local.env(), 0);
            let mut fresh = || {
                names += 1;
                Uuid::from_bytes([names; 16])
            };
            let some = |numbers: &[usize]| {
                let candidate = |n: &usize| {
                    let device = BoxDevice::new(local.disk(disks[*n]).unwrap());
                    Candidate::new(device, format!("c{n}"))
                };
                numbers.iter().map(candidate).collect::<Vec<_>>()
            };
            let plan = Plan {
                name: "array".into(),
                level: Level::Triple,
                chunk: Sectors(8),
                overwrite: false,
                zeroed: true,
            };
            let (all, options) = (some(&[0, 1, 2, 3, 4]), Options::default());
            let made = create(&env, &plan, all, Vec::new(), &mut fresh, options.clone());
            let array = made.await.unwrap();
            let mut buf = env.pool.take(1 << 20);
            buf.iter_mut()
                .zip(0_u64..)
                .for_each(|(b, i)| *b = (i / 512) as u8);
            let data = buf.share();
            array
                .write(Lba::ZERO, data.clone(), Fua::Yes)
                .await
                .unwrap();
            array.fail(1).await.unwrap();
            array.fail(2).await.unwrap();
            let (buf, read) = array.read(Lba::ZERO, env.pool.take(1 << 20)).await;
            assert!(read.is_ok() && buf[..] == data[..]);
            array.close().await.unwrap();
            drop((array, buf));
            let (left, start) = (some(&[0, 3, 4]), Start::default());
            let again = assemble(&env, Some("array"), fresh(), left, start, options.clone());
            let array = again.await.unwrap();
            assert_eq!(array.report().level, Level::Triple);
            let (buf, read) = array.read(Lba::ZERO, env.pool.take(1 << 20)).await;
            assert!(read.is_ok() && buf[..] == data[..]);
            ended.set(true);
        })
    });
    assert!(outcome == Outcome::Done && seen.get(), "{outcome:?}");
}
