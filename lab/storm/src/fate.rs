//! Changes of devices, state and configuration while no daemon runs.

use crate::plan::{BACK, LOGS, STATE, one};
use crate::world::StormWorld;
use fastrand::Rng;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Classes of such changes.
pub const CLASSES: [&str; 13] = [
    "a device of a pool comes back blank",
    "a device of a pool comes back as it was",
    "a copy of the log comes back blank",
    "a copy of the log comes back as it was",
    "a member comes back blank",
    "a member comes back as it was",
    "two members are exchanged",
    "members of two arrays are exchanged",
    "the state is emptied",
    "write-back is configured again",
    "a device of a pool comes back cut short",
    "a copy of the log comes back cut short",
    "a member comes back cut short",
];

/// A section of a file of the configuration.
struct Section {
    /// The file up to the section's name.
    before: String,
    /// The rest of the section.
    own: String,
    /// The sections after that.
    rest: String,
    path: PathBuf,
}

/// Bytes of a piece of an image; a piece of zeroes takes no space.
const PIECE: usize = 64 << 10;

impl StormWorld<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.machine.back().join(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        self.machine.folder.join(format!("{name}.old"))
    }

    /// Makes a few changes.
    pub fn fates(&self, rng: &mut Rng) -> io::Result<()> {
        self.exports.iter().try_for_each(|export| export.flush())?;
        self.restore_sizes()?;
        let pool = one(rng, &self.plan.pool_devices());
        for _ in 0..rng.usize(..3) {
            let (array, victim) = match rng.choice(&self.plan.arrays) {
                Some(array) => (Some(array), self.standing.victim(array.name)),
                None => (None, None),
            };
            let number = match rng.u8(..13) {
                10 | 12 if !self.standing.is_settled() => continue,
                11 if self.standing.is_detached() => continue,
                number => number,
            };
            match number {
                0 => self.come_back(rng, CLASSES[0], pool)?,
                n @ (1 | 10) => self.come_back(rng, CLASSES[n as usize], pool)?,
                n @ (2 | 3 | 11) if self.standing.log_may_fail() => {
                    let log = self.standing.log();
                    self.standing.strike(&log);
                    self.come_back(rng, CLASSES[n as usize], &log)?;
                }
                n @ (4 | 5 | 12) => {
                    if let (Some(array), Some(victim)) = (array, victim) {
                        self.standing.treat(array.name);
                        self.come_back(rng, CLASSES[n as usize], &victim)?;
                    }
                }
                6 => {
                    if let Some(array) = array {
                        let other = array.members[rng.usize(..array.members.len())].clone();
                        self.exchange_members(array.name, &other)?;
                    }
                }
                7 => self.exchange_arrays()?,
                8 if self.standing.log_is_whole() => self.empty_state()?,
                9 => self.write_back_again()?,
                _ => {}
            }
        }
        self.take_images(rng)
    }

    /// Takes images of devices, which may come back in that state in a later life.
    fn take_images(&self, rng: &mut Rng) -> io::Result<()> {
        let arrays = self.plan.arrays.iter();
        let mut names: Vec<String> = arrays
            .filter_map(|array| self.standing.victim(array.name))
            .collect();
        let others = self.plan.pool_devices().into_iter().chain(LOGS);
        names.extend(others.map(str::to_owned));
        for name in names {
            let bytes = fs::read(self.file(&name))?;
            let is_whole = bytes.len() as u64 == self.length(&name);
            if !is_whole || (self.image(&name).exists() && rng.u8(..3) > 0) {
                continue;
            }
            let image = File::create(self.image(&name))?;
            image.set_len(bytes.len() as u64)?;
            for (number, piece) in bytes.chunks(PIECE).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    image.write_all_at(piece, (number * PIECE) as u64)?;
                }
            }
        }
        Ok(())
    }

    fn meet(&self, class: &str, device: &str) {
        self.found.happens(format!("{device}: {class}"));
        self.found.met(class);
    }

    /// Path of a device's contents before it was cut short.
    fn whole(&self, name: &str) -> PathBuf {
        self.machine.folder.join(format!("{name}.whole"))
    }

    fn length(&self, name: &str) -> u64 {
        self.plan.device(name).map_or(0, |device| device.mib << 20)
    }

    /// Gives devices that were cut short their size and contents again.
    pub fn restore_sizes(&self) -> io::Result<()> {
        for device in &self.plan.devices {
            let file = File::options().write(true).open(self.file(&device.name))?;
            let length = file.metadata()?.len();
            if length < self.length(&device.name) {
                let whole = fs::read(self.whole(&device.name))?;
                file.write_all_at(&whole[length as usize..], length)?;
            }
        }
        Ok(())
    }

    /// Brings the device back blank, cut short, or with its contents of some lives ago.
    fn come_back(&self, rng: &mut Rng, class: &str, name: &str) -> io::Result<()> {
        let (file, image) = (self.file(name), self.image(name));
        let (length, present) = (self.length(name), file.metadata()?.len());
        let cut = class.ends_with("cut short");
        if cut && present == length {
            fs::copy(&file, self.whole(name))?;
        }
        if cut || class.ends_with("blank") {
            self.meet(class, name);
            self.found.blame(name);
            let file = File::options().write(true).open(file)?;
            return match cut {
                // A second cut does not lengthen the file: zeroes amid it would be silent damage.
                true => file.set_len(present.min(rng.u64(..length / 4096) * 4096)),
                false => file.set_len(0).and_then(|()| file.set_len(length)),
            };
        }
        if !image.exists() {
            return Ok(());
        }
        self.meet(class, name);
        self.found.blame(name);
        // The file itself stays, with its inode.
        let bytes = fs::read(image)?;
        let file = File::options().write(true).open(file)?;
        file.write_all_at(&bytes, 0)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        let [one, other] = [one, other].map(|name| self.file(name));
        let (of_one, of_other) = (fs::read(&one)?, fs::read(&other)?);
        let write = |path, bytes: &[u8]| {
            let file = File::options().write(true).open(path)?;
            file.write_all_at(bytes, 0)
        };
        write(one, &of_other)?;
        write(other, &of_one)
    }

    /// Exchanges the victim of an array and another member, which costs the array nothing.
    fn exchange_members(&self, array: &'static str, other: &str) -> io::Result<()> {
        let victim = self.standing.victim(array);
        if let Some(victim) = victim.filter(|victim| victim != other)
            && self.plan.device(other).is_some()
            && self.are_members(array, [&victim, other])?
        {
            self.meet(CLASSES[6], &format!("{victim} and {other}"));
            self.exchange(&victim, other)?;
            self.standing.exchange(array, other);
        }
        Ok(())
    }

    /// True if the configuration has these members of an array: either may have been replaced.
    fn are_members(&self, array: &str, devices: [&str; 2]) -> io::Result<bool> {
        let section = self.section(array)?;
        let members = section.iter().flat_map(|section| section.own.lines());
        let mut members = members.filter(|line| line.starts_with("members = "));
        Ok(members.any(|line| {
            let is_there = |device: &str| line.contains(&format!("\"{device}\""));
            devices.into_iter().all(is_there)
        }))
    }

    /// The section of the configuration with this name.
    fn section(&self, name: &str) -> io::Result<Option<Section>> {
        let name = format!("name = \"{name}\"\n");
        let mut texts = self.machine.texts()?.into_iter();
        let Some((text, path)) = texts.find(|(text, _)| text.contains(&name)) else {
            return Ok(None);
        };
        let start = text.find(&name).expect("it contains the name") + name.len();
        let end = text[start..]
            .find("\n[[")
            .map_or(text.len(), |end| start + end);
        Ok(Some(Section {
            before: text[..start].to_owned(),
            own: text[start..end].to_owned(),
            rest: text[end..].to_owned(),
            path,
        }))
    }

    /// Exchanges the victims of two arrays, both of which do without.
    fn exchange_arrays(&self) -> io::Result<()> {
        if let [.., one, other] = &self.plan.arrays[..]
            && let (Some(a), Some(b)) = (
                self.standing.victim(one.name),
                self.standing.victim(other.name),
            )
        {
            self.meet(CLASSES[7], &format!("{a} and {b}"));
            for (array, device) in [(one, &a), (other, &b)] {
                self.standing.treat(array.name);
                self.found.blame(device);
            }
            self.exchange(&a, &b)?;
        }
        Ok(())
    }

    fn empty_state(&self) -> io::Result<()> {
        self.meet(CLASSES[8], STATE);
        self.standing.keep_log();
        for entry in fs::read_dir(self.file(STATE))? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Configures write-back again for a volume that has left it.
    fn write_back_again(&self) -> io::Result<()> {
        let Some(section) = self.section(self.plan.volumes[BACK].name)? else {
            return Ok(());
        };
        let own = &section.own;
        let mode = own.lines().find(|line| line.starts_with("mode = "));
        let again = "mode = \"write-back\"";
        if let Some(mode) = mode.filter(|mode| *mode != again && own.contains("log = ")) {
            self.meet(CLASSES[9], "the configuration");
            let own = own.replace(mode, again);
            let Section {
                before, rest, path, ..
            } = &section;
            fs::write(path, format!("{before}{own}{rest}"))?;
        }
        Ok(())
    }
}
