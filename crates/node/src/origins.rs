//! Guarded origins: each is compared with its record before service, and the record is kept true.

use crate::event::Event;
use crate::leaf::Leaf;
use crate::log::{Copy, Log};
use crate::place::Opened;
use crate::platform::Platform;
use block::{Driver, Env, IoResult, Sectors};
use cache::Cache;
use control::config::{Bytes, Name};
use origin::{Guarded, Identity, Keep, Reason, Record, Verdict, again, judge, take};
use std::cell::RefCell;
use std::rc::Rc;
use writelog::Watcher;

/// The log of the volume that also keeps records, once open.
type KeptByLog<D> = Rc<RefCell<Option<Watcher<Copy<D>>>>>;

/// An origin that is guarded while its volume is served; clones are the same.
pub struct Origin<D: Driver> {
    device: Guarded<Leaf<D>>,
    identity: Identity,
    seed: u64,
    log: KeptByLog<D>,
}

impl<D: Driver> Clone for Origin<D> {
    fn clone(&self) -> Origin<D> {
        Origin {
            device: self.device.clone(),
            identity: self.identity.clone(),
            seed: self.seed,
            log: self.log.clone(),
        }
    }
}

impl<D: Driver> Origin<D> {
    /// Guards `opened` as the origin of `volume`, for a volume of `size`. If the origin may have
    /// changed since the pool last had it, the volume's lines are dropped, and an event names the
    /// reason.
    pub async fn guard<P: Platform<Driver = D>>(
        platform: &P,
        say: &dyn Fn(Event),
        cache: &Cache<Leaf<D>>,
        volume: &Name,
        size: Sectors,
        opened: &Opened<P>,
    ) -> IoResult<Origin<D>> {
        let (name, place) = (volume.as_str(), &opened.place);
        let env = platform.local().env();
        let identity = opened.identity.clone();
        let seed = platform.uuid() as u64;
        let record = take(&opened.leaf, &env.pool, identity.clone(), seed).await?;
        let remembered = cache.remembered();
        let before = remembered.iter().find(|(known, _)| known == name);
        if let Some(before) = before.map(|(_, size)| *size).filter(|b| *b != size) {
            say(Event::VolumeResized {
                volume: volume.clone(),
                before: Bytes(before.bytes()),
                now: Bytes(size.bytes()),
                origin: place.clone(),
            });
        } else if before.is_some()
            && let Some(why) = suspicion(cache, name, &opened.leaf, &env, &identity).await
        {
            say(Event::OriginSuspect {
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
        Ok(Origin {
            device: Guarded::new(leaf, env, record, keep),
            identity,
            seed,
            log,
        })
    }

    /// Keeps records with `log` too from now on.
    pub fn keep_with(&self, log: &Log<D>) {
        *self.log.borrow_mut() = Some(log.engine().watcher());
    }

    /// The identity of the origin.
    pub fn identity(&self) -> &Identity {
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
    identity: &Identity,
) -> Option<String> {
    let verdict = match Record::decode(&cache.origin_record(volume)) {
        Err(_) => Verdict::Unknown(Reason::NoRecord),
        Ok(record) => {
            let now = again(origin, &env.pool, identity.clone(), &record).await;
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
