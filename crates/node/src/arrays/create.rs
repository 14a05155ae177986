//! Making arrays, and the protection of used devices against that.

use super::{Lease, OpenDevices, StartAttempt, release_all};
use crate::place::RawRole;
use crate::platform::Platform;
use block::{BoxDevice, Device as _, Env, IoError, IoErrorKind, IoResult, Lba, Sectors};
use control::config::{self, Name};
use raid::{Array, ArrayPlan, Uuid};
use std::sync::Arc;

/// Bytes at the start of a device that are read to find data.
const PROBE_BYTES: usize = 1 << 20;

/// The content of the devices before an array is made of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// The devices must be blank; any other is refused.
    Blank,
    /// The content of the devices may be lost.
    Used,
    /// The devices read as zeroes all over, as new images do, and need no zeroing.
    Zeroes,
}

impl<P: Platform> OpenDevices<P> {
    /// Makes an array. The content of its members is lost.
    pub async fn create(&self, array: &config::Array, before: Before) -> IoResult<Lease<P>> {
        if array.raw.value {
            let what = "a raw array has nothing to be made; it is used as it is";
            return Err(IoError::new(IoErrorKind::Invalid, what).on(array.name.to_string()));
        }
        let reserved = self.reserve(&array.name.value, RawRole::Origin)?;
        let mut attempt = StartAttempt::default();
        let members = self.members(array, &mut attempt).await;
        self.report(attempt.events);
        let made = match attempt.absent.first() {
            Some(absent) => {
                let what = format!("a member is missing: {absent}");
                Err(IoError::new(IoErrorKind::Gone, what).on(array.name.to_string()))
            }
            None => self.make(array, &members, before).await,
        };
        match made {
            Ok(made) => {
                let opened = self.run(array, RawRole::Origin, members, &[], made);
                Ok(Lease::new(reserved, opened))
            }
            Err(error) => {
                release_all(members).await;
                Err(error)
            }
        }
    }

    async fn make(
        &self,
        array: &config::Array,
        members: &[Lease<P>],
        before: Before,
    ) -> IoResult<Array> {
        let env = self.env();
        let plan = ArrayPlan {
            name: array.name.to_string(),
            level: array.level.value,
            chunk: Sectors(array.chunk.value.0 / block::SECTOR_BYTES),
            overwrite: before != Before::Blank,
            zeroed: before == Before::Zeroes,
        };
        let mut all = Vec::new();
        for member in members {
            let candidate = self.candidate(member.name(), member);
            if before == Before::Blank {
                refuse_used(&env, member.name(), &candidate.device).await?;
            }
            all.push(candidate);
        }
        let spares = all.split_off(array.members.value.len());
        let domains: Vec<Arc<str>> = all.iter().map(|c| c.domain.clone()).collect();
        let order = raid::order(array.level.value, &domains);
        let all = order.into_iter().map(|at| all[at].clone()).collect();
        let mut fresh = || self.fresh();
        raid::create(&env, &plan, all, spares, &mut fresh, self.options(array)).await
    }

    /// A new UUID.
    pub(super) fn fresh(&self) -> Uuid {
        Uuid::from_bytes(self.platform.uuid().to_le_bytes())
    }
}

/// Refuses a device that holds data or a superblock, which would be lost.
pub(super) async fn refuse_used(env: &Env, name: &Name, device: &BoxDevice) -> IoResult {
    let refused = |what: String| Err(IoError::new(IoErrorKind::Invalid, what).on(name.to_string()));
    if let Some(found) = raid::examine(env, device).await? {
        return refused(format!(
            "belongs to array {}; give --yes to lose that",
            found.name
        ));
    }
    let len = device.geometry().sectors.bytes().min(PROBE_BYTES as u64) as usize;
    let buf = env.pool.get(len).await;
    let (buf, result) = device.read(Lba::ZERO, buf).await;
    result?;
    if buf.iter().any(|byte| *byte != 0) {
        return refused("holds data; give --yes to lose that".into());
    }
    Ok(())
}
