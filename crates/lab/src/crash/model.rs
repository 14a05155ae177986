//! What a volume may return, over losses of power: the reference.
//!
//! For each sector it keeps what the last acknowledged write left and what may
//! be durable. It knows nothing of caches, lines or devices, and shares no code
//! with the engine.
//!
//! - A write that was acknowledged is what is read, until the next one.
//! - A write that failed, or was cut off, may have landed or not. Once it has
//!   been seen which, it stays so.
//! - When the origin loses power, each sector goes back to what was durable or
//!   to any write since then.
//! - A flush makes durable what was acknowledged before it began; a write with
//!   forced unit access is durable when acknowledged.

use super::case::Space;
use crate::cachesim::stamp::{self, ANYTHING, Value, ZERO};
use std::ops::Range;

#[derive(Clone)]
struct Sector {
    /// What may be there now.
    now: Vec<Value>,
    /// What may be durable, as far as it is older than `tail`.
    base: Vec<Value>,
    /// Writes that may not be durable, in order, with the number of their
    /// acknowledgement if they had one.
    tail: Vec<(Option<u64>, Value)>,
    /// Writes in flight.
    pending: Vec<Value>,
}

struct Read {
    id: u64,
    sectors: Range<u64>,
    /// What each of its sectors, by its number in the read, may return.
    allowed: Vec<(u64, Value)>,
    /// How many of these were there when it began.
    first: usize,
}

/// A volume's reference.
pub struct Model {
    space: Space,
    sectors: Vec<Sector>,
    reads: Vec<Read>,
    next: u64,
    acknowledged: u64,
}

/// A flush that has begun.
#[derive(Clone, Copy)]
pub struct FlushMark(u64);

impl Model {
    /// A volume of zeroes.
    pub fn new(space: Space) -> Model {
        let zeroes = Sector {
            now: vec![ZERO],
            base: vec![ZERO],
            tail: Vec::new(),
            pending: Vec::new(),
        };
        Model {
            sectors: vec![zeroes; (space.windows * space.each) as usize],
            space,
            reads: Vec::new(),
            next: 1,
            acknowledged: 0,
        }
    }

    /// A volume of zeroes whose values are all greater than `first`, so that they
    /// differ from another's.
    pub fn numbered_from(space: Space, first: Value) -> Model {
        Model {
            next: first.max(1),
            ..Model::new(space)
        }
    }

    /// A value that was never written.
    pub fn version(&mut self) -> Value {
        self.next += 1;
        self.next
    }

    fn of(&mut self, sectors: &Range<u64>) -> &mut [Sector] {
        let first = self.space.index(sectors.start);
        &mut self.sectors[first..first + (sectors.end - sectors.start) as usize]
    }

    /// A change of `sectors` to `value` begins.
    pub fn begin(&mut self, sectors: &Range<u64>, value: Value) {
        for read in &mut self.reads {
            let from = sectors.start.max(read.sectors.start);
            for at in from..sectors.end.min(read.sectors.end) {
                read.allowed.push((at - read.sectors.start, value));
            }
        }
        for sector in self.of(sectors) {
            sector.pending.push(value);
        }
    }

    /// It has ended, and is durable if `durable`.
    pub fn end(&mut self, sectors: &Range<u64>, value: Value, done: bool, durable: bool) {
        self.acknowledged += 1;
        let number = self.acknowledged;
        for sector in self.of(sectors) {
            let at = sector.pending.iter().position(|v| *v == value);
            sector.pending.swap_remove(at.expect("it began"));
            if done {
                sector.now.clear();
            }
            sector.now.push(value);
            if done && durable {
                sector.base.clear();
                sector.base.push(value);
                sector.tail.clear();
            } else {
                sector.tail.push((done.then_some(number), value));
            }
        }
    }

    /// A flush begins.
    pub fn begin_flush(&self) -> FlushMark {
        FlushMark(self.acknowledged)
    }

    /// It was acknowledged.
    pub fn end_flush(&mut self, mark: FlushMark) {
        for sector in &mut self.sectors {
            let covered = |(number, _): &(Option<u64>, Value)| number.is_some_and(|n| n <= mark.0);
            if let Some(last) = sector.tail.iter().rposition(covered) {
                sector.base.clear();
                sector.base.push(sector.tail[last].1);
                sector.tail.drain(..=last);
            }
        }
    }

    /// The daemon has stopped where it was; `origin_lost`: the origin has lost
    /// its power too.
    pub fn cut(&mut self, origin_lost: bool) {
        self.reads.clear();
        for sector in &mut self.sectors {
            for value in std::mem::take(&mut sector.pending) {
                sector.now.push(value);
                sector.tail.push((None, value));
            }
            if origin_lost {
                sector.base.extend(sector.tail.drain(..).map(|(_, v)| v));
                sector.now.clone_from(&sector.base);
            }
        }
    }

    /// What the origin itself holds from sector `start`, in one window, when
    /// nothing is in flight. `Err` says which sector holds what it must not.
    pub fn origin_holds(&mut self, start: u64, bytes: &[u8]) -> Result<(), String> {
        let sectors = start..start + bytes.len() as u64 / 512;
        for ((at, sector), bytes) in (start..)
            .zip(self.of(&sectors))
            .zip(bytes.chunks_exact(512))
        {
            let value = stamp::read(bytes, at);
            if !sector.allows(value) {
                return Err(format!(
                    "sector {at} holds {}",
                    describe(value, &sector.now)
                ));
            }
            sector.see(value);
        }
        Ok(())
    }

    /// A read of `sectors` begins.
    pub fn begin_read(&mut self, sectors: &Range<u64>) -> u64 {
        self.next += 1;
        let mut allowed = Vec::with_capacity((sectors.end - sectors.start) as usize + 4);
        for (i, sector) in (0..).zip(self.of(sectors)) {
            allowed.extend(sector.now.iter().map(|v| (i, *v)));
        }
        let first = allowed.len();
        for (i, sector) in (0..).zip(self.of(sectors)) {
            allowed.extend(sector.pending.iter().map(|v| (i, *v)));
        }
        self.reads.push(Read {
            id: self.next,
            sectors: sectors.clone(),
            allowed,
            first,
        });
        self.next
    }

    /// It has ended, with these bytes unless it failed.
    pub fn end_read(&mut self, id: u64, bytes: Option<&[u8]>) -> Result<(), String> {
        let at = self.reads.iter().position(|r| r.id == id);
        let read = self.reads.swap_remove(at.expect("it began"));
        let Some(bytes) = bytes else { return Ok(()) };
        for (i, bytes) in (0..).zip(bytes.chunks_exact(512)) {
            let at = read.sectors.start + i;
            let value = stamp::read(bytes, at);
            let here = || read.allowed.iter().filter(|(s, _)| *s == i);
            if !here().any(|(_, v)| *v == ANYTHING || Some(*v) == value) {
                let allowed: Vec<_> = here().map(|(_, v)| *v).collect();
                return Err(format!("sector {at} holds {}", describe(value, &allowed)));
            }
            // Nothing was in flight there while it was read: it has been seen.
            if !read.allowed[read.first..].iter().any(|(s, _)| *s == i) {
                self.of(&(at..at + 1))[0].see(value);
            }
        }
        Ok(())
    }
}

impl Sector {
    fn allows(&self, value: Option<Value>) -> bool {
        self.now.iter().any(|v| *v == ANYTHING || Some(*v) == value)
    }

    /// `value`, which is allowed, has been seen; discarded bytes may still change.
    fn see(&mut self, value: Option<Value>) {
        if self.now.len() == 1 || self.now.contains(&ANYTHING) {
            return;
        }
        let value = value.expect("allowed");
        self.now.clear();
        self.now.push(value);
        if self.tail.is_empty() {
            self.base.clear();
            self.base.push(value);
        }
    }
}

fn describe(value: Option<Value>, allowed: &[Value]) -> String {
    let name = |v: &Value| match *v {
        ZERO => "zeroes".to_string(),
        ANYTHING => "anything".to_string(),
        version => format!("version {version}"),
    };
    let held = value
        .as_ref()
        .map_or("bytes that nobody wrote".into(), name);
    let allowed: Vec<String> = allowed.iter().map(name).collect();
    format!("{held} where only {} may be", allowed.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Space = Space {
        windows: 1,
        each: 1,
    };

    fn bytes(sector: u64, value: Value) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        if value != ZERO {
            stamp::stamp(&mut bytes, sector, value);
        }
        bytes
    }

    fn write(model: &mut Model, value: Value, durable: bool) {
        model.begin(&(0..1), value);
        model.end(&(0..1), value, true, durable);
    }

    fn reads(model: &mut Model, value: Value) -> bool {
        let id = model.begin_read(&(0..1));
        model.end_read(id, Some(&bytes(0, value))).is_ok()
    }

    #[test]
    fn a_flush_saves_what_came_before_it_alone() {
        for (flushed, lost) in [(false, true), (true, true), (true, false)] {
            let mut model = Model::new(ONE);
            write(&mut model, 7, false);
            let mark = model.begin_flush();
            write(&mut model, 8, false);
            if flushed {
                model.end_flush(mark);
            }
            model.cut(lost);
            let allowed: Vec<_> = [ZERO, 7, 8]
                .into_iter()
                .filter(|v| model.sectors[0].allows(Some(*v)))
                .collect();
            match (flushed, lost) {
                (false, _) => assert_eq!(allowed, [ZERO, 7, 8]),
                (true, true) => assert_eq!(allowed, [7, 8]),
                (true, false) => assert_eq!(allowed, [8]),
            }
        }
    }

    #[test]
    fn forced_writes_are_durable_at_once() {
        let mut model = Model::new(ONE);
        write(&mut model, 7, true);
        model.cut(true);
        assert!(!reads(&mut model, ZERO) && reads(&mut model, 7));
    }

    #[test]
    fn what_was_seen_after_a_cut_stays() {
        let mut model = Model::new(ONE);
        write(&mut model, 7, false);
        model.begin(&(0..1), 8);
        model.cut(true);
        assert!(reads(&mut model, 7));
        assert!(!reads(&mut model, 8) && !reads(&mut model, ZERO));
        model.cut(true);
        assert!(!reads(&mut model, ZERO) && reads(&mut model, 7));
    }

    #[test]
    fn what_the_origin_holds_is_checked_and_seen() {
        let mut model = Model::new(ONE);
        write(&mut model, 7, false);
        model.cut(true);
        assert!(model.origin_holds(0, &bytes(0, 9)).is_err());
        model.origin_holds(0, &bytes(0, ZERO)).unwrap();
        assert!(!reads(&mut model, 7) && reads(&mut model, ZERO));
    }

    #[test]
    fn a_read_sees_what_was_written_meanwhile() {
        let mut model = Model::new(ONE);
        let early = model.begin_read(&(0..1));
        write(&mut model, 7, false);
        assert!(model.end_read(early, Some(&bytes(0, 7))).is_ok());
        let late = model.begin_read(&(0..1));
        assert!(model.end_read(late, Some(&bytes(0, ZERO))).is_err());
    }
}
