//! Claims on the places of pools and origins: one user each.
//!
//! A file or block device has a lock (`uring::claim`); an NBD export has none of its own. The
//! kernel releases the claims of a process a moment after the process has ended, seconds on a busy
//! machine. So a claim waits that moment ([`wait`], [`node::claimed`]), and longer if the lock is
//! known to be of a process that has ended ([`once_left`]).
//!
//! A claim on an export is a locked file, named after the export, in a folder that this user alone
//! can write: the kernel takes the lock back however a process ends, and no other user can hold a
//! name. The claim holds among the daemons of one user of one machine; another machine is not kept
//! out. Two names of one host (`localhost`, `127.0.0.1`) are two exports here.
//!
//! A loop device has a lock of its own, and its file has another: the bytes that the device shows
//! are locked too ([`Behind`]), so that the file is not a second device.

use crate::log;
use block::{IoError, IoErrorKind, IoResult, Nanos, Timer};
use control::address::NbdUri;
use control::place::BasePlace;
use node::{CLAIM_ATTEMPTS, CLAIM_PAUSE, Priority};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Number of attempts at a claim after which the wait is logged: two seconds.
const SILENT_ATTEMPTS: u32 = 40;
/// Time limit of opening a file or block device.
pub const OPEN_MAX: Nanos = Nanos::from_secs(10);

/// Repeats `claim`, a limited number of times, while another is `Busy` with the place, and logs a
/// line if that takes long. Blocks the thread meanwhile.
pub fn wait<T>(mut claim: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    for attempt in 1..CLAIM_ATTEMPTS {
        match claim() {
            Err(error) if error.kind() == IoErrorKind::Busy => {
                if attempt == SILENT_ATTEMPTS {
                    log::line(Priority::Notice, &format!("{error}. Waiting for its end."));
                }
            }
            other => return other,
        }
        std::thread::sleep(std::time::Duration::from_nanos(CLAIM_PAUSE.0));
    }
    claim()
}

/// Tests for a process that listens on the unix socket at `path`, and waits for one that is about
/// to end.
pub fn stays_listened(path: &Path) -> bool {
    let free = wait(|| match uring::is_listened(path) {
        true => {
            let error = IoError::new(IoErrorKind::Busy, "is listened on");
            Err(error.on(path.display().to_string()))
        }
        false => Ok(()),
    });
    free.is_err()
}

/// Attempts to open a file that an ended process still holds, [`CLAIM_PAUSE`] apart: two minutes.
const LEFT_ATTEMPTS: u32 = 2400;

/// Opens the file at `path` by `open`, again and again while an ended process still locks it.
pub async fn once_left<T>(
    timer: &Timer,
    path: &Path,
    open: impl AsyncFnMut() -> IoResult<T>,
) -> IoResult<T> {
    let is_left =
        |error: &IoError| error.kind() == IoErrorKind::Busy && uring::is_left_locked(path);
    node::retried(timer, LEFT_ATTEMPTS, is_left, open).await
}

/// Keeps other daemons away from an export until dropped.
pub struct ExportClaim(#[expect(dead_code, reason = "held for its drop")] File);

impl ExportClaim {
    /// Claims the export at `uri`. Refused if a daemon has the export, this one too.
    pub fn new(uri: &NbdUri) -> IoResult<ExportClaim> {
        let mut refused = None;
        for folder in folders() {
            match private(&folder) {
                Ok(()) => return ExportClaim::within(&folder, uri),
                Err(cause) => refused = refused.or(Some((folder, cause))),
            }
        }
        let (folder, cause) = refused.expect("there is a temporary folder");
        let what = "is not a folder of this user, which claims on exports need; remove it";
        let error = IoError::new(IoErrorKind::Denied, what).on(folder.display().to_string());
        Err(error.because(cause))
    }

    fn within(folder: &Path, uri: &NbdUri) -> IoResult<ExportClaim> {
        let hash = twox_hash::XxHash3_64::oneshot(uri.place().as_bytes());
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.custom_flags(libc::O_NOFOLLOW);
        let file = file.open(folder.join(format!("nbd-{hash:016x}")));
        let file = file.map_err(|cause| {
            if let Some(refused) = uring::without_descriptor(&cause) {
                return refused.on(uri.to_string());
            }
            let what = "cannot be claimed against other daemons";
            let error = IoError::new(IoErrorKind::Denied, what).on(uri.to_string());
            error.because(cause)
        })?;
        match uring::claim(&file) {
            Ok(()) => Ok(ExportClaim(file)),
            Err(error) if error.kind() == IoErrorKind::Busy => {
                let what = "is in use by another hotset; stop that, or give each its own export";
                Err(IoError::new(IoErrorKind::Busy, what).on(uri.to_string()))
            }
            Err(error) => Err(error.on(uri.to_string())),
        }
    }
}

/// The folders for claims, the best first.
fn folders() -> Vec<PathBuf> {
    // SAFETY: no pointers are involved.
    let user = unsafe { libc::geteuid() };
    let system = (user == 0).then(|| PathBuf::from("/run/hotset/claims"));
    let session = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user != 0);
    let session = session.map(|folder| PathBuf::from(folder).join("hotset"));
    let temporary = PathBuf::from(format!("/tmp/hotset-{user}"));
    let all = [system, session, Some(temporary)];
    all.into_iter().flatten().collect()
}

/// Makes a folder that its user alone can write, or checks an existing one.
fn private(folder: &Path) -> std::io::Result<()> {
    let parent = folder.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => (),
        made => return made,
    }
    let found = fs::symlink_metadata(folder)?;
    // SAFETY: no pointers are involved.
    let user = unsafe { libc::geteuid() };
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let what = format!("user {} has it, or others may write there", found.uid());
        return Err(std::io::Error::other(what));
    }
    Ok(())
}

/// Keeps other daemons from the bytes of a file that a loop device shows, until dropped.
pub struct Behind(#[expect(dead_code, reason = "held for its drop")] File);

impl Behind {
    /// Claims the file behind the device at `path`; `None` for a device that is no loop device, or
    /// with a file out of reach. `Busy` if another has the file.
    pub fn claim(path: &Path) -> IoResult<Option<Behind>> {
        let place = BasePlace::at(path);
        let Some(backing) = &place.backing else {
            return Ok(None);
        };
        let both = File::options().read(true).write(true).open(backing);
        let (file, lock) = match both {
            Ok(file) => (file, libc::F_WRLCK),
            Err(_) => match File::open(backing) {
                Ok(file) => (file, libc::F_RDLCK),
                Err(_) => return Ok(None),
            },
        };
        let busy = || {
            let what = format!(
                "is a loop device over {}, which another process uses; stop that first",
                backing.display()
            );
            IoError::new(IoErrorKind::Busy, what).on(path.display().to_string())
        };
        // Other parts of the file may be devices too.
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(busy());
        }
        let len = match place.to {
            u64::MAX => 0,
            to => to - place.from,
        };
        match lock_part(&file, lock, place.from, len) {
            Err(cause) if is_taken(&cause) => Err(busy()),
            // A file system without such locks.
            _ => Ok(Some(Behind(file))),
        }
    }
}

fn is_taken(cause: &std::io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Locks `len` bytes of an opening of a file, all of them to its end if that is 0.
fn lock_part(file: &File, kind: libc::c_int, from: u64, len: u64) -> std::io::Result<()> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    // SAFETY: all zeroes are such a structure, and the call reads the structure.
    let locked = unsafe {
        let mut part: libc::flock = std::mem::zeroed();
        part.l_type = kind as libc::c_short;
        part.l_whence = libc::SEEK_SET as libc::c_short;
        part.l_start = offset(from);
        part.l_len = offset(len);
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const part)
    };
    match locked {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn claim(folder: &Path, text: &str) -> IoResult<ExportClaim> {
        ExportClaim::within(folder, &NbdUri::parse(text).unwrap())
    }

    #[test]
    fn a_folder_that_others_may_write_has_no_claims() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        private(&at("new/claims")).unwrap();
        private(&at("new/claims")).unwrap();
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(at("new/claims"), mode(0o777)).unwrap();
        private(&at("new/claims")).unwrap_err();
        std::os::unix::fs::symlink("/", at("link")).unwrap();
        private(&at("link")).unwrap_err();
    }

    #[test]
    fn parts_of_one_file_are_locked_apart_and_all_of_it_against_each() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(dir.path().join("image")).unwrap()
        };
        let (first, second, third) = (open(), open(), open());
        lock_part(&first, libc::F_WRLCK, 0, 4096).unwrap();
        lock_part(&second, libc::F_WRLCK, 4096, 0).unwrap();
        let refused = lock_part(&third, libc::F_WRLCK, 8192, 1).unwrap_err();
        assert!(is_taken(&refused), "{refused}");
        drop(second);
        lock_part(&third, libc::F_WRLCK, 8192, 1).unwrap();
        assert!(Behind::claim(&dir.path().join("image")).unwrap().is_none());
    }

    #[test]
    fn an_export_is_claimed_once_until_released() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _server = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, dir.path().join("alias")).unwrap();
        let uri = |name: &str, export: &str| {
            let path = dir.path().join(name);
            format!("nbd+unix:///{export}?socket={}", path.display())
        };
        let claim = |text: String| claim(dir.path(), &text);
        let first = claim(uri("s", "a")).unwrap();
        let other_export = claim(uri("s", "b")).unwrap();
        let error = claim(uri("alias", "a")).err().unwrap();
        assert_eq!(error.kind(), IoErrorKind::Busy);
        assert!(
            error.to_string().contains("in use by another hotset"),
            "{error}"
        );
        drop((first, other_export));
        claim(uri("alias", "a")).unwrap();
    }

    #[test]
    fn a_claim_waits_for_who_is_about_to_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = || {
            let mut options = std::fs::File::options();
            options
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let (mine, theirs) = (open(), open());
        uring::claim(&theirs).unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(theirs);
        });
        wait(|| uring::claim(&mine)).unwrap();
        holder.join().unwrap();
        let error = wait(|| uring::claim(&open())).unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Busy);
        drop(mine);
    }

    #[test]
    fn hosts_are_distinguished_by_name_and_port() {
        let dir = tempfile::tempdir().unwrap();
        let claim = |text: &str| claim(dir.path(), text);
        let _first = claim("nbd://TEST.invalid/v").unwrap();
        assert!(claim("nbd://test.invalid:10809/v").is_err());
        claim("nbd://test.invalid:10810/v").unwrap();
    }
}
