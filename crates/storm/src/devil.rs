//! Rules by which files fail, hang, answer late, or refuse changes, which change while the files
//! are used.
//!
//! Not here: transfers that fall short. Of a FUSE file that answers half of a direct read, io_uring of
//! Linux 6.18 gives wrong bytes and the whole length; `fio --ioengine=io_uring --verify` meets it too.
//!
//! Invariant: requests that a rule has held up are done once the rule is gone, in their order, but
//! for those that are lost on purpose.

use fuser::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Of so many writes to what forgets one is forgotten.
const FORGOTTEN: u64 = 16;

/// What is asked of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is made durable.
    Flush,
    /// It is opened, made, renamed or removed.
    Name,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It fails, with this error number.
    Fail(i32),
    /// It is not answered while the rule is there.
    Hang,
    /// It is answered so much later.
    Late(Duration),
    /// One write of sixteen is acknowledged and not done: no device that is to be survived.
    Forget,
}

/// What becomes of whatever is asked by one of these verbs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// By which verbs.
    pub verbs: Vec<Verb>,
    /// What becomes of it.
    pub effect: Effect,
}

type Work = Box<dyn FnOnce(Result<(), Errno>) + Send>;

#[derive(Default)]
struct Rules {
    /// By the names of files and folders of the folder itself.
    rules: HashMap<String, Rule>,
    /// What hangs, by the same names.
    held: Vec<(String, Work)>,
    /// How often a rule took effect.
    met: HashMap<String, u64>,
}

/// The rules of a folder.
#[derive(Clone, Default)]
pub struct Devil(Arc<Mutex<Rules>>);

impl Devil {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Has the file or folder `name` follow `rule`, or none.
    pub fn set(&self, name: &str, rule: Option<Rule>) {
        let free = self.replace(name, rule);
        free.into_iter().for_each(|work| work(Ok(())));
    }

    /// Takes the rule of `name` away, and loses the requests that it has held up; whether there were any.
    pub fn lose(&self, name: &str) -> bool {
        let lost = self.replace(name, None);
        let is_any = !lost.is_empty();
        lost.into_iter().for_each(|work| work(Err(Errno::EIO)));
        is_any
    }

    /// Replaces the rule of `name`; returns the requests that it has held up.
    fn replace(&self, name: &str, rule: Option<Rule>) -> Vec<Work> {
        let mut rules = self.rules();
        rules.rules.remove(name);
        let held = std::mem::take(&mut rules.held);
        let (free, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(of, _)| of == name);
        rules.held = held;
        rules.rules.extend(rule.map(|rule| (name.to_owned(), rule)));
        free.into_iter().map(|(_, work)| work).collect()
    }

    /// No rule is left.
    pub fn clear(&self) {
        let names: Vec<String> = self.rules().rules.keys().cloned().collect();
        names.iter().for_each(|name| self.set(name, None));
    }

    /// How often rules took effect, by what they do.
    pub fn met(&self) -> HashMap<String, u64> {
        self.rules().met.clone()
    }

    /// What becomes of `verb` on a path; what hangs is done by `work` later.
    pub fn judge(&self, path: &Path, verb: Verb) -> Option<(String, Effect)> {
        let name = path.components().next()?.as_os_str().to_str()?.to_owned();
        let mut rules = self.rules();
        let rule = rules
            .rules
            .get(&name)
            .filter(|rule| rule.verbs.contains(&verb))?;
        let effect = rule.effect;
        let kind = match effect {
            Effect::Fail(number) => format!("{verb:?} fails with {number}"),
            Effect::Hang => format!("{verb:?} hangs"),
            Effect::Late(_) => format!("{verb:?} is late"),
            Effect::Forget => return Some((name, effect)),
        };
        *rules.met.entry(kind).or_default() += 1;
        Some((name, effect))
    }

    /// Whether this write is forgotten.
    pub fn forgets(&self, path: &Path) -> bool {
        let Some(name) = path.to_str() else {
            return false;
        };
        let mut rules = self.rules();
        let rule = rules.rules.get(name);
        if rule.is_none_or(|rule| rule.effect != Effect::Forget) {
            return false;
        }
        let writes = rules.met.entry("Write to what forgets".into()).or_default();
        *writes += 1;
        writes.is_multiple_of(FORGOTTEN)
    }

    /// Does `work` as the rules have it: with an error, half, later, or as it is.
    pub fn run(
        &self,
        path: &Path,
        verb: Verb,
        work: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.judge(path, verb) {
            None | Some((_, Effect::Forget)) => work(Ok(())),
            Some((_, Effect::Fail(number))) => work(Err(Errno::from_i32(number))),
            Some((_, Effect::Late(time))) => {
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    work(Ok(()));
                });
            }
            Some((name, Effect::Hang)) => {
                let mut rules = self.rules();
                // It may have gone just now.
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
