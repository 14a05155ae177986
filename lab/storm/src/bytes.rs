//! The possible contents of each sector of a client's part, by the acknowledged writes. The model
//! shares no code with the engine, nor with the models of the campaigns.
//!
//! Invariants:
//!     a sector without an entry in `doubt` holds `held`
//!     a write without acknowledgement leaves several versions possible until `pin` has read them
//!     a part is written by one client, which waits for each answer

use std::collections::BTreeMap;
use std::ops::Range;

/// The unit of the model.
pub const SECTOR: usize = 512;

/// Contents of a sector: zeroes, or the number of a write.
pub type Version = u32;
const ZEROES: Version = 0;

/// The part of a volume for one client.
pub struct ClientPart {
    volume: u8,
    first: u64,
    held: Vec<Version>,
    /// Possible contents of sectors with several versions, and whether a write to them failed.
    doubt: BTreeMap<u64, Doubt>,
    /// Earlier contents of sectors that were written since the last flush.
    unflushed: BTreeMap<u64, Vec<Version>>,
    losses: u64,
    last: Version,
}

struct Doubt {
    may: Vec<Version>,
    failed: bool,
}

fn word(volume: u8, sector: u64, version: Version, at: u64) -> u64 {
    let mut word = (u64::from(volume) << 56) ^ (sector << 20) ^ u64::from(version) ^ (at << 50);
    word = (word ^ (word >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (word ^ (word >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d)
}

fn fill(bytes: &mut [u8], volume: u8, sector: u64, version: Version) {
    for (word_at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let word = match word_at {
            0 => u64::from(version) | 1 << 63,
            _ => word(volume, sector, version, word_at as u64),
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the write of that sector that left these bytes; `None` if none did.
fn version_of(bytes: &[u8], volume: u8, sector: u64) -> Option<Version> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(ZEROES);
    }
    let version = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    let mut whole = [0; SECTOR];
    fill(&mut whole, volume, sector, version);
    (whole == *bytes).then_some(version)
}

impl ClientPart {
    /// The sectors `sectors` of the volume of this number, which hold zeroes.
    pub fn new(volume: u8, sectors: Range<u64>) -> ClientPart {
        ClientPart {
            volume,
            first: sectors.start,
            held: vec![ZEROES; (sectors.end - sectors.start) as usize],
            doubt: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            losses: 0,
            last: ZEROES,
        }
    }

    /// Sectors of the part.
    pub fn sectors(&self) -> Range<u64> {
        self.first..self.first + self.held.len() as u64
    }

    /// Writes the whole part in the model. Returns its bytes.
    pub fn fill(&mut self) -> Vec<u8> {
        let sectors = self.sectors();
        let (version, bytes) = self.write(&sectors);
        self.end(&sectors, version, true);
        self.flushed(sectors);
        bytes
    }

    /// Begins a write of these sectors. Returns its version and bytes.
    pub fn write(&mut self, sectors: &Range<u64>) -> (Version, Vec<u8>) {
        self.last += 1;
        let version = self.last;
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
        for (sector, chunk) in sectors.clone().zip(bytes.chunks_exact_mut(SECTOR)) {
            fill(chunk, self.volume, sector, version);
        }
        self.begin(sectors, version);
        (version, bytes)
    }

    /// Begins a write of zeroes.
    pub fn zero(&mut self, sectors: &Range<u64>) -> Version {
        self.begin(sectors, ZEROES);
        ZEROES
    }

    fn begin(&mut self, sectors: &Range<u64>, version: Version) {
        for sector in sectors.clone() {
            let held = self.held[(sector - self.first) as usize];
            let doubt = self.doubt.entry(sector).or_insert_with(|| Doubt {
                may: vec![held],
                failed: false,
            });
            doubt.may.push(version);
        }
    }

    /// Ends the write of `version`, acknowledged or not.
    pub fn end(&mut self, sectors: &Range<u64>, version: Version, acknowledged: bool) {
        for sector in sectors.clone() {
            let Some(doubt) = self.doubt.get_mut(&sector) else {
                continue;
            };
            doubt.failed |= !acknowledged;
            // An earlier write that failed may still land over this one.
            if !doubt.failed {
                let held = &mut self.held[(sector - self.first) as usize];
                self.unflushed.entry(sector).or_default().push(*held);
                *held = version;
                self.doubt.remove(&sector);
            }
        }
    }

    /// Notes that acknowledged writes of these sectors are durable.
    pub fn flushed(&mut self, sectors: Range<u64>) {
        self.unflushed.retain(|sector, _| !sectors.contains(sector));
    }

    /// Takes the origin's losses into the model, by their number so far: unflushed writes and
    /// writes in flight may be lost.
    pub fn forget(&mut self, losses: u64) {
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        self.doubt
            .values_mut()
            .for_each(|doubt| doubt.failed = true);
        for (sector, before) in std::mem::take(&mut self.unflushed) {
            let held = self.held[(sector - self.first) as usize];
            let doubt = self.doubt.entry(sector).or_insert_with(|| Doubt {
                may: vec![held],
                failed: true,
            });
            doubt.may.extend(before);
        }
    }

    /// Fails if these bytes may not be read from `first` on.
    pub fn check(&self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (sector, chunk) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let found = version_of(chunk, self.volume, sector);
            let held = [self.held[(sector - self.first) as usize]];
            let may = self.doubt.get(&sector);
            let may = may.map_or(&held[..], |doubt| &doubt.may);
            if !found.is_some_and(|version| may.contains(&version)) {
                let found = found.map_or("bytes of no write".into(), |v| format!("write {v}"));
                return Err(format!(
                    "volume {} sector {sector}: {found} where one of {may:?} may be",
                    self.volume
                ));
            }
        }
        Ok(())
    }

    /// As [`ClientPart::check`]; then the bytes read are the only possible contents.
    pub fn pin(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        self.check(first, bytes)?;
        for (sector, chunk) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            if self.doubt.remove(&sector).is_some() {
                let version = version_of(chunk, self.volume, sector);
                self.held[(sector - self.first) as usize] = version.expect("it was checked");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_is_all_that_may_be_read() {
        let mut part = ClientPart::new(1, 8..16);
        let (old, old_bytes) = part.write(&(9..11));
        part.check(9, &old_bytes).unwrap();
        part.end(&(9..11), old, true);
        let (new, new_bytes) = part.write(&(9..11));
        part.check(9, &old_bytes).unwrap();
        part.end(&(9..11), new, true);
        part.check(9, &new_bytes).unwrap();
        assert!(part.check(9, &old_bytes).is_err());
        assert!(part.check(8, &[0; 2 * SECTOR]).is_err());
        assert!(
            part.check(10, &new_bytes[..SECTOR]).is_err(),
            "another place"
        );
    }

    #[test]
    fn a_write_that_failed_is_old_or_new_until_it_was_read_at_rest() {
        let mut part = ClientPart::new(0, 0..4);
        let (first, first_bytes) = part.write(&(0..1));
        part.end(&(0..1), first, true);
        let (failed, failed_bytes) = part.write(&(0..1));
        part.end(&(0..1), failed, false);
        let (last, last_bytes) = part.write(&(0..1));
        part.end(&(0..1), last, true);
        for bytes in [&first_bytes, &failed_bytes, &last_bytes] {
            part.check(0, bytes).unwrap();
        }
        part.pin(0, &failed_bytes).unwrap();
        assert!(part.check(0, &last_bytes).is_err());
    }

    #[test]
    fn what_was_not_flushed_may_be_forgotten_and_what_was_may_not() {
        let mut part = ClientPart::new(0, 0..4);
        let (first, first_bytes) = part.write(&(0..1));
        part.end(&(0..1), first, true);
        part.flushed(0..4);
        let (second, second_bytes) = part.write(&(0..1));
        part.end(&(0..1), second, true);
        assert!(part.check(0, &first_bytes).is_err());
        part.forget(1);
        part.check(0, &first_bytes).unwrap();
        part.check(0, &second_bytes).unwrap();
        assert!(
            part.check(0, &[0; SECTOR]).is_err(),
            "it was overwritten durably"
        );
    }
}
