//! The contract of [`Boundary`], such as a [`Gate`] over any device: bytes at any offset, and
//! overlapping requests as if one after another.

use super::begun::read_begun;
use super::join::{Boxed, join_all};
use super::linear::{LinearEvent, explains};
use super::rng::{SuiteRng, mix};
use super::{SuiteCase, check};
use crate::{
    BUF_BYTES_MAX, Boundary, BoxDevice, Device, Env, Fua, Gate, IoErrorKind, IoResult,
    SECTOR_BYTES, SharedBuf,
};
use std::cell::{Cell, RefCell};

/// Requests of the mixed case.
const STEPS: u64 = 300;
/// Rounds of overlapping requests.
const ROUNDS: u64 = 40;
/// Bytes at each end of the device that are tried.
const WINDOW: usize = 256 << 10;

/// Runs the suite over `device`; panics with the seed at the first breach.
///
/// The device needs at least 2 MiB. Its bytes are overwritten.
pub async fn gate<D: Device>(device: D, env: &Env, seed: u64) {
    let block = device.geometry().block.bytes();
    boundary(&Gate::new(device, env.clone()), block, env, seed).await;
}

/// Runs the suite over any boundary, in front of blocks of `block` bytes.
pub async fn boundary<G: Boundary>(gate: &G, block: u64, env: &Env, seed: u64) {
    let suite = GateSuite {
        gate,
        env,
        block,
        case: SuiteCase::new("gate", seed),
        rng: RefCell::new(SuiteRng::new(seed)),
        fills: Cell::new(seed),
    };
    let end = gate.bytes();
    for base in [0, end - WINDOW as u64] {
        suite.mixed(base).await;
        suite.overlaps(base).await;
    }
    suite.invalid().await;
}

struct GateSuite<'a, G> {
    gate: &'a G,
    env: &'a Env,
    block: u64,
    case: SuiteCase,
    rng: RefCell<SuiteRng>,
    fills: Cell<u64>,
}

impl<G: Boundary> GateSuite<'_, G> {
    /// One request after another against a model of the window at `base`.
    async fn mixed(&self, base: u64) {
        self.case.enter("mixed requests");
        let mut model = self.filled(base).await;
        for _ in 0..STEPS {
            let (at, len) = self.somewhere();
            let (offset, range) = (base + at as u64, at..at + len);
            match self.below(8) {
                0..=3 => {
                    let data = self.data(len).await;
                    model[range]
                        .iter_mut()
                        .zip(data.iter())
                        .for_each(|(m, &d)| *m = Some(d));
                    let fua = if self.below(3) == 0 {
                        Fua::Yes
                    } else {
                        Fua::No
                    };
                    self.expect_ok("write", self.gate.write(offset, data, fua).await);
                }
                4 => {
                    model[range].fill(Some(0));
                    self.expect_ok("zero", self.gate.zero(offset, len as u64).await);
                }
                5 => {
                    let whole = at.next_multiple_of(self.block as usize)
                        ..(at + len) / self.block as usize * self.block as usize;
                    if !whole.is_empty() {
                        model[whole].fill(None);
                    }
                    self.expect_ok("discard", self.gate.discard(offset, len as u64).await);
                }
                6 => self.extents(offset, len as u64).await,
                _ => self.expect_ok("flush", self.gate.flush().await),
            }
            let (at, len) = self.somewhere();
            self.verify(base, at, &model[at..at + len]).await;
        }
        self.verify(base, 0, &model).await;
    }

    /// Fills the window, so that every byte is known.
    async fn filled(&self, base: u64) -> Vec<Option<u8>> {
        let data = self.data(WINDOW).await;
        let model = data.iter().map(|&byte| Some(byte)).collect();
        self.expect_ok("write", self.gate.write(base, data, Fua::No).await);
        model
    }

    async fn verify(&self, base: u64, at: usize, expected: &[Option<u8>]) {
        let found = self.read(base + at as u64, expected.len()).await;
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let Some(expected) = expected else { continue };
            check!(
                self.case,
                found == expected,
                "byte {} is {found}, must be {expected}",
                base + (at + i) as u64
            );
        }
    }

    async fn extents(&self, offset: u64, len: u64) {
        let mut out = Vec::new();
        let result = self.gate.extents(offset, len, &mut out).await;
        self.expect_ok("extents", result);
        let mut next = offset / self.block * self.block;
        let end = (offset + len).next_multiple_of(self.block);
        for &(run, _) in &out {
            check!(
                self.case,
                run.start.byte() == next && !run.is_empty(),
                "extents of bytes {offset}+{len} give {run:?} where byte {next} is due"
            );
            next = run.end().byte();
        }
        check!(
            self.case,
            next == end,
            "extents of bytes {offset}+{len} end at byte {next}, not {end}"
        );
    }

    /// Requests on the same few blocks at once: some order explains them.
    async fn overlaps(&self, base: u64) {
        self.case.enter("overlapping requests");
        let area = (self.block * 3) as usize;
        for round in 0..ROUNDS {
            let data = self.data(area).await;
            let before = data.to_vec();
            self.expect_ok("write", self.gate.write(base, data, Fua::No).await);
            let mut work: Vec<Boxed<'_, LinearEvent>> = Vec::new();
            for _ in 0..3 + self.below(3) {
                let len = 1 + self.below(area as u64) as usize;
                let at = self.below((area - len) as u64 + 1) as usize;
                let (offset, range) = (base + at as u64, at..at + len);
                match self.below(5) {
                    0..=2 => {
                        let data = self.data(len).await;
                        work.push(Box::pin(async move {
                            let event = LinearEvent::Write(range, data.to_vec());
                            let result = self.gate.write(offset, data, Fua::No).await;
                            self.expect_ok("write", result);
                            event
                        }));
                    }
                    3 => work.push(Box::pin(async move {
                        let result = self.gate.zero(offset, len as u64).await;
                        self.expect_ok("zero", result);
                        LinearEvent::Write(range, vec![0; len])
                    })),
                    _ => work.push(Box::pin(async move {
                        LinearEvent::Read(range, self.read(offset, len).await.to_vec())
                    })),
                }
            }
            let events = join_all(work).await;
            let after = self.read(base, area).await;
            check!(
                self.case,
                explains(&before, &events, &after),
                "round {round} at byte {base}: no order of the {} requests explains \
                 what was read and what is left",
                events.len()
            );
        }
    }

    /// Bad requests fail with `Invalid` and change nothing.
    async fn invalid(&self) {
        self.case.enter("invalid requests");
        let end = self.gate.bytes();
        let base = end - WINDOW as u64;
        let model = self.filled(base).await;
        let most = Gate::<BoxDevice>::BYTES_MAX;
        let mut bad = vec![(0, 0), (end, 1), (end - 1, 2), (u64::MAX, 1)];
        if self.env.pool.total_bytes() >= 4 * BUF_BYTES_MAX {
            bad.push((0, most + 1));
        }
        for (offset, len) in bad {
            let what = format!("bytes {offset}+{len}");
            let result = self.gate.read(offset, len).await.map(drop);
            self.expect_invalid(&format!("a read of {what}"), result);
            let result = read_begun(self.gate, offset, len).await.map(drop);
            self.expect_invalid(&format!("a read begun of {what}"), result);
            let (buf, _rest) = self.env.pool.get(len.max(1)).await.split_at(len);
            let result = self.gate.write(offset, buf.share(), Fua::No).await;
            self.expect_invalid(&format!("a write to {what}"), result);
            if len > most {
                continue;
            }
            let result = self.gate.zero(offset, len as u64).await;
            self.expect_invalid(&format!("a zero of {what}"), result);
            let result = self.gate.discard(offset, len as u64).await;
            self.expect_invalid(&format!("a discard of {what}"), result);
            let mut out = Vec::new();
            let result = self.gate.extents(offset, len as u64, &mut out).await;
            self.expect_invalid(&format!("extents of {what}"), result);
        }
        self.verify(base, 0, &model).await;
    }

    async fn read(&self, offset: u64, len: usize) -> SharedBuf {
        let result = match self.below(2) {
            0 => self.gate.read(offset, len).await,
            _ => read_begun(self.gate, offset, len).await,
        };
        match result {
            Ok(data) => {
                check!(
                    self.case,
                    data.len() == len,
                    "a read of {len} bytes gives {}",
                    data.len()
                );
                data
            }
            Err(error) => self.case.fail(format_args!("read fails: {error}")),
        }
    }

    fn expect_ok(&self, what: &str, result: IoResult) {
        if let Err(error) = result {
            self.case.fail(format_args!("{what} fails: {error}"));
        }
    }

    fn expect_invalid(&self, what: &str, result: IoResult) {
        let kind = result.as_ref().err().map(|error| error.kind());
        check!(
            self.case,
            kind == Some(IoErrorKind::Invalid),
            "{what} ends with {result:?}, not with an Invalid error"
        );
    }

    /// Bytes that no other request of this run has written.
    async fn data(&self, len: usize) -> SharedBuf {
        self.fills.set(self.fills.get().wrapping_add(1));
        let key = mix(self.fills.get());
        let mut buf = self.env.pool.get(len).await;
        for (i, bytes) in buf.chunks_mut(8).enumerate() {
            let word = mix(key.wrapping_add(i as u64)).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        buf.share()
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    /// A range in the window: short ones, long ones, whole sectors and blocks.
    fn somewhere(&self) -> (usize, usize) {
        let unit = [1, SECTOR_BYTES, self.block][self.below(3) as usize];
        let scale = 1 << self.below(u64::from((WINDOW as u64 / unit / 2).ilog2()) + 1);
        let len = (1 + self.below(scale)) * unit;
        let at = self.below((WINDOW as u64 - len) / unit + 1) * unit;
        (at as usize, len as usize)
    }
}
