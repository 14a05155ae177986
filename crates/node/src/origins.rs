//! Guarded origins: each is compared with its record before service, and the record is kept true.

use crate::event::NodeEvent;
use crate::leaf::Leaf;
use crate::log::{Copy, OpenLog};
use crate::place::OpenedPlace;
use crate::platform::Platform;
use block::{Driver, Env, IoResult, Sectors};
use cache::Cache;
use control::config::{ByteCount, Name};
use origin::{
    DeviceIdentity, DoubtReason, Guarded, Keep, OriginRecord, OriginVerdict, again, judge, take,
};
use std::cell::RefCell;
use std::rc::Rc;
use writelog::Watcher;

/// The log of the volume that also keeps records, once open.
type KeptByLog<D> = Rc<RefCell<Option<Watcher<Copy<D>>>>>;

/// An origin that is guarded while its volume is served; clones are the same.
pub struct GuardedOrigin<D: Driver> {
    device: Guarded<Leaf<D>>,
    identity: DeviceIdentity,
    seed: u64,
    log: KeptByLog<D>,
}

impl<D: Driver> Clone for GuardedOrigin<D> {
    fn clone(&self) -> GuardedOrigin<D> {
        GuardedOrigin {
            device: self.device.clone(),
            identity: self.identity.clone(),
            seed: self.seed,
            log: self.log.clone(),
        }
    }
}

impl<D: Driver> GuardedOrigin<D> {
    /// Guards `opened` as the origin of `volume`, for a volume of `size`. If the origin may have
    /// changed since the pool last had it, the volume's lines are dropped, and an event names the
    /// reason.
    pub async fn guard<P: Platform<Driver = D>>(
        platform: &P,
        say: &dyn Fn(NodeEvent),
        cache: &Cache<Leaf<D>>,
        volume: &Name,
        size: Sectors,
        opened: &OpenedPlace<P>,
    ) -> IoResult<GuardedOrigin<D>> {
        let (name, place) = (volume.as_str(), &opened.place);
        let env = platform.local().env();
        let identity = opened.identity.clone();
        let seed = platform.uuid() as u64;
        let record = take(&opened.leaf, &env.pool, identity.clone(), seed).await?;
        let remembered = cache.remembered();
        let before = remembered.iter().find(|(known, _)| known == name);
        if let Some(before) = before.map(|(_, size)| *size).filter(|b| *b != size) {
            say(NodeEvent::VolumeResized {
                volume: volume.clone(),
                before: ByteCount(before.bytes()),
                now: ByteCount(size.bytes()),
                origin: place.clone(),
            });
        } else if before.is_some()
            && let Some(why) = suspicion(cache, name, &opened.leaf, &env, &identity).await
        {
            say(NodeEvent::OriginSuspect {
                volume: volume.clone(),
                origin: place.clone(),
                why,
            });
            // Nothing is awaited from here on. So no superblock lacks the volume, which the caller
            // is about to add with the record of its origin.
            cache.forget(name);
        }
        let log = KeptByLog::default();
        let (leaf, keep) = (opened.leaf.clone(), keep(cache, name, log.clone()));
        Ok(GuardedOrigin {
            device: Guarded::new(leaf, env, record, keep),
            identity,
            seed,
            log,
        })
    }

    /// Keeps records with `log` too from now on.
    pub fn keep_with(&self, log: &OpenLog<D>) {
        *self.log.borrow_mut() = Some(log.engine().watcher());
    }

    /// The identity of the origin.
    pub fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// The device for the volume.
    pub fn device(&self) -> Guarded<Leaf<D>> {
        self.device.clone()
    }

    /// Makes the record durable, after the volume was added to the pool.
    pub async fn begin(&self) {
        self.device.begin().await;
    }

    /// Makes a new record for the next start. Nothing may write to the origin meanwhile.
    pub async fn renew(&self) -> IoResult {
        self.device.renew(self.identity.clone(), self.seed).await
    }
}

/// Returns the reason against taking the origin for the same; `None` if nothing speaks against
/// that.
async fn suspicion<D: Driver>(
    cache: &Cache<Leaf<D>>,
    volume: &str,
    origin: &Leaf<D>,
    env: &Env,
    identity: &DeviceIdentity,
) -> Option<String> {
    let verdict = match OriginRecord::decode(&cache.origin_record(volume)) {
        Err(_) => OriginVerdict::Unknown(DoubtReason::NoRecord),
        Ok(record) => {
            let now = again(origin, &env.pool, identity.clone(), &record).await;
            judge(&record, &now)
        }
    };
    match verdict {
        OriginVerdict::Same => None,
        OriginVerdict::Changed(reason) => Some(format!(
            "was changed while hotset did not have it ({reason})"
        )),
        OriginVerdict::Unknown(reason) => Some(format!("may have been changed ({reason})")),
    }
}

/// Keeps records with the volume in its pool, and with its log: the pool and its file may be lost.
fn keep<D: Driver>(cache: &Cache<Leaf<D>>, volume: &str, log: KeptByLog<D>) -> Keep {
    let (cache, volume) = (cache.clone(), volume.to_owned());
    Box::new(move |record| {
        let (cache, volume, log) = (cache.clone(), volume.clone(), log.borrow().clone());
        Box::pin(async move {
            if let Some(log) = log {
                log.watch(record.clone()).await;
            }
            // A volume that was removed from the pool meanwhile has no lines to lose.
            if cache.set_origin_record(&volume, &record) {
                cache.remember().await;
            }
        })
    })
}
