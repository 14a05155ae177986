//! The identity of an origin's place, from facts of the kernel, udev and file systems.
//!
//! Not here: conclusions from an identity (`layout::likeness`).

use super::machine::block_device;
use control::place::BasePlace;
use layout::{DeviceIdentity, Fact};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

type Facts = BTreeMap<Fact, String>;

/// The identity of `place`, a path or a URI.
pub fn identity(place: &str) -> DeviceIdentity {
    let Ok(meta) = fs::metadata(place) else {
        return DeviceIdentity::new(place);
    };
    let mut facts = Facts::from([(Fact::Path, place.to_owned())]);
    let former = match block_device(&meta) {
        None => {
            file(Path::new(place), &meta, &mut facts);
            format!("file {} of {}", meta.ino(), meta.dev())
        }
        Some(about) => {
            let former = disk(&about, &mut facts).unwrap_or_else(|| place.to_owned());
            udev(meta.rdev(), &mut facts);
            loop_device(Path::new(place), &mut facts);
            former
        }
    };
    facts.insert(Fact::Former, former);
    DeviceIdentity::of(&facts)
}

/// The text of a file of sysfs, if not empty.
fn text(about: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(about.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Adds the kernel's facts on the block device at `about`, a disk or a partition. Returns the name
/// that former versions took.
fn disk(about: &Path, facts: &mut Facts) -> Option<String> {
    let number = text(about, "partition");
    let parent = || about.canonicalize().ok()?.parent().map(Path::to_owned);
    let whole = match &number {
        Some(_) => parent()?,
        None => about.to_owned(),
    };
    let first = |names: &[&str]| names.iter().find_map(|name| text(&whole, name));
    for (fact, names) in [
        (Fact::Wwid, &["wwid", "device/wwid"][..]),
        (Fact::Serial, &["serial", "device/serial"]),
        (Fact::Mapping, &["dm/uuid", "md/uuid"]),
    ] {
        facts.extend(first(names).map(|value| (fact, value)));
    }
    facts.extend(image(&whole).map(|name| (Fact::Wwid, name)));
    let former = ["wwid", "device/wwid", "device/serial", "dm/uuid"];
    let former = former.iter().find_map(|name| text(about, name));
    let former = former.map(|serial| format!("{serial} {}", number.as_deref().unwrap_or("")));
    if let Some(number) = number {
        facts.insert(Fact::PartitionNumber, number);
        let events = text(about, "uevent").unwrap_or_default();
        let uuid = events
            .lines()
            .find_map(|line| line.strip_prefix("PARTUUID="));
        facts.extend(uuid.map(|uuid| (Fact::Partition, uuid.to_lowercase())));
    }
    former
}

/// The name of an image of Ceph that the kernel has mapped: its cluster, its pool, name space and
/// id, and the snapshot. The names of pool and image may be given again.
fn image(disk: &Path) -> Option<String> {
    let fact = |name: &str| text(&disk.join("device"), name);
    let parts = ["cluster_fsid", "pool_id", "image_id", "snap_id"];
    let parts: Option<Vec<_>> = parts.into_iter().map(fact).collect();
    let space = fact("pool_ns").unwrap_or_default();
    Some(format!("rbd {} {space}", parts?.join(" ")))
}

/// Adds udev's facts on the block device of this number.
fn udev(number: u64, facts: &mut Facts) {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let known = fs::read_to_string(format!("/run/udev/data/b{major}:{minor}"));
    from_udev(&known.unwrap_or_default(), facts);
}

fn from_udev(known: &str, facts: &mut Facts) {
    let value = |key: &str| {
        let mut values = known.lines().filter_map(|line| line.strip_prefix("E:"));
        let value = values.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(value.to_owned()).filter(|value| !value.is_empty())
    };
    facts.extend(value("ID_SERIAL").map(|serial| (Fact::UdevSerial, serial)));
    if let Some(uuid) = value("ID_PART_ENTRY_UUID") {
        facts.entry(Fact::Partition).or_insert(uuid.to_lowercase());
    }
}

/// Adds the facts on a loop device: its file, and the part of that file.
fn loop_device(path: &Path, facts: &mut Facts) {
    let place = BasePlace::at(path);
    if let Some(backing) = &place.backing
        && let Ok(meta) = fs::metadata(backing)
        && block_device(&meta).is_none()
    {
        file(backing, &meta, facts);
        facts.insert(Fact::Part, format!("{} {}", place.from, place.to));
    }
}

/// Adds the facts on a file: its number, and its file system, which is known by more than its
/// device.
fn file(path: &Path, meta: &fs::Metadata, facts: &mut Facts) {
    facts.insert(Fact::Inode, meta.ino().to_string());
    let Ok(file) = File::open(path) else { return };
    facts.extend(file_system(&file).map(|uuid| (Fact::FileSystem, uuid)));
    facts.extend(file_system_name(&file).map(|name| (Fact::FileSystemName, name)));
}

/// `struct fsuuid2` of Linux.
#[repr(C)]
struct FsUuid {
    len: u8,
    uuid: [u8; 16],
}

/// The type of XFS in `statfs`.
const XFS_MAGIC: i64 = 0x5846_5342;
/// `FS_IOC_GETFSUUID`.
const GET_UUID: libc::c_ulong = 0x8011_1500;
/// `XFS_IOC_FSGEOMETRY_V1`, the length of its answer, and the place of the UUID in the answer.
const XFS_GEOMETRY: libc::c_ulong = 0x8070_5864;
const XFS_GEOMETRY_BYTES: usize = 112;
const XFS_UUID: std::ops::Range<usize> = 64..80;

/// The UUID of the file system of a file, if the kernel reports one.
fn file_system(file: &File) -> Option<String> {
    let mut answer = FsUuid {
        len: 0,
        uuid: [0; 16],
    };
    // SAFETY: the request writes one such structure.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), GET_UUID as _, &raw mut answer) };
    if asked == 0 {
        return Some(hexadecimal(&answer.uuid[..usize::from(answer.len).min(16)]));
    }
    // SAFETY: all zeroes are such a structure, and the call writes one.
    let is_xfs = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &raw mut about) == 0 && about.f_type as i64 == XFS_MAGIC
    };
    if !is_xfs {
        return None;
    }
    let mut geometry = [0u64; XFS_GEOMETRY_BYTES / 8];
    // SAFETY: the request writes so many bytes.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), XFS_GEOMETRY as _, geometry.as_mut_ptr()) };
    let bytes: Vec<u8> = geometry
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    (asked == 0).then(|| hexadecimal(&bytes[XFS_UUID]))
}

/// The identifier in `statfs` of the file system of a file; some file systems make it from their
/// UUID, others from their device's number.
fn file_system_name(file: &File) -> Option<String> {
    // SAFETY: all zeroes are such a structure, and the call writes one.
    let about = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        let asked = libc::fstatfs(file.as_raw_fd(), &raw mut about);
        (asked == 0).then_some(about)?
    };
    // SAFETY: the type is two integers, whatever their names.
    let name: [i32; 2] = unsafe { std::mem::transmute(about.f_fsid) };
    if about.f_type as i64 == XFS_MAGIC {
        return None;
    }
    if name == [0, 0] {
        let device = file.metadata().ok()?.dev();
        return mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?, device);
    }
    Some(format!("{:x} {:x?}", about.f_type, name))
}

/// The type and the source of the mount of the file system with that number, for a file system
/// without another name, as in user space. The name of a device as the source identifies nothing.
fn mounted(mounts: &str, number: u64) -> Option<String> {
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let of_it = |line: &&str| line.split(' ').nth(2) == Some(&number);
    let (_, what) = mounts.lines().find(of_it)?.split_once(" - ")?;
    let mut what = what.split(' ');
    let (kind, source) = (what.next()?, what.next()?);
    let is_named = !source.starts_with("/dev/") && source != "none";
    is_named.then(|| format!("{kind} {source}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Likeness, likeness};

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_partition_has_the_number_of_its_disk_and_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        // A disk of virtio; former versions did not see its number.
        write(dir, "vda/serial", "disk-1\n");
        write(dir, "vda/vda2/partition", "2\n");
        write(dir, "vda/vda2/uevent", "MAJOR=8\nPARTN=2\nPARTUUID=AB-01\n");
        let mut facts = Facts::new();
        assert_eq!(disk(&dir.join("vda/vda2"), &mut facts), None);
        let expected = [
            (Fact::Serial, "disk-1"),
            (Fact::Partition, "ab-01"),
            (Fact::PartitionNumber, "2"),
        ];
        let expected: Facts = expected.map(|(fact, value)| (fact, value.into())).into();
        assert_eq!(facts, expected);
        write(dir, "nvme0n1/wwid", "eui.1\n");
        write(dir, "nvme0n1/device/serial", "S1\n");
        let mut facts = Facts::new();
        let former = disk(&dir.join("nvme0n1"), &mut facts);
        assert_eq!(former.as_deref(), Some("eui.1 "));
        assert_eq!(facts.len(), 2, "{facts:?}");
    }

    #[test]
    fn an_image_of_ceph_is_known_by_its_id_and_not_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let facts = |about: &str| {
            let mut facts = Facts::new();
            disk(&dir.join(about), &mut facts);
            facts
        };
        let cluster = "701f119e-c8d2-429c-90da-dea1ce817e6d";
        write(dir, "rbd0/rbd0p1/partition", "1\n");
        write(dir, "rbd0/device/name", "data\n");
        write(dir, "rbd0/device/pool_ns", "\n");
        write(dir, "rbd0/device/cluster_fsid", &format!("{cluster}\n"));
        write(dir, "rbd0/device/pool_id", "1\n");
        write(dir, "rbd0/device/snap_id", "18446744073709551614\n");
        assert_eq!(facts("rbd0"), Facts::new(), "an image of the first format");
        write(dir, "rbd0/device/image_id", "100bde1a31e0\n");
        let name = format!("rbd {cluster} 1 100bde1a31e0 18446744073709551614 ");
        assert_eq!(facts("rbd0")[&Fact::Wwid], name);
        assert_eq!(facts("rbd0/rbd0p1")[&Fact::Wwid], name);
        let data = DeviceIdentity::of(&facts("rbd0"));
        assert!(data.proves());
        write(dir, "rbd0/device/name", "renamed\n");
        assert_eq!(DeviceIdentity::of(&facts("rbd0")), data);
        write(dir, "rbd0/device/image_id", "100c2ae8944a\n");
        let other = DeviceIdentity::of(&facts("rbd0"));
        assert_eq!(likeness(data.bytes(), other.bytes()), Likeness::Other);
    }

    #[test]
    fn a_file_system_in_user_space_is_known_by_its_mount() {
        let mounts = "36 35 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      61 36 0:52 / /mnt rw shared:1 - fuse.sshfs host:/a rw\n\
                      62 36 0:53 / /mnt2 rw - fuseblk /dev/sdb1 rw\n";
        let mounted = |major, minor| mounted(mounts, libc::makedev(major, minor));
        assert_eq!(mounted(0, 52).as_deref(), Some("fuse.sshfs host:/a"));
        assert_eq!(mounted(0, 53), None);
        assert_eq!(mounted(0, 54), None);
    }

    #[test]
    fn udev_is_asked_for_what_the_kernel_does_not_say() {
        let known = "S:disk/by-id/x\nE:ID_SERIAL=USB_1\nE:ID_PART_ENTRY_UUID=AB-02\nE:ID_WWN=\n";
        let mut facts = Facts::from([(Fact::Partition, "ab-01".into())]);
        from_udev(known, &mut facts);
        assert_eq!(facts[&Fact::Partition], "ab-01");
        assert_eq!(facts[&Fact::UdevSerial], "USB_1");
        let mut facts = Facts::new();
        from_udev(known, &mut facts);
        assert_eq!(facts[&Fact::Partition], "ab-02");
    }

    #[test]
    fn a_file_is_itself_by_any_name_and_a_copy_is_another() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("a"), "x").unwrap();
        fs::hard_link(at("a"), at("link")).unwrap();
        fs::copy(at("a"), at("copy")).unwrap();
        let compared = |one: &str, other: &str| {
            likeness(identity(&at(one)).bytes(), identity(&at(other)).bytes())
        };
        assert_eq!(compared("a", "a"), Likeness::Same);
        assert_eq!(compared("a", "link"), Likeness::Same);
        assert_eq!(compared("a", "copy"), Likeness::Other);
        let meta = fs::metadata(at("a")).unwrap();
        let former = format!("file {} of {}", meta.ino(), meta.dev());
        let now = identity(&at("a"));
        assert_eq!(likeness(former.as_bytes(), now.bytes()), Likeness::Same);
    }
}
