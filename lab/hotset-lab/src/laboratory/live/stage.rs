//! The place of a live run: a directory of its own on the user's storage, and the volume below.
//!
//! Nothing else of the user's is changed. The volume is off or on as before at the end, though the
//! pool has lost the volume's lines.

use super::options::LiveArguments;
use super::report::{OFF, WITHOUT};
use super::rounds::{Interruption, LivePlace, Phase};
use crate::CommandFailure;
use command::table::bytes;
use control::client::ControlClient;
use control::plain;
use control::protocol::ControlRequest;
use control::status::VolumeReport;
use fastrand::Rng;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of a run, below the user's.
const DIRECTORY: &str = "hotset-live";
/// Asks the kernel to drop all clean pages, and cached names.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Space for the servers' own files.
const ASIDE_BYTES: u64 = 1 << 20;
/// A file takes whole blocks, and a name in a directory.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of a file written at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Time in which a volume is watched for other clients.
const WATCHED: Duration = Duration::from_secs(1);
/// Times that a volume in use is watched.
const LOOKS: u32 = 5;

const COLD: Phase = "cold";
/// The phase with the pool as the one before has left the pool.
pub const WARM: Phase = "warm";
const RUNS: Phase = "runs";

/// The way in which the page cache is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageCacheDrop {
    /// All of the machine's, as root can.
    Machine,
    /// The pages of the run's files.
    Files,
}

/// The place of a run. The directory is removed when dropped.
pub struct LiveStage {
    directory: PathBuf,
    volume: Option<LiveVolume>,
    without: bool,
    page_cache: PageCacheDrop,
    interruption: Interruption,
}

impl LiveStage {
    /// Makes the directory for files of these sizes.
    ///
    /// # Errors
    /// If the volume is in use, or there is too little room. Nothing is changed then.
    pub fn raise(
        at: &LiveArguments,
        files: impl Iterator<Item = u64>,
    ) -> Result<LiveStage, CommandFailure> {
        let path = at.path().canonicalize().map_err(|cause| {
            let path = at.path().display();
            CommandFailure::Usage(format!(
                "{path}: cannot be used ({cause}). Name a directory on the storage to be measured."
            ))
        })?;
        let volume = at.volume.as_ref();
        let volume = volume.map(|name| LiveVolume::find(&at.control, name));
        let mut volume = volume.transpose()?;
        require_room(&path, files)?;
        if let Some(volume) = &mut volume {
            volume.require_idle()?;
        }
        let interruption = Interruption::listen()?;
        let directory = path.join(DIRECTORY);
        fs::create_dir(&directory).map_err(|cause| {
            let directory = directory.display();
            CommandFailure::Runtime(match cause.kind() {
                ErrorKind::AlreadyExists => format!(
                    "{directory}: exists (a run uses it, or one was killed). Wait for its end, or \
                     remove it."
                ),
                _ => format!("{directory}: cannot be made ({cause}). Name another --path."),
            })
        })?;
        let page_cache = match fs::write(DROP_CACHES, "3") {
            Ok(()) => PageCacheDrop::Machine,
            Err(_) => PageCacheDrop::Files,
        };
        Ok(LiveStage {
            directory,
            volume,
            without: at.without,
            page_cache,
            interruption,
        })
    }

    /// The directory of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file of drawn bytes, which no storage can compress.
    pub fn write_file(&self, path: &Path, bytes: u64, rng: &mut Rng) -> io::Result<()> {
        let mut out = File::create(path)?;
        let mut chunk = vec![0; bytes.min(CHUNK_BYTES) as usize];
        let mut left = bytes;
        while left > 0 {
            self.interruption.require_none()?;
            let part = &mut chunk[..left.min(CHUNK_BYTES) as usize];
            rng.fill(part);
            out.write_all(part)?;
            left -= part.len() as u64;
        }
        Ok(())
    }

    /// The failure to make the run's file at `path`.
    pub fn failed(&self, path: &Path, cause: io::Error) -> CommandFailure {
        match self.interruption.has_come() {
            true => CommandFailure::Runtime(format!(
                "{}: interrupted (no round had ended). Run the same command again.",
                self.directory.display()
            )),
            false => CommandFailure::of(&path.display().to_string(), cause),
        }
    }

    /// The way in which the page cache is dropped, in words.
    pub fn page_cache(&self) -> &'static str {
        match self.page_cache {
            PageCacheDrop::Machine => "all of the machine's dropped (drop_caches)",
            PageCacheDrop::Files => {
                "pages of the run's files dropped (posix_fadvise); names and inodes are kept"
            }
        }
    }

    /// Checks that reads of `file`, which is in the run's directory, reach the volume.
    pub fn prove_volume(&mut self, file: &Path) -> Result<(), CommandFailure> {
        if self.volume.is_some() {
            self.drop_page_cache()?;
        }
        let Some(volume) = &mut self.volume else {
            return Ok(());
        };
        let before = volume.report()?.read_total.requests;
        let mut start = [0; BLOCK_BYTES as usize];
        let read = File::open(file).and_then(|mut file| file.read(&mut start));
        read.map_err(|cause| CommandFailure::of(&file.display().to_string(), cause))?;
        match volume.report()?.read_total.requests > before {
            true => Ok(()),
            false => Err(CommandFailure::Usage(format!(
                "{}: not on volume {} (a read of its files is no read of the volume). Mount the \
                 volume there, or leave out --volume.",
                self.directory.display(),
                volume.name
            ))),
        }
    }

    fn drop_page_cache(&self) -> Result<(), CommandFailure> {
        let directory = self.directory.display();
        let failed =
            |cause: io::Error| CommandFailure::of(&format!("{directory}: its pages"), cause);
        let open = File::open(&self.directory).map_err(failed)?;
        // SAFETY: the descriptor is open, and no memory is involved. Dirty pages would stay.
        if unsafe { libc::syncfs(open.as_raw_fd()) } != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        match self.page_cache {
            PageCacheDrop::Machine => fs::write(DROP_CACHES, "3").map_err(failed),
            PageCacheDrop::Files => drop_pages(&self.directory).map_err(failed),
        }
    }

    /// Puts the volume back and removes the directory.
    pub fn strike(mut self) -> Result<(), CommandFailure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), CommandFailure> {
        let removed = match fs::remove_dir_all(&self.directory) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                let directory = self.directory.display();
                Err(CommandFailure::Runtime(format!(
                    "{directory}: stays ({cause}). Remove it."
                )))
            }
            _ => Ok(()),
        };
        self.volume.take().map_or(Ok(()), LiveVolume::put_back)?;
        removed
    }
}

impl LivePlace for LiveStage {
    fn name(&self) -> String {
        self.directory.display().to_string()
    }

    fn phases(&self) -> &'static [&'static [Phase]] {
        match self.volume {
            Some(_) => &[&[OFF], &[COLD, WARM]],
            None if self.without => &[&[WITHOUT]],
            None => &[&[RUNS]],
        }
    }

    fn prepare(&mut self, phase: Phase) -> Result<(), CommandFailure> {
        if let Some(volume) = &mut self.volume {
            volume.set(phase == OFF)?;
            if phase == COLD {
                volume.invalidate()?;
            }
        }
        self.drop_page_cache()?;
        if let Some(volume) = &mut self.volume {
            // Percentages of the next report are of the phase.
            volume.report()?;
        }
        Ok(())
    }

    fn hit_percent(&mut self) -> Result<Option<f64>, CommandFailure> {
        match &mut self.volume {
            Some(volume) => Ok(volume.report()?.hit_percent),
            None => Ok(None),
        }
    }

    fn interruption(&self) -> &Interruption {
        &self.interruption
    }
}

impl Drop for LiveStage {
    fn drop(&mut self) {
        if let Err(CommandFailure::Runtime(what) | CommandFailure::Usage(what)) = self.take_down() {
            eprintln!("{}", plain(what));
        }
    }
}

/// An error unless files of these sizes fit on the storage at `path`.
fn require_room(path: &Path, files: impl Iterator<Item = u64>) -> Result<(), CommandFailure> {
    let blocks = files.map(|bytes| bytes.div_ceil(BLOCK_BYTES) + 1);
    let needed = blocks.sum::<u64>() * BLOCK_BYTES + ASIDE_BYTES;
    let free = free_bytes(path).map_err(|cause| {
        CommandFailure::of(&format!("{}: its free space", path.display()), cause)
    })?;
    match needed <= free {
        true => Ok(()),
        false => Err(CommandFailure::Runtime(format!(
            "{}: too little room ({} are needed, {} are free). Make room, or measure less.",
            path.display(),
            bytes(needed),
            bytes(free)
        ))),
    }
}

/// Bytes that any user may take.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a zero, and there is room for the answer.
    if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, and so filled the answer.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail * found.f_frsize)
}

/// Drops the clean pages of every file below `directory`.
fn drop_pages(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_pages(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            // SAFETY: the descriptor is open, and no memory is involved.
            let error =
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
        }
    }
    Ok(())
}

/// A volume of a running daemon.
struct LiveVolume {
    control: ControlClient,
    name: String,
    was_off: bool,
    is_off: bool,
}

impl LiveVolume {
    fn find(control: &Path, name: &str) -> Result<LiveVolume, CommandFailure> {
        let control = ControlClient::connect(control).map_err(CommandFailure::runtime)?;
        let mut volume = LiveVolume {
            control,
            name: name.to_owned(),
            was_off: false,
            is_off: false,
        };
        let report = volume.report()?;
        let write_back = report.write_back.is_some() || report.off.as_deref() == Some("write-back");
        if write_back || report.quiesced {
            return Err(CommandFailure::Usage(format!(
                "volume {name}: cannot be measured ({}; off and on would change more than the \
                 cache). Resume a quiesced volume; give a write-back one another mode.",
                report.standing()
            )));
        }
        volume.was_off = report.off.is_some();
        volume.is_off = volume.was_off;
        Ok(volume)
    }

    fn report(&mut self) -> Result<VolumeReport, CommandFailure> {
        let status = self.control.status().map_err(CommandFailure::runtime)?;
        let known: Vec<_> = status.volumes.iter().map(|v| v.name.clone()).collect();
        let found = status.volumes.into_iter().find(|v| v.name == self.name);
        found.ok_or_else(|| {
            CommandFailure::Usage(format!(
                "volume {}: not served by the daemon (volumes: {}). Name one of them.",
                self.name,
                known.join(", ")
            ))
        })
    }

    /// An error if others read the volume in each of the seconds watched: a file system that was
    /// just mounted reads a little by itself.
    fn require_idle(&mut self) -> Result<(), CommandFailure> {
        let mut reads = 0;
        for _ in 0..LOOKS {
            let before = self.report()?.read_total.requests;
            std::thread::sleep(WATCHED);
            reads = self.report()?.read_total.requests - before;
            if reads == 0 {
                return Ok(());
            }
        }
        Err(CommandFailure::Runtime(format!(
            "volume {}: in use ({reads} reads of others in {} s). Stop its clients first.",
            self.name,
            WATCHED.as_secs()
        )))
    }

    fn change(&mut self, request: &ControlRequest) -> Result<(), CommandFailure> {
        let changed = self.control.change(request, true, |_, _| ());
        changed.map(drop).map_err(CommandFailure::runtime)
    }

    fn set(&mut self, off: bool) -> Result<(), CommandFailure> {
        if self.is_off == off {
            return Ok(());
        }
        let volume = self.name.clone();
        self.change(&ControlRequest::SetOff { volume, off })?;
        self.is_off = off;
        Ok(())
    }

    fn invalidate(&mut self) -> Result<(), CommandFailure> {
        let volume = self.name.clone();
        self.change(&ControlRequest::Invalidate { volume })
    }

    fn put_back(mut self) -> Result<(), CommandFailure> {
        let (name, was_off) = (self.name.clone(), self.was_off);
        self.set(was_off).map_err(|failure| match failure {
            CommandFailure::Runtime(what) => CommandFailure::Runtime(format!(
                "volume {name}: not as before ({what}). Run `hotset volume {} {name} --temporary`.",
                if was_off { "off" } else { "on" }
            )),
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_fit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).unwrap() > 0);
        require_room(dir.path(), [1, 5000].into_iter()).unwrap();
        let Err(CommandFailure::Runtime(why)) = require_room(dir.path(), [1 << 60].into_iter())
        else {
            panic!("an exbibyte has room");
        };
        assert!(why.contains("too little room (1.0 EiB"), "{why}");
    }
}
