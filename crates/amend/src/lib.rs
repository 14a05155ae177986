//! Changes of a running daemon that its configuration file keeps.
//!
//! Invariants:
//!     the file is replaced as a whole, or left as it is
//!     comments and the order of what stays are kept
//!     a daemon starts with the files before a change ⟹ it starts with them after it
//!     a file that is not as the daemon has read it is left as it is, and so is the daemon
//!     what another wrote after the file was read is never lost
//!     whoever changes a file holds the lock of its directory, so that of two
//!     the second begins from what the first wrote
//!
//! Not here: what a change means, which the daemon checks, and changes that no
//! file says, such as a quiesced volume.

mod edit;
mod sections;

pub use edit::edit;

use control::check::new_problems_of;
use control::client::{Client, Error};
use control::files::Files;
use control::protocol::Request;
use control::status::{Member, Status};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Has `request` carried out, and the daemon's configuration say the same
/// unless it is `temporary`. The file is prepared first, so that one that cannot
/// be written changes nothing.
pub fn change(client: &mut Client, request: &Request, temporary: bool) -> Result<(), Error> {
    if temporary
        && let Request::ReplaceMember { array, member, .. } = request
        && is_in_sync(&client.status()?, array, member)
    {
        let what = "an exchange of a sound member is not temporary: the next start would lack the \
                    new one. Leave out --temporary.";
        return Err(Error::Refused(what.into()));
    }
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
    let draft = Draft::prepare(Path::new(path), |files| {
        let running = client.configuration();
        let running = running.map_err(|error| format!("cannot be compared: {error}"))?;
        as_read(&running.files, files)?;
        let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
        let cannot =
            |why| format!("cannot say this: {why}, and nothing was changed; use --temporary");
        let (at, after) = edit(&texts, request, &roles).map_err(cannot)?;
        agrees(files, at, &after)?;
        Ok((at, after))
    });
    let draft = draft.map_err(Error::Refused)?;
    client.command(request)?;
    let notice = draft.amendment();
    // The lock is held until the daemon knows: who has it next compares with what it knows.
    let lock = draft.commit().map_err(Error::Refused)?;
    let known = client.command(&notice);
    drop(lock);
    known
}

/// Whether a daemon would start with the files, were the one at `at` to say `after`.
fn agrees(files: &Files, at: usize, after: &str) -> Result<(), String> {
    let file = files.iter().nth(at).expect("one of these");
    let changed = files.amended(&file.path, 0, file.text.len(), after);
    let changed = changed.expect("all of that file");
    match new_problems_of(files, &changed).first() {
        None => Ok(()),
        Some(problem) => Err(format!(
            "would be wrong after it: {}. Nothing was changed",
            changed.show(problem)
        )),
    }
}

/// Whether `member`, a device or the number of a role, is in sync.
fn is_in_sync(status: &Status, array: &str, member: &str) -> bool {
    let array = status.arrays.iter().find(|other| other.name == array);
    let is_it = |other: &&Member| {
        other.device.as_deref() == Some(member) || other.role.to_string() == member
    };
    let member = array.and_then(|array| array.members.iter().find(is_it));
    member.is_some_and(|member| member.state == "in sync")
}

/// Whether the files are as the daemon has read them.
fn as_read(running: &Files, files: &Files) -> Result<(), String> {
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

/// A file's new text, written beside it.
struct Draft {
    /// As the configuration names it.
    name: PathBuf,
    /// Without links.
    path: PathBuf,
    beside: PathBuf,
    before: String,
    after: String,
    /// The lock of whoever changes files of this configuration.
    lock: Option<File>,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it has taken the file's place there is none.
        let _ = fs::remove_file(&self.beside);
    }
}

impl Draft {
    /// Draws up what `edit` makes of one of the files of the configuration at `main`.
    fn prepare(
        main: &Path,
        edit: impl FnOnce(&Files) -> Result<(usize, String), String>,
    ) -> Result<Draft, String> {
        let fails = |path: &Path, what: &str, error: std::io::Error| {
            let path = path.display();
            format!(
                "{path} cannot be {what} ({error}), and nothing was changed; mend that, or use --temporary"
            )
        };
        let real = fs::canonicalize(main).map_err(|error| fails(main, "read", error))?;
        let lock = File::open(directory(&real)).map_err(|error| fails(&real, "locked", error))?;
        lock.lock().map_err(|error| fails(&real, "locked", error))?;
        let files = Files::read(main).map_err(|(path, error)| fails(&path, "read", error))?;
        let edited = edit(&files).map_err(|why| format!("{} {why}", main.display()));
        let (at, after) = edited?;
        let file = files.iter().nth(at).expect("one of these").clone();
        // A link stays one.
        let path =
            fs::canonicalize(&file.path).map_err(|error| fails(&file.path, "read", error))?;
        let mut beside = path.file_name().unwrap_or_default().to_os_string();
        beside.push(".new");
        let draft = Draft {
            beside: directory(&path).join(beside),
            name: file.path,
            path,
            before: file.text,
            after,
            lock: Some(lock),
        };
        let written = draft.write(&draft.after);
        written.map_err(|error| fails(&draft.name, "written", error))?;
        Ok(draft)
    }

    /// What the daemon is notified of.
    fn amendment(&self) -> Request {
        let (before, after) = (self.before.as_bytes(), self.after.as_bytes());
        let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
        let from = before.iter().zip(after).take_while(same).count();
        // Neither text is cut within a character.
        let from = (0..=from)
            .rev()
            .find(|at| self.before.is_char_boundary(*at))
            .unwrap_or(0);
        let (rest, new) = (&before[from..], &after[from..]);
        let end = rest
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take_while(same)
            .count();
        let boundary = |end: &usize| {
            self.before.is_char_boundary(before.len() - end)
                && self.after.is_char_boundary(after.len() - end)
        };
        let end = (0..=end).rev().find(boundary).unwrap_or(0);
        Request::Amended {
            file: self.name.clone(),
            from,
            to: before.len() - end,
            text: self.after[from..after.len() - end].to_owned(),
        }
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

    /// Puts the new text in the file's place; what is returned keeps others off.
    fn commit(mut self) -> Result<Option<File>, String> {
        let path = self.name.display();
        let now = fs::read_to_string(&self.path).unwrap_or_default();
        if now != self.before {
            return Err(format!(
                "the daemon has changed, and {path} has not, for another changed it meanwhile ({}); \
                 put the change into it, and run `hotset reload`",
                difference(&self.before, &now)
            ));
        }
        let synced = || File::open(directory(&self.path))?.sync_all();
        let renamed = fs::rename(&self.beside, &self.path).and_then(|()| synced());
        renamed.map_err(|error| {
            format!("the daemon has changed, and {path} cannot be replaced ({error}); put the change into it")
        })?;
        Ok(self.lock.take())
    }
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

    fn text(files: &Files) -> String {
        files.iter().next().unwrap().text.clone()
    }

    /// Each is one command, or a lasting one after a temporary one.
    #[test]
    fn a_change_after_which_nothing_starts_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["hdd", "ssd", "free"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("free"), dir.path().join("link")).unwrap();
        let device = |name: &str, more: &str| {
            let path = dir.path().join(name);
            format!("name = \"{name}\"\npath = \"{}\"\n{more}", path.display())
        };
        let text = format!(
            "[[device]]\n{}[[device]]\n{}[[device]]\n{}[[pool]]\nname = \"fast\"\ndevices = [\"ssd\"]\n\
             [[volume]]\nname = \"web\"\norigin = \"hdd\"\npool = \"fast\"\n\
             [[listen]]\nvhost_user = \"/none/web.sock\"\n",
            device("hdd", ""),
            device("ssd", ""),
            device("free", "read_only = true\n"),
        );
        let files = Files::from(&text);
        let volume = |more: &str, device: Option<String>| Request::AddVolume {
            volume: format!("name = \"n\"\n{more}"),
            device,
        };
        let add = |device| Request::AddDevice {
            pool: "fast".into(),
            device,
        };
        let (named, new) = (
            |name: &str| NamedOrNew::Named(name.into()),
            |name: &str| NamedOrNew::New(device(name, "")),
        );
        let remove = Request::RemoveVolume {
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
                Request::RemovePool {
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
        let draft = Draft::prepare(&link, |files| Ok((0, text(files) + "b"))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
        drop(draft);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let draft = Draft::prepare(&link, |files| Ok((0, text(files) + "b"))).unwrap();
        draft.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let refused = Draft::prepare(&path, |_| Err("it is wrong".into()));
        assert!(refused.err().unwrap().contains("it is wrong"));
        assert!(Draft::prepare(&dir.path().join("none"), |_| Ok((0, String::new()))).is_err());
    }

    #[test]
    fn what_another_wrote_meanwhile_is_kept_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hotset.toml");
        fs::write(&path, "one\ntwo\n").unwrap();
        let draft = Draft::prepare(&path, |_| Ok((0, "mine\n".into()))).unwrap();
        fs::write(&path, "one\nthree\n").unwrap();
        let refused = draft.commit().unwrap_err();
        assert!(
            refused.contains("line 2 was `two` and is `three`"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nthree\n");
    }

    #[test]
    fn the_daemon_is_notified_of_what_has_changed_and_no_more() {
        for (before, after, expected) in [
            ("a = 1\nb = 2\n", "a = 1\nb = 3\n", (10, 11, "3")),
            ("ab", "ab", (2, 2, "")),
            ("xx", "xxx", (2, 2, "x")),
            ("", "new", (0, 0, "new")),
            ("# ä\n", "# ö\n", (2, 4, "ö")),
        ] {
            let draft = Draft {
                name: PathBuf::from("/f"),
                path: PathBuf::new(),
                beside: PathBuf::new(),
                before: before.into(),
                after: after.into(),
                lock: None,
            };
            let Request::Amended { from, to, text, .. } = draft.amendment() else {
                panic!("another request");
            };
            assert_eq!((from, to, text.as_str()), expected, "{before:?}");
            assert_eq!(format!("{}{text}{}", &before[..from], &before[to..]), after);
        }
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
                        let more = |files: &Files| Ok((0, text(files) + "x"));
                        let draft = Draft::prepare(&path, more).unwrap();
                        draft.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 80);
    }
}
