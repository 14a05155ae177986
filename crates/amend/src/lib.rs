//! Changes of a running daemon that its configuration file keeps.
//!
//! Invariants:
//!     the file is replaced as a whole, or left as it is
//!     comments and the order of all that stays are kept
//!     a daemon starts with the files before a change ⟹ it starts with them after the change
//!     if a file differs from the text that the daemon has read, file and daemon stay unchanged
//!     text that another program wrote after the file was read is never lost
//!     a change holds the lock of the file's directory, which other programs may take too
//!
//! Not here: the meaning of a change, which the daemon checks; the order of changes, which is its
//! queue's; and changes outside of files, such as a quiesced volume.

mod beside;
mod edit;
mod form;
mod sections;

pub use beside::DraftFile;
pub use edit::{Roles, edit};

use control::check::new_problems_of;
use control::files::{ConfigurationFiles, FileDifference};
use control::plain;
use control::protocol::ControlRequest;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Tries to lock a directory that another program has locked, and the pause between them.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Checks that a daemon would start with the files if the one at `at` had the text `after`.
fn agrees(files: &ConfigurationFiles, at: usize, after: &str) -> Result<(), String> {
    let file = files.iter().nth(at).expect("one of these");
    let changed = files.with(&file.path, after.to_owned());
    match new_problems_of(files, &changed).first() {
        None => Ok(()),
        Some(problem) => Err(format!(
            "would be wrong after it: {}. Nothing was changed",
            problem.text()
        )),
    }
}

/// Checks that the files are those that the daemon has read.
fn as_read(running: &ConfigurationFiles, files: &ConfigurationFiles) -> Result<(), String> {
    let remedy = "and nothing was changed; run `hotset reload` first, or use --temporary";
    let mut read = running.iter();
    for file in files.iter() {
        let path = file.path.display();
        match read.next() {
            Some(before) if before.path != file.path => {
                return Err(format!(
                    "is not as the daemon has read it: its files were others, {remedy}"
                ));
            }
            None => return Err(format!("has a new file beside it, {path}, {remedy}")),
            Some(before) if before.text != file.text => {
                let difference = difference(&before.text, &file.text);
                return Err(format!(
                    "is not as the daemon has read it: in {path}, {difference}, {remedy}"
                ));
            }
            Some(_) => (),
        }
    }
    match read.next() {
        Some(gone) => Err(format!("lacks {}, {remedy}", gone.path.display())),
        None => Ok(()),
    }
}

/// A new text, written beside the file to change.
pub struct Draft {
    /// The path as the configuration names it.
    name: PathBuf,
    /// The path without links.
    path: PathBuf,
    beside: DraftFile,
    before: String,
    after: String,
    /// All files as read.
    files: ConfigurationFiles,
    /// A descriptor that is given up for the last look at the file: the change may take the others.
    spare: File,
    /// The lock of the file's directory, against other changes.
    _lock: File,
}

impl Draft {
    /// Applies `request` to one of the files of the configuration at `main`, which the daemon has
    /// read as `running`. `roles` names the roles of an array.
    pub fn prepare(
        main: &Path,
        running: &ConfigurationFiles,
        request: &ControlRequest,
        roles: &dyn Fn(&str) -> Roles,
    ) -> Result<Draft, String> {
        Draft::drawn(main, |files| {
            as_read(running, files)?;
            let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
            let edited = edit(&texts, request, roles);
            let (at, after) = edited.map_err(|why| format!("was not changed: {why}"))?;
            agrees(files, at, &after)?;
            Ok((at, after))
        })
    }

    fn drawn(
        main: &Path,
        edit: impl FnOnce(&ConfigurationFiles) -> Result<(usize, String), String>,
    ) -> Result<Draft, String> {
        let fails = |path: &Path, what: &str, error: std::io::Error| {
            let path = path.display();
            let remedy = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
                _ => "mend that, or use --temporary",
            };
            let error = plain(error);
            format!("{path} cannot be {what} ({error}), and nothing was changed; {remedy}")
        };
        let real = fs::canonicalize(main).map_err(|error| fails(main, "read", error))?;
        let lock = lock(directory(&real)).map_err(|error| fails(&real, "locked", error))?;
        let files =
            ConfigurationFiles::read(main).map_err(|(path, error)| fails(&path, "read", error))?;
        let edited = edit(&files).map_err(|why| format!("{} {why}", main.display()));
        let (at, after) = edited?;
        let file = files.iter().nth(at).expect("one of these").clone();
        // A link stays a link.
        let path =
            fs::canonicalize(&file.path).map_err(|error| fails(&file.path, "read", error))?;
        let beside = DraftFile::write(&path, &after);
        let beside = beside.map_err(|error| fails(&file.path, "written", error))?;
        let spare = File::open(&path).map_err(|error| fails(&file.path, "read", error))?;
        Ok(Draft {
            spare,
            name: file.path,
            path,
            beside,
            before: file.text,
            after,
            files,
            _lock: lock,
        })
    }

    /// The lines that the new text changes.
    pub fn difference(&self) -> Option<FileDifference> {
        let after = self.files.with(&self.name, self.after.clone());
        self.files.difference(&after)
    }

    /// Replaces the file by the new text. Returns all files with it, or the cause of the failure.
    pub fn commit(self) -> Result<ConfigurationFiles, String> {
        let path = self.name.display();
        drop(self.spare);
        let now = fs::read_to_string(&self.path)
            .map_err(|error| format!("{path} cannot be read ({})", plain(error)))?;
        if now != self.before {
            let difference = difference(&self.before, &now);
            return Err(format!("another changed {path} meanwhile ({difference})"));
        }
        self.beside
            .replace(&self.path)
            .map_err(|error| format!("{path} cannot be replaced ({})", plain(error)))?;
        Ok(self.files.with(&self.name, self.after))
    }
}

/// Locks a directory against other programs that change its files.
fn lock(directory: &Path) -> std::io::Result<File> {
    let lock = File::open(directory)?;
    for _ in 1..LOCK_ATTEMPTS {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(lock),
        }
    }
    lock.try_lock()?;
    Ok(lock)
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The first line in which two texts differ.
fn difference(before: &str, now: &str) -> String {
    let (mut old, mut new) = (before.lines(), now.lines());
    let mut line = 1;
    loop {
        match (old.next(), new.next()) {
            (None, None) => return "in the end of its lines".into(),
            (was, is) if was != is => {
                let (was, is) = (was.unwrap_or("nothing"), is.unwrap_or("nothing"));
                return format!("line {line} was `{was}` and is `{is}`");
            }
            _ => line += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::NamedOrNew;
    use std::os::unix::fs::PermissionsExt;

    fn text(files: &ConfigurationFiles) -> String {
        files.iter().next().unwrap().text.clone()
    }

    fn section(dir: &Path, name: &str, more: &str) -> String {
        let path = dir.join(name);
        format!("name = \"{name}\"\npath = \"{}\"\n{more}", path.display())
    }

    /// A volume, and a free device.
    fn served(dir: &Path) -> String {
        format!(
            "[[device]]\n{}[[device]]\n{}[[device]]\n{}[[pool]]\nname = \"fast\"\ndevices = [\"ssd\"]\n\
             [[volume]]\nname = \"web\"\norigin = \"hdd\"\npool = \"fast\"\n\
             [[listen]]\nvhost_user = \"/none/web.sock\"\n",
            section(dir, "hdd", ""),
            section(dir, "ssd", ""),
            section(dir, "free", "read_only = true\n"),
        )
    }

    /// Each is one command, or a lasting one after a temporary one.
    #[test]
    fn a_change_after_which_nothing_starts_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["hdd", "ssd", "free"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("free"), dir.path().join("link")).unwrap();
        let device = |name: &str, more: &str| section(dir.path(), name, more);
        let text = served(dir.path());
        let files = ConfigurationFiles::from(&text);
        let volume = |more: &str, device: Option<String>| ControlRequest::AddVolume {
            volume: format!("name = \"n\"\n{more}"),
            device,
        };
        let add = |device| ControlRequest::AddDevice {
            pool: "fast".into(),
            device,
        };
        let (named, new) = (
            |name: &str| NamedOrNew::Named(name.into()),
            |name: &str| NamedOrNew::New(device(name, "")),
        );
        let remove = ControlRequest::RemoveVolume {
            volume: "web".into(),
        };
        let on = |origin: &str, pool: &str| format!("origin = \"{origin}\"\npool = \"{pool}\"\n");
        for (request, expected) in [
            (
                volume(&on("link", "fast"), Some(device("link", ""))),
                "is the same place as device free",
            ),
            (add(new("link")), "is the same place as device free"),
            (add(named("free")), "cannot use the read-only device"),
            (add(named("hdd")), "which volume web uses"),
            (
                volume(&(on("free", "fast") + "size = \"513B\"\n"), None),
                "is not possible",
            ),
            (
                volume(&on("hdd", "fast"), None),
                "uses device hdd, which volume web uses",
            ),
            (
                volume(&on("free", "p2"), None),
                "names a pool p2 that does not exist",
            ),
            (
                volume(&on("gone", "fast"), None),
                "names a device gone that does not exist",
            ),
            (
                ControlRequest::RemovePool {
                    pool: "fast".into(),
                },
                "names a pool fast",
            ),
            (remove, "[[listen]]"),
        ] {
            let (at, after) = edit(&[&text], &request, &|_| Vec::new()).unwrap();
            let refused = agrees(&files, at, &after).expect_err(expected);
            assert!(refused.contains(expected), "{expected:?}: {refused}");
            assert!(refused.contains("Nothing was changed"), "{refused}");
        }
        let sound = volume(&(on("free", "fast") + "read_only = true\n"), None);
        let (at, after) = edit(&[&text], &sound, &|_| Vec::new()).unwrap();
        assert_eq!(agrees(&files, at, &after), Ok(()));
    }

    #[test]
    fn the_file_is_replaced_with_its_mode_or_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        let link = dir.path().join("link");
        fs::write(&path, "a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let draft = Draft::drawn(&link, |files| Ok((0, text(files) + "b"))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
        drop(draft);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let draft = Draft::drawn(&link, |files| Ok((0, text(files) + "b"))).unwrap();
        let files = draft.commit().unwrap();
        assert_eq!(text(&files), "ab");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let refused = Draft::drawn(&path, |_| Err("it is wrong".into()));
        assert!(refused.err().unwrap().contains("it is wrong"));
        assert!(Draft::drawn(&dir.path().join("none"), |_| Ok((0, String::new()))).is_err());
    }

    #[test]
    fn what_another_wrote_meanwhile_is_kept_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        fs::write(&path, "one\ntwo\n").unwrap();
        let draft = Draft::drawn(&path, |_| Ok((0, "mine\n".into()))).unwrap();
        fs::write(&path, "one\nthree\n").unwrap();
        let refused = draft.commit().unwrap_err();
        assert!(
            refused.contains("line 2 was `two` and is `three`"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nthree\n");
    }

    #[test]
    fn of_two_at_a_time_the_second_begins_from_what_the_first_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        fs::write(&path, "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let more = |files: &ConfigurationFiles| Ok((0, text(files) + "x"));
                        let draft = Draft::drawn(&path, more).unwrap();
                        draft.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 20);
    }
}
