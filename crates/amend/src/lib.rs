//! Changes of a running daemon that its configuration file keeps.
//!
//! Invariants:
//!     the file is replaced as a whole, or left as it is
//!     comments and the order of what stays are kept
//!     what another wrote after the file was read is never lost
//!     whoever changes a file holds the lock of its directory, so that of two
//!     the second begins from what the first wrote
//!
//! Not here: what a change means, which the daemon checks, and changes that no
//! file says, such as a quiesced volume.

mod edit;

pub use edit::edit;

use control::client::{Client, Error};
use control::protocol::Request;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Has `request` carried out, and the daemon's configuration file say the same
/// unless it is `temporary`. The file is prepared first, so that one that cannot
/// be written changes nothing.
pub fn change(client: &mut Client, request: &Request, temporary: bool) -> Result<(), Error> {
    if temporary || !edit::is_kept(request) {
        return client.command(request);
    }
    let status = client.status()?;
    let Some(path) = &status.config else {
        let what = "the daemon does not report which file its configuration is; use --temporary";
        return Err(Error::Refused(what.into()));
    };
    let roles = |array: &str| {
        let array = status.arrays.iter().find(|other| other.name == array);
        let members = array.into_iter().flat_map(|array| &array.members);
        members.map(|m| (m.role, m.device.clone())).collect()
    };
    let draft = Draft::prepare(Path::new(path), |text| edit(text, request, &roles));
    let draft = draft.map_err(Error::Refused)?;
    client.command(request)?;
    draft.commit().map_err(Error::Refused)
}

/// A file's new text, written beside it.
struct Draft {
    path: PathBuf,
    beside: PathBuf,
    before: String,
    _directory: File,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it has taken the file's place there is none.
        let _ = fs::remove_file(&self.beside);
    }
}

impl Draft {
    fn prepare(
        path: &Path,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<Draft, String> {
        let fails = |what: &str, error: std::io::Error| {
            let path = path.display();
            format!(
                "{path} cannot be {what} ({error}), and nothing was changed; mend that, or use --temporary"
            )
        };
        // A link stays one.
        let path = &fs::canonicalize(path).map_err(|error| fails("read", error))?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let lock = File::open(directory).map_err(|error| fails("locked", error))?;
        lock.lock().map_err(|error| fails("locked", error))?;
        let before = fs::read_to_string(path).map_err(|error| fails("read", error))?;
        let after = edit(&before).map_err(|why| {
            format!(
                "{} cannot say this: {why}, and nothing was changed; use --temporary",
                path.display()
            )
        })?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".new");
        let draft = Draft {
            path: path.clone(),
            beside: directory.join(name),
            before,
            _directory: lock,
        };
        draft
            .write(&after)
            .map_err(|error| fails("written", error))?;
        Ok(draft)
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let meta = fs::metadata(&self.path)?;
        // One that a crash left is no one's: its directory is locked.
        let mut file = File::create(&self.beside)?;
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != (meta.uid(), meta.gid()) {
            chown(&self.beside, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Puts the new text in the file's place.
    fn commit(self) -> Result<(), String> {
        let path = self.path.display();
        let now = fs::read_to_string(&self.path).unwrap_or_default();
        if now != self.before {
            return Err(format!(
                "the daemon has changed, and {path} has not, for another changed it meanwhile ({}); \
                 put the change into it",
                difference(&self.before, &now)
            ));
        }
        let renamed =
            fs::rename(&self.beside, &self.path).and_then(|()| self._directory.sync_all());
        renamed.map_err(|error| {
            format!("the daemon has changed, and {path} cannot be replaced ({error}); put the change into it")
        })
    }
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

    #[test]
    fn the_file_is_replaced_with_its_mode_or_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        let link = dir.path().join("link");
        fs::write(&path, "a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let draft = Draft::prepare(&link, |text| Ok(format!("{text}b"))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
        drop(draft);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let draft = Draft::prepare(&link, |text| Ok(format!("{text}b"))).unwrap();
        draft.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let refused = Draft::prepare(&path, |_| Err("it is wrong".into()));
        assert!(refused.err().unwrap().contains("it is wrong"));
        assert!(Draft::prepare(&dir.path().join("none"), |_| Ok(String::new())).is_err());
    }

    #[test]
    fn what_another_wrote_meanwhile_is_kept_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        fs::write(&path, "one\ntwo\n").unwrap();
        let draft = Draft::prepare(&path, |_| Ok("mine\n".into())).unwrap();
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
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let draft = Draft::prepare(&path, |text| Ok(format!("{text}x"))).unwrap();
                        draft.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 80);
    }
}
