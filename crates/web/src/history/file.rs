//! The file of a history: a head, names, and for each name a ring of records for each interval.
//!
//! Invariants:
//!     the file ends behind the places of its names, and never shrinks
//!     a record is taken ⟺ its checksum is that of its bytes and of its owner's name, and its
//!     interval belongs at its place: a torn record, or one of a former owner, is not taken
//!
//! The file is sparse: a name that is not used takes no space.
//!
//! Not here: durability. A power cut may cost the last samples.

use super::sample::{FIGURES, Sample};
use control::replace::{PRIVATE, replace_with};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

/// Intervals of one length.
pub struct IntervalRing {
    /// The length.
    pub step_s: u64,
    /// The place of the first record, among the records of a name.
    first: u64,
}

/// Records of each ring.
const RECORDS: u64 = 8640;
/// A day at ten seconds, and thirty days at five minutes.
pub const RINGS: [IntervalRing; 2] = [
    IntervalRing {
        step_s: 10,
        first: 0,
    },
    IntervalRing {
        step_s: 300,
        first: RECORDS,
    },
];

impl IntervalRing {
    /// The time that its records cover.
    pub fn span_s(&self) -> u64 {
        self.step_s * RECORDS
    }
}

/// Volumes with a place each.
pub const VOLUMES_MAX: usize = 4096;
/// Places of owners: one for all volumes together, without a name, the others with a name each.
const OWNERS: usize = 1 + VOLUMES_MAX;
/// The first bytes of the file; the digit is the version.
const MAGIC: &[u8; 16] = b"hotset history 2";
const NAME_BYTES: usize = 128;
/// The offset of a name, after its checksum and length.
const NAME_AT: usize = 5;
/// Bytes of a record: its checksum, its interval and its figures.
const RECORD_BYTES: usize = 8 + 4 * FIGURES;
const NAMES_BYTES: usize = OWNERS * NAME_BYTES;
const NAMES_AT: u64 = MAGIC.len() as u64;
const RECORDS_AT: u64 = NAMES_AT + NAMES_BYTES as u64;
const OWNER_BYTES: u64 = 2 * RECORDS * RECORD_BYTES as u64;
/// The file grows by so many places.
const PLACES_STEP: usize = 64;
const STEP_BYTES: u64 = PLACES_STEP as u64 * OWNER_BYTES;

/// The size of a file with so many places.
fn file_bytes(places: usize) -> u64 {
    RECORDS_AT + places.div_ceil(PLACES_STEP) as u64 * STEP_BYTES
}

/// The place of each name.
type Names = HashMap<String, usize>;

/// An open file.
pub struct HistoryFile {
    path: PathBuf,
    file: fs::File,
    names: Names,
    trouble: Option<String>,
}

impl HistoryFile {
    /// Opens the file at `path`, or makes a missing one. The second result is the reason why
    /// another file was set aside there.
    pub fn open(path: &Path) -> Result<(HistoryFile, Option<String>), String> {
        let unusable = |error: io::Error| {
            let path = path.display();
            format!(
                "no history is kept: {path} cannot be used ({error}); make its directory writable \
                 and start again"
            )
        };
        let other = is_other(path).map_err(unusable)?;
        let aside = match other {
            Some(why) => Some(set_aside(path, why).map_err(unusable)?),
            None => None,
        };
        if !path.exists() {
            make(path).map_err(unusable)?;
        }
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).open(path);
        let file = file.map_err(unusable)?;
        let mut names = vec![0; NAMES_BYTES];
        file.read_exact_at(&mut names, NAMES_AT).map_err(unusable)?;
        let file = HistoryFile {
            path: path.to_owned(),
            file,
            names: parse_names(&names),
            trouble: None,
        };
        let last = file.names.values().max().copied().unwrap_or(0);
        file.reach(last).map_err(unusable)?;
        Ok((file, aside))
    }

    /// The reason why a sample was not kept at the last time, if so.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Keeps samples of one interval, each of the volume of that name or of all.
    pub fn write(&mut self, ring: &IntervalRing, samples: &[(Option<&str>, Sample)]) {
        let present: HashSet<&str> = samples.iter().filter_map(|(name, _)| *name).collect();
        let mut room = self.room(&present);
        let mut written = Ok(());
        for (name, sample) in samples {
            let owner = match name {
                None => Ok(Some(0)),
                Some(name) => self.owner(name, &mut room),
            };
            let kept = owner.and_then(|owner| {
                let Some(owner) = owner else { return Ok(()) };
                let record = encode(name.unwrap_or_default(), ring, sample);
                self.file
                    .write_all_at(&record, place(owner, ring, sample.at / ring.step_s))
            });
            written = written.and(kept);
        }
        let more = present.len() > VOLUMES_MAX;
        self.trouble = match written {
            Err(error) => {
                let path = self.path.display();
                Some(format!(
                    "{path} cannot be written ({error}); make room for it"
                ))
            }
            Ok(()) => more.then(|| {
                format!(
                    "of {} volumes, the history keeps the {VOLUMES_MAX} that were there first, and \
                     all together; `hotset status` has each",
                    present.len()
                )
            }),
        };
    }

    /// All samples of a ring, of a volume or of all together, in any order.
    pub fn read(&self, name: Option<&str>, ring: &IntervalRing) -> Vec<Sample> {
        let owner = match name {
            None => 0,
            Some(name) => match self.names.get(name) {
                Some(owner) => *owner,
                None => return Vec::new(),
            },
        };
        let mut bytes = vec![0; RECORDS as usize * RECORD_BYTES];
        if self
            .file
            .read_exact_at(&mut bytes, place(owner, ring, 0))
            .is_err()
        {
            return Vec::new();
        }
        decode_all(name.unwrap_or_default(), ring, &bytes)
    }

    /// Grows the file to have `place`.
    fn reach(&self, place: usize) -> io::Result<()> {
        let wanted = file_bytes(place + 1);
        match self.file.metadata()?.len() < wanted {
            true => self.file.set_len(wanted),
            false => Ok(()),
        }
    }

    /// Places for new names: the free ones, then those of names that are not present.
    fn room(&self, present: &HashSet<&str>) -> IntoIter<usize> {
        let taken: HashSet<usize> = self.names.values().copied().collect();
        let free = (1..OWNERS).filter(|place| !taken.contains(place));
        let gone = self.names.iter();
        let gone = gone.filter(|(name, _)| !present.contains(name.as_str()));
        let mut gone: Vec<usize> = gone.map(|(_, place)| *place).collect();
        gone.sort_unstable();
        free.chain(gone).collect::<Vec<_>>().into_iter()
    }

    /// The place of the owner `name`. A new name gets one of `room`. `None` if there is none, or if
    /// the name is too long.
    fn owner(&mut self, name: &str, room: &mut IntoIter<usize>) -> io::Result<Option<usize>> {
        if let Some(place) = self.names.get(name) {
            return Ok(Some(*place));
        }
        let Some((entry, place)) = encode_name(name).and_then(|entry| Some((entry, room.next()?)))
        else {
            return Ok(None);
        };
        let offset = NAMES_AT + (place * NAME_BYTES) as u64;
        self.reach(place)?;
        self.file.write_all_at(&entry, offset)?;
        self.names.retain(|_, other| *other != place);
        self.names.insert(name.to_owned(), place);
        Ok(Some(place))
    }
}

/// The reason why the file at `path` is no history of this version; `None` if it is one or missing.
fn is_other(path: &Path) -> io::Result<Option<&'static str>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut magic = [0; MAGIC.len()];
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
        return Ok(Some("is no history of this version"));
    }
    let places = file.metadata()?.len().checked_sub(RECORDS_AT);
    let is_whole = places.is_some_and(|bytes| bytes > 0 && bytes % STEP_BYTES == 0);
    Ok((!is_whole).then_some("has another size than a history"))
}

/// Renames the file at `path`. Returns a message about that.
fn set_aside(path: &Path, why: &str) -> io::Result<String> {
    let names = (1..).map(|n| path.with_extension(format!("old{n}")));
    let mut free = names.filter(|name| !name.exists());
    let aside = free.next().expect("numbers do not end");
    fs::rename(path, &aside)?;
    let (path, aside) = (path.display(), aside.display());
    Ok(format!(
        "{path} {why}: it is kept as {aside}, and a new history begins; remove {aside} if it is \
         of no use"
    ))
}

/// Makes an empty file, whole or not at all.
fn make(path: &Path) -> io::Result<()> {
    replace_with(path, PRIVATE, |file| {
        file.write_all_at(MAGIC, 0)?;
        file.set_len(file_bytes(1))
    })
}

/// The offset of the record of an interval.
fn place(owner: usize, ring: &IntervalRing, interval: u64) -> u64 {
    let record = ring.first + interval % RECORDS;
    RECORDS_AT + owner as u64 * OWNER_BYTES + record * RECORD_BYTES as u64
}

fn encode_name(name: &str) -> Option<[u8; NAME_BYTES]> {
    let mut entry = [0; NAME_BYTES];
    let len = u8::try_from(name.len()).ok().filter(|len| *len > 0)?;
    entry[NAME_AT - 1] = len;
    entry
        .get_mut(NAME_AT..NAME_AT + name.len())?
        .copy_from_slice(name.as_bytes());
    let checksum = crc32_iscsi(&entry[4..]);
    entry[..4].copy_from_slice(&checksum.to_le_bytes());
    Some(entry)
}

fn parse_name(entry: &[u8]) -> Option<String> {
    let (checksum, rest) = entry.split_first_chunk()?;
    if u32::from_le_bytes(*checksum) != crc32_iscsi(rest) {
        return None;
    }
    let (len, name) = rest.split_first()?;
    let name = name
        .get(..usize::from(*len))
        .filter(|name| !name.is_empty())?;
    Some(std::str::from_utf8(name).ok()?.to_owned())
}

fn parse_names(bytes: &[u8]) -> Names {
    let places = bytes.chunks(NAME_BYTES).zip(0..).skip(1);
    let named = places.filter_map(|(entry, place)| Some((parse_name(entry)?, place)));
    named.collect()
}

fn checksum(name: &str, record: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(name.as_bytes());
    digest.update(&record[4..]);
    digest.finalize() as u32
}

fn encode(name: &str, ring: &IntervalRing, sample: &Sample) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    // 32 bits of ten seconds last for 1,300 years.
    let interval = (sample.at / ring.step_s) as u32;
    let figures = sample
        .figures()
        .map(|figure| figure.unwrap_or(f32::NAN).to_le_bytes());
    let words = std::iter::once(interval.to_le_bytes()).chain(figures);
    for (at, word) in record[4..].chunks_exact_mut(4).zip(words) {
        at.copy_from_slice(&word);
    }
    let checksum = checksum(name, &record);
    record[..4].copy_from_slice(&checksum.to_le_bytes());
    record
}

fn decode(name: &str, ring: &IntervalRing, at: u64, record: &[u8]) -> Option<Sample> {
    let (words, _) = record.as_chunks::<4>();
    let mut words = words.iter().copied();
    let found = u32::from_le_bytes(words.next()?);
    let interval = u64::from(u32::from_le_bytes(words.next()?));
    // The bytes of a record never written are zero; their checksum is not.
    if found != checksum(name, record) || interval % RECORDS != at {
        return None;
    }
    let mut figure = || Some(f32::from_le_bytes(words.next()?)).filter(|f| f.is_finite());
    let figures = std::array::from_fn(|_| figure());
    Some(Sample::new(interval * ring.step_s, figures))
}

fn decode_all(name: &str, ring: &IntervalRing, bytes: &[u8]) -> Vec<Sample> {
    let records = bytes.chunks_exact(RECORD_BYTES).zip(0..);
    records
        .filter_map(|(record, at)| decode(name, ring, at, record))
        .collect()
}

/// Decodes `bytes` as names and as records, with their own checksums and with right ones.
#[cfg(any(test, feature = "fuzzing"))]
pub fn hostile(bytes: &[u8]) {
    for entry in bytes.chunks(NAME_BYTES) {
        if let Some(name) = parse_name(entry) {
            assert_eq!(
                encode_name(&name).as_ref().and_then(|e| parse_name(e)),
                Some(name)
            );
        }
    }
    let ring = &RINGS[0];
    decode_all("vol", ring, bytes);
    let mut found = Vec::new();
    for record in bytes.chunks_exact(RECORD_BYTES) {
        let mut record = record.to_vec();
        let right = checksum("vol", &record).to_le_bytes();
        record[..4].copy_from_slice(&right);
        let interval = u32::from_le_bytes([record[4], record[5], record[6], record[7]]);
        let at = u64::from(interval) % RECORDS;
        let sample = decode("vol", ring, at, &record).expect("its checksum is right");
        assert_eq!(decode("other", ring, at, &record), None);
        let again = decode("vol", ring, at, &encode("vol", ring, &sample));
        assert_eq!(again.as_ref(), Some(&sample));
        found.push(sample);
    }
    if let Some(first) = found.first() {
        let merged = super::sample::merged(first.at, &found);
        serde_json::to_string(&merged).expect("plain data");
    }
}
