//! Rules by which files fail, hang, answer late, or refuse changes. The rules change while the
//! files are used.
//!
//! Not here: short transfers. If a FUSE file answers half of a direct read, io_uring of Linux 6.18
//! gives wrong bytes and the whole length; `fio --ioengine=io_uring --verify` meets that too.
//!
//! Invariant: requests held up by a rule are done once the rule is gone, in their order, except
//! those that are lost on purpose.

use fuser::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// One in this number of writes to a forgetting file is forgotten.
const FORGOTTEN: u64 = 16;

/// Operations on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DevilVerb {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes writes durable.
    Flush,
    /// Opens, makes, renames or removes the file.
    Name,
}

/// Effect of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DevilEffect {
    /// The operation fails with this error number.
    Fail(i32),
    /// The operation is not answered while the rule holds.
    Hang,
    /// The operation is answered later by this time.
    Late(Duration),
    /// One write of sixteen is acknowledged and not done. No such device has to be survived.
    Forget,
}

/// A rule for operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DevilRule {
    /// Operations under the rule.
    pub verbs: Vec<DevilVerb>,
    /// Effect on them.
    pub effect: DevilEffect,
}

type Work = Box<dyn FnOnce(Result<(), Errno>) + Send>;

#[derive(Default)]
struct Rules {
    /// Rules by the names of files and folders directly in the folder.
    rules: HashMap<String, DevilRule>,
    /// Operations that hang, by the same names.
    held: Vec<(String, Work)>,
    /// Number of times that rules took effect.
    met: HashMap<String, u64>,
}

/// The rules of a folder.
#[derive(Clone, Default)]
pub struct Devil(Arc<Mutex<Rules>>);

impl Devil {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Sets the rule of the file or folder `name`; `None` removes the rule.
    pub fn set(&self, name: &str, rule: Option<DevilRule>) {
        let free = self.replace(name, rule);
        free.into_iter().for_each(|work| work(Ok(())));
    }

    /// Removes the rule of `name`, and loses the operations that the rule has held up. Returns true
    /// if there were any.
    pub fn lose(&self, name: &str) -> bool {
        let lost = self.replace(name, None);
        let is_any = !lost.is_empty();
        lost.into_iter().for_each(|work| work(Err(Errno::EIO)));
        is_any
    }

    /// Replaces the rule of `name`. Returns the operations that the old rule has held up.
    fn replace(&self, name: &str, rule: Option<DevilRule>) -> Vec<Work> {
        let mut rules = self.rules();
        rules.rules.remove(name);
        let held = std::mem::take(&mut rules.held);
        let (free, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(of, _)| of == name);
        rules.held = held;
        rules.rules.extend(rule.map(|rule| (name.to_owned(), rule)));
        free.into_iter().map(|(_, work)| work).collect()
    }

    /// Removes all rules.
    pub fn clear(&self) {
        let names: Vec<String> = self.rules().rules.keys().cloned().collect();
        names.iter().for_each(|name| self.set(name, None));
    }

    /// Returns the number of times that rules took effect, by kind.
    pub fn met(&self) -> HashMap<String, u64> {
        self.rules().met.clone()
    }

    /// Returns the effect on `verb` for a path, and counts it.
    pub fn judge(&self, path: &Path, verb: DevilVerb) -> Option<(String, DevilEffect)> {
        let name = path.components().next()?.as_os_str().to_str()?.to_owned();
        let mut rules = self.rules();
        let rule = rules
            .rules
            .get(&name)
            .filter(|rule| rule.verbs.contains(&verb))?;
        let effect = rule.effect;
        let kind = match effect {
            DevilEffect::Fail(number) => format!("{verb:?} fails with {number}"),
            DevilEffect::Hang => format!("{verb:?} hangs"),
            DevilEffect::Late(_) => format!("{verb:?} is late"),
            DevilEffect::Forget => return Some((name, effect)),
        };
        *rules.met.entry(kind).or_default() += 1;
        Some((name, effect))
    }

    /// Returns true if this write is to be forgotten.
    pub fn forgets(&self, path: &Path) -> bool {
        let Some(name) = path.to_str() else {
            return false;
        };
        let mut rules = self.rules();
        let rule = rules.rules.get(name);
        if rule.is_none_or(|rule| rule.effect != DevilEffect::Forget) {
            return false;
        }
        let writes = rules.met.entry("Write to what forgets".into()).or_default();
        *writes += 1;
        writes.is_multiple_of(FORGOTTEN)
    }

    /// Does `work` by the rules: with an error, later, or at once.
    pub fn run(
        &self,
        path: &Path,
        verb: DevilVerb,
        work: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.judge(path, verb) {
            None | Some((_, DevilEffect::Forget)) => work(Ok(())),
            Some((_, DevilEffect::Fail(number))) => work(Err(Errno::from_i32(number))),
            Some((_, DevilEffect::Late(time))) => {
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    work(Ok(()));
                });
            }
            Some((name, DevilEffect::Hang)) => {
                let mut rules = self.rules();
                // The rule may have been removed just now.
                if rules.rules.contains_key(&name) {
                    rules.held.push((name, Box::new(work)));
                } else {
                    drop(rules);
                    work(Ok(()));
                }
            }
        }
    }
}
