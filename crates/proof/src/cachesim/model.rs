//! What a volume may return: for each sector the set of allowed values.
//!
//! A write that was acknowledged leaves one value; one that failed leaves the
//! old and the new; one whose caller gave up may land at any later time. A read
//! may return what was allowed at its start and whatever was being written
//! before its end.
//!
//! It knows nothing of caches, lines or devices.

use super::stamp::{self, ANYTHING, Value, ZERO};
use std::ops::Range;

#[derive(Clone, Default)]
struct Sector {
    /// What the last acknowledged write left.
    settled: Value,
    /// What failed writes since then may have left.
    suspect: Vec<Value>,
    /// Writes in flight.
    pending: Vec<Value>,
    /// Writes that nobody waits for any more.
    loose: Vec<Value>,
}

impl Sector {
    fn allows(&self, value: Option<Value>) -> bool {
        let allowed = |v: Value| v == ANYTHING || Some(v) == value;
        allowed(self.settled)
            || [&self.suspect, &self.pending, &self.loose]
                .into_iter()
                .flatten()
                .any(|v| allowed(*v))
    }
}

struct Read {
    id: u64,
    sectors: Range<u64>,
    seen: Vec<Sector>,
}

/// A volume's reference model.
pub struct Model {
    sectors: Vec<Sector>,
    reads: Vec<Read>,
    next: u64,
}

/// How a change ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was acknowledged.
    Done,
    /// It was refused with an error.
    Failed,
    /// Its caller gave up.
    Abandoned,
}

impl Model {
    /// A volume of zeroes.
    pub fn new(sectors: u64) -> Model {
        Model {
            sectors: vec![Sector::default(); sectors as usize],
            reads: Vec::new(),
            next: 1,
        }
    }

    /// A value that was never written.
    pub fn version(&mut self) -> Value {
        self.next += 1;
        self.next
    }

    /// A change of `sectors` to `value` begins.
    pub fn change(&mut self, sectors: Range<u64>, value: Value) {
        for read in &mut self.reads {
            let from = sectors.start.max(read.sectors.start);
            for at in from..sectors.end.min(read.sectors.end) {
                read.seen[(at - read.sectors.start) as usize]
                    .pending
                    .push(value);
            }
        }
        for sector in &mut self.sectors[sectors.start as usize..sectors.end as usize] {
            sector.pending.push(value);
        }
    }

    /// It has ended.
    pub fn changed(&mut self, sectors: Range<u64>, value: Value, end: End) {
        for sector in &mut self.sectors[sectors.start as usize..sectors.end as usize] {
            let at = sector.pending.iter().position(|v| *v == value);
            sector.pending.swap_remove(at.expect("it began"));
            match end {
                End::Done => {
                    sector.settled = value;
                    sector.suspect.clear();
                }
                End::Failed => sector.suspect.push(value),
                End::Abandoned => sector.loose.push(value),
            }
        }
    }

    /// A read of `sectors` begins.
    pub fn read(&mut self, sectors: Range<u64>) -> u64 {
        self.next += 1;
        self.reads.push(Read {
            id: self.next,
            seen: self.sectors[sectors.start as usize..sectors.end as usize].to_vec(),
            sectors,
        });
        self.next
    }

    /// It has ended, with these bytes unless it failed or was given up. `Err`
    /// says which sector holds what it must not.
    pub fn was_read(&mut self, id: u64, bytes: Option<&[u8]>) -> Result<(), String> {
        let at = self
            .reads
            .iter()
            .position(|r| r.id == id)
            .expect("it began");
        let read = self.reads.swap_remove(at);
        let Some(bytes) = bytes else { return Ok(()) };
        for ((sector, seen), bytes) in read.sectors.zip(&read.seen).zip(bytes.chunks_exact(512)) {
            let value = stamp::read(bytes, sector);
            if !seen.allows(value) {
                return Err(format!("sector {sector} holds {}", describe(value, seen)));
            }
        }
        Ok(())
    }
}

fn describe(value: Option<Value>, seen: &Sector) -> String {
    let name = |v: &Value| match *v {
        ZERO => "zeroes".to_string(),
        ANYTHING => "anything".to_string(),
        version => format!("version {version}"),
    };
    let list = |values: &[Value]| values.iter().map(name).collect::<Vec<_>>().join(" ");
    format!(
        "{} where {} was acknowledged last, failed since then [{}], in flight [{}], given up [{}]",
        value
            .as_ref()
            .map_or("bytes that nobody wrote".to_string(), name),
        name(&seen.settled),
        list(&seen.suspect),
        list(&seen.pending),
        list(&seen.loose),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(sector: u64, version: Value) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        if version != ZERO {
            stamp::stamp(&mut bytes, sector, version);
        }
        bytes
    }

    fn check(model: &mut Model, sector: u64, version: Value) -> bool {
        let id = model.read(sector..sector + 1);
        model.was_read(id, Some(&bytes(sector, version))).is_ok()
    }

    #[test]
    fn only_the_last_acknowledged_value_is_allowed() {
        let mut model = Model::new(4);
        assert!(check(&mut model, 1, ZERO) && !check(&mut model, 1, 7));
        model.change(0..2, 7);
        assert!(check(&mut model, 1, ZERO) && check(&mut model, 1, 7));
        model.changed(0..2, 7, End::Done);
        assert!(!check(&mut model, 1, ZERO) && check(&mut model, 1, 7));
    }

    #[test]
    fn a_read_may_see_what_was_written_meanwhile_and_no_older() {
        let mut model = Model::new(4);
        let early = model.read(0..1);
        model.change(0..1, 7);
        model.changed(0..1, 7, End::Done);
        assert!(model.was_read(early, Some(&bytes(0, ZERO))).is_ok());
        let late = model.read(0..1);
        assert!(model.was_read(late, Some(&bytes(0, ZERO))).is_err());
    }

    #[test]
    fn failures_and_discards_leave_sectors_suspect_until_the_next_write() {
        let mut model = Model::new(1);
        model.change(0..1, 7);
        model.changed(0..1, 7, End::Failed);
        assert!(check(&mut model, 0, ZERO) && check(&mut model, 0, 7));
        model.change(0..1, 8);
        model.changed(0..1, 8, End::Done);
        assert!(check(&mut model, 0, 8) && !check(&mut model, 0, 7));
        model.change(0..1, ANYTHING);
        model.changed(0..1, ANYTHING, End::Done);
        assert!(check(&mut model, 0, 99));
        model.change(0..1, 9);
        model.changed(0..1, 9, End::Done);
        assert!(!check(&mut model, 0, 8));
        model.change(0..1, 10);
        model.changed(0..1, 10, End::Abandoned);
        model.change(0..1, 11);
        model.changed(0..1, 11, End::Done);
        assert!(check(&mut model, 0, 10) && check(&mut model, 0, 11) && !check(&mut model, 0, 9));
    }
}
