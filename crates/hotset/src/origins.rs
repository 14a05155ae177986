//! Origins that are not trusted blindly: whether each still is what it was, and
//! keeping the record of it true.

use crate::devices::{Leaf, Opened};
use crate::memory;
use block::{Env, IoResult, Sectors};
use cache::Cache;
use control::config::{Bytes, Name};
use origin::{Guarded, Identity, Keep, Reason, Record, Verdict, again, judge, take};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// An origin that is guarded while its volume is served; clones are the same.
#[derive(Clone)]
pub struct Origin {
    device: Guarded<Leaf>,
    identity: Identity,
    seed: u64,
}

/// Who is behind `place`, a path or a URI: for a file its file system and inode,
/// for a block device its serial number where it tells one.
fn identity(place: &str) -> Identity {
    let Ok(file) = std::fs::metadata(place) else {
        return Identity::new(place);
    };
    if !file.file_type().is_block_device() {
        return Identity::new(&format!("file {} of {}", file.ino(), file.dev()));
    }
    let (major, minor) = (libc::major(file.rdev()), libc::minor(file.rdev()));
    let about = format!("/sys/dev/block/{major}:{minor}");
    let tells = ["wwid", "device/wwid", "device/serial", "dm/uuid"];
    let told = tells.iter().filter_map(|name| {
        let text = std::fs::read_to_string(Path::new(&about).join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    let partition = std::fs::read_to_string(Path::new(&about).join("partition"));
    let number = partition.unwrap_or_default();
    match told.into_iter().next() {
        Some(serial) => Identity::new(&format!("{serial} {}", number.trim())),
        None => Identity::new(place),
    }
}

impl Origin {
    /// Guards `opened` as the origin of `volume`, which is to have `size`. If it
    /// may have been changed since the pool last had it, the volume's lines are
    /// forgotten, and standard error says why.
    pub async fn guard(
        cache: &Cache<Leaf>,
        volume: &Name,
        size: Sectors,
        opened: &Opened,
        env: &Env,
    ) -> IoResult<Origin> {
        let (name, place) = (volume.as_str(), &opened.place);
        let identity = identity(place);
        let remembered = cache.remembered();
        let before = remembered.iter().find(|(known, _)| known == name);
        if let Some(before) = before.map(|(_, size)| *size).filter(|b| *b != size) {
            let (before, now) = (Bytes(before.bytes()), Bytes(size.bytes()));
            eprintln!(
                "hotset: volume {name} had {before} and has {now} now: the pool's lines of it are \
                 dropped; if its origin {place} was cut short, restore it before it is used"
            );
        } else if before.is_some()
            && let Some(told) = doubt(cache, name, opened, env, &identity).await
        {
            eprintln!(
                "hotset: {place}, the origin of volume {name}, {told}: what the pool had of it is \
                 dropped"
            );
            cache.forget(name);
        }
        let seed = memory::uuid() as u64;
        let record = take(&opened.leaf, &env.pool, identity.clone(), seed).await?;
        let (leaf, keep) = (opened.leaf.clone(), keep(cache, name));
        Ok(Origin {
            device: Guarded::new(leaf, env.clone(), record, keep),
            identity,
            seed,
        })
    }

    /// The device for the volume.
    pub fn device(&self) -> Guarded<Leaf> {
        self.device.clone()
    }

    /// The pool knows the volume now: what is known of the origin is made durable.
    pub async fn begin(&self) {
        self.device.begin().await;
    }

    /// Nobody writes now, or any more: keeps what the next start compares with.
    pub async fn renew(&self) -> IoResult {
        self.device.renew(self.identity.clone(), self.seed).await
    }
}

/// Why the origin cannot be taken for what it was; `None` if it can.
async fn doubt(
    cache: &Cache<Leaf>,
    volume: &str,
    opened: &Opened,
    env: &Env,
    identity: &Identity,
) -> Option<String> {
    let verdict = match Record::decode(&cache.origin_record(volume)) {
        Err(_) => Verdict::Unknown(Reason::NoRecord),
        Ok(record) => {
            let now = again(&opened.leaf, &env.pool, identity.clone(), &record).await;
            judge(&record, &now)
        }
    };
    match verdict {
        Verdict::Same => None,
        Verdict::Changed(reason) => Some(format!(
            "was changed while hotset did not have it ({reason})"
        )),
        Verdict::Unknown(reason) => Some(format!("may have been changed ({reason})")),
    }
}

/// Keeps records with the volume in its pool.
fn keep(cache: &Cache<Leaf>, volume: &str) -> Keep {
    let (cache, volume) = (cache.clone(), volume.to_owned());
    Box::new(move |record| {
        let (cache, volume) = (cache.clone(), volume.clone());
        Box::pin(async move {
            // A volume that was forgotten meanwhile has no lines to lose.
            if cache.set_origin_record(&volume, &record) {
                cache.remember().await;
            }
        })
    })
}
