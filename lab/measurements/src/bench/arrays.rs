//! Cost that an array adds to a request: 4 KiB on members that complete at once.

use super::nop::{Nop, drive, instructions};
use super::{BenchRow, Goal, alone};
use block::{BoxDevice, Device, Env, Fua, Lba, Sectors, TargetId};
use raid::{Array, ArrayPlan, Level, MemberCandidate, Options, Uuid, create};
use shard::Local;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// The chunk of striped levels.
pub(super) const CHUNK: Sectors = Sectors(128);
/// Number of blocks that the requests stay inside; their regions are soon all marked.
const BLOCKS: u64 = 16384;

/// Creates an array of `level` over members, which are overwritten.
pub(super) async fn over(env: &Env, level: Level, members: Vec<BoxDevice>) -> Array {
    let candidate = |device| MemberCandidate::new(device, "controller");
    let plan = ArrayPlan {
        name: "array".into(),
        level,
        chunk: CHUNK,
        overwrite: true,
        zeroed: false,
    };
    let mut last = 0;
    let mut fresh = || {
        last += 1;
        Uuid::from_bytes([last; 16])
    };
    let members = members.into_iter().map(candidate).collect();
    let options = Options::default();
    let array = create(env, &plan, members, Vec::new(), &mut fresh, options).await;
    array.expect("the members can be written")
}

async fn array(local: &Local<Nop>, level: Level, members: u32) -> Array {
    let disk = |target| local.disk(TargetId(target)).expect("nop is a disk");
    let members = (0..members).map(|target| BoxDevice::new(disk(target)));
    over(&local.env(), level, members.collect()).await
}

/// Performs `ops` requests, one at a time, on an array of `members`, or with
/// none on a disk by itself.
pub fn requests(ops: u64, members: Option<(Level, u32)>, write: bool) {
    drive(move |local| async move {
        let device = match members {
            Some((level, members)) => BoxDevice::new(array(&local, level, members).await),
            None => BoxDevice::new(local.disk(TargetId(0)).expect("nop is a disk")),
        };
        let device = Rc::new(device);
        let mut buf = local.env().pool.get(4096).await;
        let data = local.env().pool.get(4096).await.share();
        for i in 0..ops {
            let at = Lba(i * 4099 % BLOCKS * 8);
            let result;
            if write {
                result = device.write(at, data.clone(), Fua::No).await;
            } else {
                (buf, result) = device.read(at, buf).await;
            }
            result.expect("nop never fails");
        }
    });
}

/// Instructions of a request beyond those of its members' operations; `arrays`
/// is the program of that name.
pub fn rows(arrays: &Path) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for verb in ["read", "write"] {
        let disk = instructions(arrays, &["disk", verb])?;
        for (level, members) in [("raid0", 2), ("raid1", 2), ("raid10", 4), ("raid5", 4)] {
            let below = match (level, verb) {
                (_, "read") | ("raid0", _) => 1.0,
                ("raid5", _) => continue,
                _ => 2.0,
            };
            let all = instructions(arrays, &[level, verb, &members.to_string()])?;
            rows.push(alone(
                format!("{level}: instructions that it adds to a 4 KiB {verb}"),
                "instructions",
                Some(Goal::AtMost(300.0)),
                &[all - below * disk],
            ));
        }
    }
    Ok(rows)
}
