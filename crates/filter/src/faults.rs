//! Injects errors, latency and corruption, by rules that change while it runs.
//!
//! The same seed, rules and requests give the same faults. A request meets the
//! first rule that applies; where none does, it passes untouched.
//!
//! A delayed or stuck request begins on the device at once; its answer waits.
//!
//! Not here: power cuts, and faults that outlive a restart; the simulated world
//! has them.

use crate::access::{Access, Verb};
use block::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoError, IoResult, Kind, Lba, Nanos, Shared,
};
use fastrand::Rng;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It fails and never reaches the device.
    Fail(Kind),
    /// The device performs it, and the answer is this error.
    FailAfter(Kind),
    /// Its answer comes this much later.
    Delay(Nanos),
    /// Its answer comes when the rule is removed.
    Stick,
    /// One bit of what is read, or of what is written, is flipped. Other
    /// requests pass.
    FlipBit,
    /// It is acknowledged and never reaches the device; a read returns the
    /// buffer as it was given.
    Lose,
}

/// Which requests meet which fate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Requests of these verbs.
    pub verbs: Vec<Verb>,
    /// Those that touch these sectors; `None` for all, flushes included.
    pub within: Option<Extent>,
    /// Of those, so many in a million, drawn by seed.
    pub per_million: u32,
    /// So many requests at most.
    pub times: u64,
    /// What happens.
    pub effect: Effect,
}

impl Rule {
    /// `effect` on every request of these verbs.
    pub fn new(verbs: &[Verb], effect: Effect) -> Rule {
        Rule {
            verbs: verbs.to_vec(),
            within: None,
            per_million: 1_000_000,
            times: u64::MAX,
            effect,
        }
    }

    fn concerns(&self, access: &Access) -> bool {
        let touches = |within: Extent| within.overlaps(access.extent);
        self.times > 0 && self.verbs.contains(&access.verb) && self.within.is_none_or(touches)
    }
}

/// Names a rule that has been added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleId(u64);

/// Changes the rules of one [`Faulty`] device; clones change the same.
#[derive(Clone)]
pub struct Control(Rc<RefCell<State>>);

struct State {
    rules: Vec<(RuleId, Rule)>,
    next_id: u64,
    rng: Rng,
    injected: u64,
    stuck: Vec<Waker>,
}

impl Control {
    /// Adds a rule, to be met after those there are. A rule out of range is an
    /// `Invalid` error and adds nothing.
    pub fn add(&self, rule: Rule) -> IoResult<RuleId> {
        if rule.per_million > 1_000_000 {
            let what = format!("{} requests in a million", rule.per_million);
            return Err(IoError::new(Kind::Invalid, what));
        }
        if rule.verbs.is_empty() {
            let what = "a rule for no verb; name at least one";
            return Err(IoError::new(Kind::Invalid, what));
        }
        let mut state = self.0.borrow_mut();
        let id = RuleId(state.next_id);
        state.next_id += 1;
        state.rules.push((id, rule));
        Ok(id)
    }

    /// Takes a rule away; requests stuck by it go on. `false` if it is not there.
    pub fn remove(&self, id: RuleId) -> bool {
        let mut state = self.0.borrow_mut();
        let before = state.rules.len();
        state.rules.retain(|(other, _)| *other != id);
        state.stuck.drain(..).for_each(Waker::wake);
        state.rules.len() < before
    }

    /// Takes every rule away.
    pub fn clear(&self) {
        let mut state = self.0.borrow_mut();
        state.rules.clear();
        state.stuck.drain(..).for_each(Waker::wake);
    }

    /// Requests that met a rule so far.
    pub fn injected(&self) -> u64 {
        self.0.borrow().injected
    }

    fn judge(&self, access: &Access) -> Option<(RuleId, Effect)> {
        let state = &mut *self.0.borrow_mut();
        for (id, rule) in &mut state.rules {
            if rule.concerns(access) && state.rng.u32(0..1_000_000) < rule.per_million {
                rule.times -= 1;
                state.injected += 1;
                return Some((*id, rule.effect));
            }
        }
        None
    }

    async fn removed(&self, id: RuleId) {
        poll_fn(|cx| {
            let mut state = self.0.borrow_mut();
            if !state.rules.iter().any(|(other, _)| *other == id) {
                return Poll::Ready(());
            }
            state.stuck.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A device that fails on demand.
pub struct Faulty<D> {
    inner: D,
    env: Env,
    control: Control,
}

impl<D: Device> Faulty<D> {
    /// Wraps `inner`; without rules, nothing goes wrong.
    pub fn new(inner: D, env: Env, seed: u64) -> Faulty<D> {
        Faulty {
            inner,
            env,
            control: Control(Rc::new(RefCell::new(State {
                rules: Vec::new(),
                next_id: 0,
                rng: Rng::with_seed(seed),
                injected: 0,
                stuck: Vec::new(),
            }))),
        }
    }

    /// Changes the rules.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn injected(&self, kind: Kind, access: &Access) -> IoError {
        let error = self.inner.geometry().error(kind, "injected fault");
        match access.extent.is_empty() {
            true => error,
            false => error.at(access.extent),
        }
    }

    /// A request without a buffer, or whose buffer a caller of this looks after.
    async fn meet(
        &self,
        access: Access,
        fate: Option<(RuleId, Effect)>,
        work: impl Future<Output = IoResult>,
    ) -> IoResult {
        let Some((id, effect)) = fate else {
            return work.await;
        };
        match effect {
            Effect::Fail(kind) => Err(self.injected(kind, &access)),
            Effect::FailAfter(kind) => work.await.and_then(|()| Err(self.injected(kind, &access))),
            Effect::Delay(span) => {
                let until = self.env.timer.now() + span;
                let result = work.await;
                self.env.timer.until(until).await;
                result
            }
            Effect::Stick => {
                let result = work.await;
                self.control.removed(id).await;
                result
            }
            Effect::FlipBit => work.await,
            Effect::Lose => Ok(()),
        }
    }

    fn flip(&self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let rng = &mut self.control.0.borrow_mut().rng;
            let (at, bit) = (rng.usize(0..bytes.len()), rng.u32(0..8));
            bytes[at] ^= 1 << bit;
        }
    }

    /// The fate of a request, unless the device will refuse it.
    fn judge(&self, access: &Access, valid: IoResult) -> Option<(RuleId, Effect)> {
        valid.is_ok().then(|| self.control.judge(access)).flatten()
    }
}

impl<D: Device> Device for Faulty<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let access = Access::transfer(Verb::Read, at, buf.len(), Fua::No);
        let fate = self.judge(&access, self.geometry().transfer(at, buf.len()).map(drop));
        let slot = RefCell::new(Some(buf));
        let work = async {
            let buf = slot.take().expect("one read takes the buffer");
            let (mut buf, result) = self.inner.read(at, buf).await;
            if let Some((_, Effect::FlipBit)) = fate {
                self.flip(&mut buf);
            }
            slot.replace(Some(buf));
            result
        };
        let result = self.meet(access, fate, work).await;
        let buf = slot.take().expect("the read has put it back");
        (buf, result)
    }

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        let access = Access::transfer(Verb::Write, at, data.len(), fua);
        let fate = self.judge(&access, self.geometry().transfer(at, data.len()).map(drop));
        let work = async {
            let mut data = data;
            if let Some((_, Effect::FlipBit)) = fate {
                let mut copy = self.env.pool.take(data.len());
                copy.copy_from_slice(&data);
                self.flip(&mut copy);
                data = copy.share();
            }
            self.inner.write(at, data, fua).await
        };
        self.meet(access, fate, work).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let access = Access::of(Verb::Zero, extent);
        let fate = self.judge(&access, self.geometry().check(extent));
        self.meet(access, fate, self.inner.zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        let fate = self.judge(&Access::FLUSH, Ok(()));
        self.meet(Access::FLUSH, fate, self.inner.flush()).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let access = Access::of(Verb::Discard, extent);
        let fate = self.judge(&access, self.geometry().check(extent));
        self.meet(access, fate, self.inner.discard(extent)).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let access = Access::of(Verb::Extents, extent);
        let fate = self.judge(&access, self.geometry().check(extent));
        // To lose a question would be no answer at all: it is asked.
        let fate = fate.filter(|(_, effect)| *effect != Effect::Lose);
        self.meet(access, fate, self.inner.extents(extent, out))
            .await
    }
}
