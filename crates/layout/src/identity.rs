//! The identity of a device, as records of origins and superblocks of logs keep it.
//!
//! An identity is a text, or a set of facts. A text is a name that its source guarantees: the URI
//! of an export, the number of an array. Facts come from the kernel.
//!
//! ```text
//! text of at most 64 bytes, the first of which is no 1
//! 1 u8 | at most 9 times: kind u8, ascending | hash of the fact, 6 bytes
//! ```
//!
//! Invariants:
//!     one hard fact differs ⟹ two devices
//!     a path proves nothing: the kernel gives names again at each start
//!
//! Not here: the content of a device, which may prove or refute an open identity.

use std::collections::BTreeMap;
use twox_hash::XxHash3_64;

/// The longest identity.
pub const IDENTITY_BYTES_MAX: usize = 64;
const FACTS: u8 = 1;
const FACT_BYTES: usize = 7;

/// A kind of fact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Fact {
    /// The world-wide name of a disk.
    Wwid = 1,
    /// The serial number of a disk.
    Serial = 2,
    /// The UUID of a mapping or of an array of the kernel.
    Mapping = 3,
    /// The UUID of a partition.
    Partition = 4,
    /// The number of a partition.
    PartitionNumber = 5,
    /// The UUID of the file system of a file.
    FileSystem = 6,
    /// The number of a file in its file system.
    Inode = 7,
    /// The name that the file system of a file has for processes.
    FileSystemName = 8,
    /// The serial number that udev has made up.
    UdevSerial = 9,
    /// The bytes of a file that a loop device consists of.
    Part = 10,
    /// The path.
    Path = 11,
    /// The text by which former versions knew the device.
    Former = 12,
}

impl Fact {
    /// True if two values are two devices.
    fn is_hard(self) -> bool {
        matches!(
            self,
            Fact::Wwid
                | Fact::Serial
                | Fact::Mapping
                | Fact::Partition
                | Fact::FileSystem
                | Fact::Inode
                | Fact::Part
        )
    }

    /// True if one value is one device, unless another fact differs.
    fn proves(self) -> bool {
        matches!(
            self,
            Fact::Wwid
                | Fact::Serial
                | Fact::Mapping
                | Fact::Partition
                | Fact::FileSystem
                | Fact::FileSystemName
                | Fact::UdevSerial
        )
    }

    const ALL: [Fact; 12] = [
        Fact::Wwid,
        Fact::Serial,
        Fact::Mapping,
        Fact::Partition,
        Fact::PartitionNumber,
        Fact::FileSystem,
        Fact::Inode,
        Fact::FileSystemName,
        Fact::UdevSerial,
        Fact::Part,
        Fact::Path,
        Fact::Former,
    ];
}

/// The identity of a device; compared by [`likeness`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceIdentity(Vec<u8>);

/// The relation of two identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// The identities are of one device.
    Same,
    /// The identities may be of one device.
    Open,
    /// The identities are of two devices.
    Other,
}

impl DeviceIdentity {
    /// `text`, if short; else its beginning and a hash of all of it.
    pub fn new(text: &str) -> DeviceIdentity {
        let bytes = text.as_bytes();
        if bytes.len() <= IDENTITY_BYTES_MAX {
            return DeviceIdentity(bytes.to_vec());
        }
        let mut short = bytes[..IDENTITY_BYTES_MAX - 8].to_vec();
        short.extend(XxHash3_64::oneshot(bytes).to_le_bytes());
        DeviceIdentity(short)
    }

    /// The facts that are known; of too many the last are left out.
    pub fn of(facts: &BTreeMap<Fact, String>) -> DeviceIdentity {
        let mut bytes = vec![FACTS];
        let most = (IDENTITY_BYTES_MAX - bytes.len()) / FACT_BYTES;
        for (fact, value) in facts.iter().take(most) {
            bytes.push(*fact as u8);
            bytes.extend(hashed(value.as_bytes()));
        }
        DeviceIdentity(bytes)
    }

    /// The identity that these bytes, at most 64, are.
    pub fn from_bytes(bytes: &[u8]) -> Option<DeviceIdentity> {
        (bytes.len() <= IDENTITY_BYTES_MAX).then(|| DeviceIdentity(bytes.to_vec()))
    }

    /// The identity's bytes; at most 64.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The part of the identity that stays for as long as a kernel runs, whatever path leads to the
    /// device and whatever udev has found out: as a key, not as a proof.
    pub fn key(&self) -> Vec<u8> {
        let Some(facts) = facts(&self.0) else {
            return self.0.clone();
        };
        let known = |kinds: &[Fact]| {
            let known = facts.iter().filter(|(kind, _)| kinds.contains(kind));
            known.copied().collect::<Vec<_>>()
        };
        let disk = known(&[Fact::Wwid, Fact::Serial, Fact::Mapping]);
        let file = known(&[Fact::Inode, Fact::Part]);
        let system = known(&[Fact::FileSystem]);
        let whose = match (disk.is_empty(), file.is_empty(), system.is_empty()) {
            (false, ..) => disk,
            (_, false, false) => [system, file].concat(),
            (_, false, true) => [known(&[Fact::FileSystemName]), file].concat(),
            _ => known(&[Fact::Path]),
        };
        let part = known(&[Fact::Partition, Fact::PartitionNumber]);
        let key = whose.into_iter().chain(part);
        key.flat_map(|(kind, hash)| [&[kind as u8], &hash[..]].concat())
            .collect()
    }

    /// True if nothing speaks against `now` as the same device, while one kernel runs. A fact that
    /// only one of both identities has says nothing: udev may have been late.
    pub fn stays(&self, now: &DeviceIdentity) -> bool {
        let [then, facts] = [self, now].map(|identity| facts(&identity.0).unwrap_or_default());
        let differs = |kind, hash| facts.iter().any(|(k, h)| *k == kind && *h != hash);
        match likeness(&self.0, &now.0) {
            Likeness::Same => true,
            Likeness::Open => !then
                .iter()
                .any(|(kind, hash)| kind.proves() && differs(*kind, *hash)),
            Likeness::Other => false,
        }
    }

    /// True if the same identity at another time proves the same device.
    pub fn proves(&self) -> bool {
        likeness(&self.0, &self.0) == Likeness::Same
    }
}

type Hash = [u8; 6];

fn hashed(value: &[u8]) -> Hash {
    let hash = XxHash3_64::oneshot(value).to_le_bytes();
    hash[..6].try_into().expect("six of eight")
}

/// The facts of an identity; `None` of a text.
fn facts(bytes: &[u8]) -> Option<Vec<(Fact, Hash)>> {
    let (&FACTS, rest) = bytes.split_first()? else {
        return None;
    };
    let fact = |piece: &[u8]| {
        let kind = Fact::ALL.into_iter().find(|kind| *kind as u8 == piece[0])?;
        Some((kind, piece[1..].try_into().expect("six bytes")))
    };
    Some(rest.chunks_exact(FACT_BYTES).filter_map(fact).collect())
}

/// The relation of `was`, the kept identity, and `is`, the driver's of now.
pub fn likeness(was: &[u8], is: &[u8]) -> Likeness {
    let (then, now) = match (facts(was), facts(is)) {
        (Some(then), Some(now)) => (then, now),
        (None, Some(now)) => return former(was, &now),
        _ if was == is => return Likeness::Same,
        _ => return Likeness::Other,
    };
    let of = |all: &[(Fact, Hash)], kind| all.iter().find(|(k, _)| *k == kind).map(|(_, v)| *v);
    let agrees = |kind| Some(of(&then, kind)? == of(&now, kind)?);
    let mut proven = None;
    for kind in Fact::ALL {
        match agrees(kind) {
            Some(false) if kind.is_hard() => return Likeness::Other,
            Some(same) if kind.proves() => proven = Some(proven == Some(true) || same),
            _ => (),
        }
    }
    // A partition table may be written again around a partition: its number proves less than its
    // UUID.
    if agrees(Fact::Partition).is_none() && agrees(Fact::PartitionNumber) == Some(false) {
        return Likeness::Other;
    }
    match proven {
        Some(true) => Likeness::Same,
        None if agrees(Fact::Path) == Some(false) => Likeness::Other,
        _ => Likeness::Open,
    }
}

/// The relation that a text of a former version gives.
fn former(was: &[u8], now: &[(Fact, Hash)]) -> Likeness {
    let has = |kind, value: &[u8]| now.contains(&(kind, hashed(value)));
    // `file INODE of DEVICE`, where the device's number changes from one start to the next.
    let file = was.strip_prefix(b"file ");
    let inode = file.and_then(|rest| rest.split(|byte| *byte == b' ').next());
    match inode {
        _ if has(Fact::Former, was) && was.first() == Some(&b'/') => Likeness::Open,
        _ if has(Fact::Former, was) => Likeness::Same,
        Some(inode) if has(Fact::Inode, inode) => Likeness::Open,
        _ => Likeness::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(facts: &[(Fact, &str)]) -> DeviceIdentity {
        let facts = facts
            .iter()
            .map(|(fact, value)| (*fact, (*value).to_owned()));
        DeviceIdentity::of(&facts.collect())
    }

    #[test]
    fn the_key_of_a_device_stays_when_its_path_changes_and_udev_comes() {
        use Fact::*;
        let key = |facts: &[(Fact, &str)]| of(facts).key();
        let disk = [(Serial, "s1"), (Path, "/dev/vda")];
        let linked = [
            (Serial, "s1"),
            (UdevSerial, "u"),
            (Path, "/dev/disk/by-id/x"),
        ];
        assert_eq!(key(&disk), key(&linked));
        assert_ne!(key(&disk), key(&[(Serial, "s2"), (Path, "/dev/vda")]));
        let part = |number, uuid| {
            let all = [(Serial, "s1"), (Partition, uuid), (PartitionNumber, number)];
            key(&all)
        };
        assert_ne!(part("1", "a"), part("2", "b"));
        assert_ne!(part("1", "a"), part("1", "b"));
        assert_ne!(part("1", "a"), key(&disk));
        let file = |system, inode, path| {
            let name = (FileSystemName, "n");
            key(&[(FileSystem, system), (Inode, inode), name, (Path, path)])
        };
        assert_eq!(file("f", "7", "/a"), file("f", "7", "/link"));
        assert_ne!(file("f", "7", "/a"), file("f", "8", "/a"));
        assert_ne!(file("f", "7", "/a"), file("g", "7", "/a"));
        let unknown = |path| key(&[(Path, path)]);
        assert_ne!(unknown("/dev/vda"), unknown("/dev/vdb"));
        assert_eq!(DeviceIdentity::new("nbd://h/v").key(), b"nbd://h/v");
    }

    #[test]
    fn a_device_stays_if_udev_comes_late_and_not_if_its_serial_number_changes() {
        use Fact::{Inode, Path, Serial, UdevSerial, Wwid};
        let stays = |was: &[(Fact, &str)], is: &[(Fact, &str)]| of(was).stays(&of(is));
        let bare = [(Path, "/dev/sdb")];
        let [one, other] = ["1", "2"].map(|serial| [(UdevSerial, serial), (Path, "/dev/sdb")]);
        assert!(stays(&bare, &bare) && stays(&bare, &one) && stays(&one, &bare));
        assert!(!stays(&one, &other));
        let known = [(Serial, "s"), (UdevSerial, "1"), (Path, "/dev/sdb")];
        assert!(stays(
            &known,
            &[(Serial, "s"), (UdevSerial, "2"), (Path, "/dev/sdb")]
        ));
        assert!(stays(&one, &[(Wwid, "w"), (UdevSerial, "1")]));
        assert!(!stays(&known, &[(Serial, "t"), (UdevSerial, "1")]));
        assert!(!stays(&[(Inode, "7"), bare[0]], &[(Inode, "8"), bare[0]]));
        assert!(!stays(&bare, &[(Path, "/dev/sdc")]));
        let uri = DeviceIdentity::new("nbd://h/a");
        assert!(uri.stays(&uri) && !uri.stays(&DeviceIdentity::new("nbd://h/b")));
    }

    #[track_caller]
    fn check(was: &[(Fact, &str)], is: &[(Fact, &str)], expected: Likeness) {
        let (was, is) = (of(was), of(is));
        assert_eq!(likeness(was.bytes(), is.bytes()), expected);
        assert_eq!(likeness(is.bytes(), was.bytes()), expected);
    }

    #[test]
    fn disks_are_known_by_what_does_not_change_with_their_names() {
        use Fact::{Inode, Partition, PartitionNumber, Path, Serial, UdevSerial, Wwid};
        use Likeness::{Open, Other, Same};
        let (sdb, sdc) = ((Path, "/dev/sdb"), (Path, "/dev/sdc"));
        check(&[(Wwid, "1"), sdb], &[(Wwid, "1"), sdc], Same);
        check(&[(Wwid, "1"), sdb], &[(Wwid, "2"), sdb], Other);
        // Of two parts of one storage the serial number is one.
        check(
            &[(Wwid, "1"), (Serial, "x")],
            &[(Wwid, "2"), (Serial, "x")],
            Other,
        );
        check(
            &[(Serial, "x"), sdb],
            &[(Wwid, "1"), (Serial, "x"), sdc],
            Same,
        );
        // A serial number made up by a rule of udev may change.
        check(&[(UdevSerial, "x"), sdb], &[(UdevSerial, "y"), sdb], Open);
        check(&[sdb], &[sdb], Open);
        check(&[sdb], &[sdc], Other);
        check(&[sdb], &[(Wwid, "1"), sdb], Open);
        check(&[], &[], Open);
        let part = |uuid: &'static str, number: &'static str| {
            [(Partition, uuid), (PartitionNumber, number), (Wwid, "1")]
        };
        check(&part("u", "1"), &part("u", "2"), Same);
        check(&part("u", "1"), &part("v", "1"), Other);
        check(
            &part("u", "1"),
            &[(PartitionNumber, "2"), (Wwid, "1")],
            Other,
        );
        check(&[(Inode, "1"), sdb], &[(Inode, "2"), sdb], Other);
    }

    #[test]
    fn a_file_is_known_by_its_file_system_whatever_number_that_has() {
        use Fact::{FileSystem, FileSystemName, Inode, Path};
        use Likeness::{Open, Other, Same};
        let file = |system: Fact, value: &'static str, inode: &'static str| {
            [(system, value), (Inode, inode), (Path, "/a")]
        };
        check(
            &file(FileSystem, "u", "12"),
            &file(FileSystem, "u", "12"),
            Same,
        );
        check(
            &file(FileSystem, "u", "12"),
            &file(FileSystem, "v", "12"),
            Other,
        );
        check(
            &file(FileSystem, "u", "12"),
            &file(FileSystem, "u", "13"),
            Other,
        );
        check(
            &file(FileSystemName, "u", "12"),
            &file(FileSystemName, "v", "12"),
            Open,
        );
        check(
            &file(FileSystem, "u", "12"),
            &file(FileSystemName, "u", "12"),
            Open,
        );
    }

    #[test]
    fn what_former_versions_kept_is_understood() {
        let file = of(&[
            (Fact::FileSystem, "u"),
            (Fact::Inode, "12"),
            (Fact::Former, "file 12 of 64768"),
        ]);
        let disk = of(&[(Fact::Former, "S123 1"), (Fact::PartitionNumber, "1")]);
        let path = of(&[(Fact::Path, "/dev/sdb"), (Fact::Former, "/dev/sdb")]);
        for (was, is, expected) in [
            ("file 12 of 64768", &file, Likeness::Same),
            ("file 12 of 2065", &file, Likeness::Open),
            ("file 13 of 64768", &file, Likeness::Other),
            ("S123 1", &disk, Likeness::Same),
            ("S124 1", &disk, Likeness::Other),
            ("/dev/sdb", &path, Likeness::Open),
            ("/dev/sdc", &path, Likeness::Other),
        ] {
            assert_eq!(likeness(was.as_bytes(), is.bytes()), expected, "{was}");
        }
        let (uri, other) = (
            DeviceIdentity::new("nbd://h/a"),
            DeviceIdentity::new("nbd://h/b"),
        );
        assert_eq!(likeness(uri.bytes(), uri.bytes()), Likeness::Same);
        assert_eq!(likeness(uri.bytes(), other.bytes()), Likeness::Other);
        assert_eq!(likeness(file.bytes(), uri.bytes()), Likeness::Other);
    }

    #[test]
    fn an_identity_has_room_for_its_facts_and_no_more() {
        let all = Fact::ALL.map(|fact| (fact, "value"));
        assert_eq!(of(&all).bytes().len(), IDENTITY_BYTES_MAX);
        assert!(DeviceIdentity::from_bytes(of(&all).bytes()).is_some());
        assert!(DeviceIdentity::from_bytes(&[0; IDENTITY_BYTES_MAX + 1]).is_none());
        assert!(of(&[(Fact::Serial, "x")]).proves() && !of(&[(Fact::Path, "/x")]).proves());
        assert!(DeviceIdentity::new("nbd://h/a").proves());
    }

    #[test]
    fn long_texts_differ_by_their_ends_too() {
        let long = |end| DeviceIdentity::new(&format!("{}{end}", "x".repeat(100)));
        assert_ne!(long('a'), long('b'));
        assert_eq!(long('a').bytes().len(), IDENTITY_BYTES_MAX);
    }
}
