//! The place of a device: the file, disk or export behind its name, and the range of its bytes.
//!
//! Two devices share a place if these bytes overlap, whatever names the devices have: links, a
//! second node of one block device, partitions, loop devices. The place of a loop device is the
//! part of its file that the loop device shows.
//!
//! Not here: mappings of the kernel (dm, md), which hold their disks exclusively; tests that a
//! place can be used.

use crate::config::Device;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most links between block devices that are followed; the place reached is then taken as it is.
const DEPTH_MAX: u32 = 8;
const SECTOR_BYTES: u64 = block::SECTOR_BYTES;

/// The carrier of the bytes of a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// An export, or a path without a file.
    Name(String),
    /// A file.
    File {
        /// Number of the file system.
        dev: u64,
        /// Inode number in the file system.
        inode: u64,
    },
    /// A whole block device, by its number.
    Disk(u64),
}

/// A range of bytes of a base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BasePlace {
    /// Carrier of the bytes.
    pub base: Base,
    /// First byte.
    pub from: u64,
    /// End of the bytes, exclusive.
    pub to: u64,
    /// The file behind a loop device.
    pub backing: Option<PathBuf>,
}

impl BasePlace {
    /// All of `base`.
    fn whole(base: Base) -> BasePlace {
        BasePlace {
            base,
            from: 0,
            to: u64::MAX,
            backing: None,
        }
    }

    /// A place of which only the name is known.
    pub fn named(name: impl Into<String>) -> BasePlace {
        BasePlace::whole(Base::Name(name.into()))
    }

    /// The place of `device`, as this machine has it now.
    pub fn of(device: &Device) -> BasePlace {
        match (&device.path, &device.nbd) {
            (Some(path), _) => BasePlace::at(&path.value),
            (None, Some(uri)) => BasePlace::named(uri.value.place()),
            (None, None) => BasePlace::named(format!("{} without a place", device.name.value)),
        }
    }

    /// The place of `device` by its configured name alone.
    pub fn said(device: &Device) -> BasePlace {
        let path = device.path.as_ref().map(|path| path.value.display());
        let uri = device.nbd.as_ref().map(|uri| uri.value.place());
        let name = path.map(|path| path.to_string()).or(uri);
        BasePlace::named(name.unwrap_or_default())
    }

    /// The place of the file or block device at `path`.
    pub fn at(path: &Path) -> BasePlace {
        BasePlace::follow(path, Path::new("/sys/dev/block"), DEPTH_MAX)
    }

    fn follow(path: &Path, sysfs: &Path, depth: u32) -> BasePlace {
        let Ok(meta) = fs::metadata(path) else {
            return BasePlace::named(path.display().to_string());
        };
        match block_number(&meta) {
            Some(number) => BasePlace::of_block(number, sysfs, depth),
            None => BasePlace::whole(Base::File {
                dev: meta.dev(),
                inode: meta.ino(),
            }),
        }
    }

    /// The place of the block device `number`, which `sysfs` describes.
    fn of_block(number: u64, sysfs: &Path, depth: u32) -> BasePlace {
        let whole = BasePlace::whole(Base::Disk(number));
        if depth == 0 {
            return whole;
        }
        let about = sysfs.join(numbers(number));
        let value = |name: &str| fs::read_to_string(about.join(name)).ok();
        let count = |name: &str| value(name)?.trim().parse::<u64>().ok();
        if let (true, Some(start), Some(size)) = (
            about.join("partition").exists(),
            count("start"),
            count("size"),
        ) && let Some(disk) = parent(&about)
        {
            let (start, size) = (start * SECTOR_BYTES, size * SECTOR_BYTES);
            return BasePlace::of_block(disk, sysfs, depth - 1).part(start, Some(size));
        }
        let Some(file) = value("loop/backing_file") else {
            return whole;
        };
        let file = PathBuf::from(file.trim_end_matches('\n'));
        let size = count("loop/sizelimit").filter(|size| *size > 0);
        let below = BasePlace::follow(&file, sysfs, depth - 1);
        match below.base {
            // The file was removed, or is visible to other processes alone.
            Base::Name(_) => whole,
            _ => {
                let mut place = below.part(count("loop/offset").unwrap_or(0), size);
                place.backing.get_or_insert(file);
                place
            }
        }
    }

    /// The bytes of this place from `offset` on, at most `size`.
    fn part(self, offset: u64, size: Option<u64>) -> BasePlace {
        let from = self.from.saturating_add(offset);
        let to = size.map_or(self.to, |size| self.to.min(from.saturating_add(size)));
        BasePlace { from, to, ..self }
    }

    /// True if bytes written to one place may be read from the other.
    pub fn overlaps(&self, other: &BasePlace) -> bool {
        self.base == other.base && self.from < other.to && other.from < self.to
    }

    /// True if both places are the same bytes.
    pub fn is(&self, other: &BasePlace) -> bool {
        self.base == other.base && (self.from, self.to) == (other.from, other.to)
    }
}

/// The number of a block device; `None` for another file.
fn block_number(meta: &Metadata) -> Option<u64> {
    let is_block = meta.file_type().is_block_device();
    is_block.then(|| meta.rdev())
}

/// `MAJOR:MINOR`, as the C library splits a number.
fn numbers(number: u64) -> String {
    let major = ((number >> 8) & 0xfff) | ((number >> 32) & !0xfff);
    let minor = (number & 0xff) | ((number >> 12) & !0xff);
    format!("{major}:{minor}")
}

/// The number of the disk of the partition that `about` describes.
fn parent(about: &Path) -> Option<u64> {
    let real = about.canonicalize().ok()?;
    let text = fs::read_to_string(real.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    let low = (major & 0xfff) << 8 | (minor & 0xff);
    Some(low | (major & !0xfff) << 32 | (minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree like that of the kernel: disk 8:0 with partitions 8:1 and 8:2, and loop
    /// devices 7:0 over all of `file` and 7:1 over a part of it.
    fn sysfs(dir: &Path, file: &Path) -> PathBuf {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/sda/dev", "8:0\n");
        for (n, start) in [(1, 2048), (2, 4096)] {
            let partition = format!("devices/sda/sda{n}");
            write(&format!("{partition}/dev"), &format!("8:{n}\n"));
            write(&format!("{partition}/partition"), &format!("{n}\n"));
            write(&format!("{partition}/start"), &format!("{start}\n"));
            write(&format!("{partition}/size"), "2048\n");
        }
        let file = format!("{}\n", file.display());
        for (n, offset, limit) in [(0, 0, 0), (1, 1 << 20, 1 << 20)] {
            write(&format!("devices/loop{n}/dev"), &format!("7:{n}\n"));
            let of = |name: &str| format!("devices/loop{n}/loop/{name}");
            write(&of("backing_file"), &file);
            write(&of("offset"), &format!("{offset}\n"));
            write(&of("sizelimit"), &format!("{limit}\n"));
        }
        fs::create_dir_all(dir.join("block")).unwrap();
        for (number, of) in [
            ("8:0", "sda"),
            ("8:1", "sda/sda1"),
            ("8:2", "sda/sda2"),
            ("7:0", "loop0"),
            ("7:1", "loop1"),
        ] {
            symlink(dir.join("devices").join(of), dir.join("block").join(number)).unwrap();
        }
        dir.join("block")
    }

    #[test]
    fn partitions_and_loop_devices_are_parts_of_what_is_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        fs::write(&file, "").unwrap();
        let sysfs = sysfs(dir.path(), &file);
        let at =
            |major: u64, minor: u64| BasePlace::of_block(major << 8 | minor, &sysfs, DEPTH_MAX);
        let (disk, first, second) = (at(8, 0), at(8, 1), at(8, 2));
        assert!(disk.overlaps(&first) && second.overlaps(&disk) && !disk.is(&first));
        assert!(!first.overlaps(&second) && first.is(&at(8, 1)));
        assert_eq!((second.from, second.to), (4096 * 512, 6144 * 512));
        let (all, part, image) = (at(7, 0), at(7, 1), BasePlace::at(&file));
        assert!(all.is(&image) && part.overlaps(&image) && !part.is(&image));
        assert_eq!(part.backing.as_deref(), Some(&*file));
        assert!(!all.overlaps(&disk));
        // A file that is gone has no place but its name.
        fs::remove_file(&file).unwrap();
        assert_eq!(at(7, 0).base, Base::Disk(7 << 8));
    }

    #[test]
    fn links_of_a_file_are_one_place() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        symlink(at("hard"), at("soft")).unwrap();
        let place = |name: &str| BasePlace::at(&at(name));
        assert!(place("a").is(&place("hard")) && place("a").is(&place("soft")));
        assert!(!place("a").overlaps(&place("b")) && !place("a").overlaps(&place("none")));
        assert!(place("none").is(&place("none")));
    }

    #[test]
    fn large_numbers_are_split_as_the_kernel_does() {
        assert_eq!(numbers(8 << 8 | 1), "8:1");
        assert_eq!(numbers(259 << 8 | 0x10_0000 | 2), "259:258");
    }
}
