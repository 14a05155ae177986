//! Operators at the file: a request as an edit of the configuration and a reload.
//!
//! Invariants:
//!     one operator at a time edits, and holds the lock of the folder until the file is replaced
//!     an edit that is refused is undone, and a mistake in any case
//!     the daemon refuses a mistake, leaves the file as it is, and serves its volumes on
//!
//! An edit passes through the mounted folder, and meets its faults. A mistake is undone past the
//! folder, so that the configuration always starts.

use crate::plan::{FILES, VISITOR};
use crate::standing::list;
use crate::world::StormWorld;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use toml_edit::{Array, DocumentMut, Table, value};

/// Classes of events of a file.
pub const CLASSES: [&str; 1] = ["a mistake in the file is refused"];

/// Requests that an edit can have.
const EDITS: [&str; 8] = [
    "reload",
    "set-mode",
    "add-pool",
    "remove-pool",
    "add-volume",
    "remove-volume",
    "add-device",
    "remove-device",
];
/// A comment, which comes and goes.
const NOTE: &str = "# an operator was here\n";
/// Tries to lock the folder, and the pause between them.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Time in which a daemon runs the file after a signal, if nothing is in the way.
const SIGNALLED: Duration = Duration::from_secs(10);
/// Interval of looks at the daemon's configuration.
const LOOK: Duration = Duration::from_millis(100);

/// A mistake in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The text is no TOML.
    Text,
    /// A section has an unknown title.
    Title,
    /// A volume has an origin that no device is.
    Origin,
    /// A parameter is changed that needs a restart.
    Restart,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 4] = [
        Mistake::Text,
        Mistake::Title,
        Mistake::Origin,
        Mistake::Restart,
    ];

    fn edited(self, text: &str) -> Option<String> {
        match self {
            Mistake::Text => Some(format!("{text}mode =\n")),
            Mistake::Title => Some(format!("{text}\n[[volum]]\nname = \"mistake\"\n")),
            Mistake::Origin => Some(format!(
                "{text}\n[[volume]]\nname = \"mistake\"\norigin = \"none\"\npool = \"fast\"\n"
            )),
            Mistake::Restart => {
                let after = text.replace("buffers = \"48MiB\"", "buffers = \"64MiB\"");
                (after != text).then_some(after)
            }
        }
    }

    /// Makes the mistake, waits for the refusal, and undoes the edit.
    fn make(self, world: &StormWorld, reload: &dyn Fn() -> io::Result<Value>) -> io::Result<()> {
        let Ok(edit) = FileEdit::make(world, &|text| self.edited(text)) else {
            return Ok(());
        };
        let outcome = reload();
        if !edit.undo()? {
            let what = format!("a configuration with a mistake is changed: {self:?}");
            world.found.violation(what);
        }
        let outcome = outcome?;
        if outcome.get("error").is_some() {
            world.found.met(CLASSES[0]);
            world
                .found
                .happens(format!("{self:?} is refused: {outcome}"));
        } else if outcome.get("left").is_none() {
            let what = format!("a configuration with a mistake is run: {self:?}");
            world.found.violation(what);
        }
        if let Some(volume) = unserved(world) {
            let what = format!("after a mistake {self:?} {volume} is not served");
            world.found.violation(what);
        }
        Ok(())
    }
}

/// True if an edit can have this request.
pub fn takes(request: &Value) -> bool {
    EDITS.iter().any(|what| request["request"] == *what)
}

/// Gives a request by an edit and `reload`, at times after a mistake. Returns the outcome in the
/// form of the control socket.
pub fn give(
    world: &StormWorld,
    request: &Value,
    mistake: Option<Mistake>,
    reload: &dyn Fn() -> io::Result<Value>,
) -> io::Result<Value> {
    let Ok(_desk) = world.machine.desk.try_lock() else {
        return Ok(json!({"error": "another operator edits the configuration"}));
    };
    if let Some(mistake) = mistake {
        mistake.make(world, reload)?;
    }
    let edit = match FileEdit::make(world, &|text| edited(text, request)) {
        Ok(edit) => edit,
        // The folder may be at fault, or the daemon may have locked it for a long change.
        Err(error) => return Ok(json!({"error": format!("the file is not changed: {error}")})),
    };
    let outcome = reload();
    let (is_refused, is_unknown) = match &outcome {
        Ok(outcome) => (
            outcome.get("error").is_some(),
            outcome.get("left").is_some(),
        ),
        Err(_) => (false, true),
    };
    if is_refused {
        edit.undo_locked(world)?;
        // The daemon may have run the edit for another operator.
        reload()?;
    } else if is_unknown && request["request"] != "set-mode" {
        // A volume that may be write-back by now needs its log in the file.
        edit.undo_locked(world)?;
    }
    outcome
}

/// A volume that the daemon's report lacks, if any.
fn unserved<'a>(world: &StormWorld<'a>) -> Option<&'a str> {
    let status = world.machine.status(world.weather).ok()?;
    let served = list(&status, "volumes")
        .iter()
        .chain(list(&status, "waiting"));
    let served: Vec<&Value> = served.map(|volume| &volume["name"]).collect();
    let mut names = world.plan.volumes[..VISITOR]
        .iter()
        .map(|volume| volume.name);
    names.find(|name| !served.iter().any(|served| *served == name))
}

/// Has the daemon run the file by a signal. The outcome is a refusal if the daemon does not run the
/// file in time.
pub fn reload_by_signal(world: &StormWorld) -> io::Result<Value> {
    world.machine.signal(libc::SIGHUP);
    let begun = Instant::now();
    let look = json!({"request": "configuration"});
    loop {
        let answer = world.machine.ask(&look, world.weather)?;
        let files = list(&answer["configuration"], "files").iter();
        let running: Vec<Option<&str>> = files.map(|file| file["text"].as_str()).collect();
        let texts = world.machine.texts()?;
        let texts: Vec<Option<&str>> = texts.iter().map(|(text, _)| Some(text.as_str())).collect();
        if running == texts {
            return Ok(json!("done"));
        }
        if world.weather.overdue(begun, SIGNALLED).is_some() {
            return Ok(json!({"error": "the daemon does not run the file after SIGHUP"}));
        }
        sleep(LOOK);
    }
}

/// An edit of a file of the configuration.
struct FileEdit {
    /// True path of the file.
    path: PathBuf,
    before: String,
    after: String,
}

impl FileEdit {
    /// Edits the first file that `edit` has a new text for.
    fn make(world: &StormWorld, edit: &dyn Fn(&str) -> Option<String>) -> io::Result<FileEdit> {
        let _lock = lock(world)?;
        for file in FILES {
            let path = world.machine.etc().join(file);
            let before = match fs::read_to_string(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            };
            let Some(after) = edit(&before) else { continue };
            replace(&path, &after)?;
            let path = world.machine.true_etc().join(file);
            return Ok(FileEdit {
                path,
                before,
                after,
            });
        }
        Err(io::Error::new(ErrorKind::NotFound, "it has no such part"))
    }

    /// Restores the text before, unless the file has been changed since: then returns false.
    fn undo(&self) -> io::Result<bool> {
        let is_ours = fs::read_to_string(&self.path)? == self.after;
        if is_ours {
            replace(&self.path, &self.before)?;
        }
        Ok(is_ours)
    }

    /// Likewise, unless the daemon is about to change the file.
    fn undo_locked(&self, world: &StormWorld) -> io::Result<()> {
        let Ok(_lock) = lock(world) else {
            return Ok(());
        };
        self.undo().map(drop)
    }
}

/// Locks the folder of the configuration, as the daemon does for its changes.
fn lock(world: &StormWorld) -> io::Result<File> {
    let lock = File::open(world.machine.etc())?;
    for _ in 0..LOCK_ATTEMPTS {
        if lock.try_lock().is_ok() {
            return Ok(lock);
        }
        sleep(LOCK_PAUSE);
    }
    Err(io::Error::new(
        ErrorKind::WouldBlock,
        "its folder is locked",
    ))
}

/// Replaces a file as a whole.
fn replace(path: &std::path::Path, text: &str) -> io::Result<()> {
    let beside = path.with_file_name(".edited");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, path)
}

/// Returns the text of a file after a request; `None` if the request is about no part of the file.
fn edited(text: &str, request: &Value) -> Option<String> {
    let of = |part: &str| request[part].as_str();
    if request["request"] == "reload" {
        return match text.contains(NOTE) {
            true => Some(text.replace(NOTE, "")),
            false => Some(format!("{text}{NOTE}")),
        };
    }
    let mut file: DocumentMut = text.parse().ok()?;
    match of("request")? {
        "add-pool" => return Some(format!("{text}\n[[pool]]\n{}", of("pool")?)),
        "add-volume" => return Some(format!("{text}\n[[volume]]\n{}", of("volume")?)),
        "remove-pool" => remove(&mut file, "pool", of("pool")?)?,
        "remove-volume" => remove(&mut file, "volume", of("volume")?)?,
        "set-mode" => {
            let volume = named(&mut file, "volume", of("volume")?)?;
            volume["mode"] = value(of("mode")?);
            volume.remove("off");
            let log = list(request, "log").iter();
            let log: Array = log.filter_map(|device| device["named"].as_str()).collect();
            if !log.is_empty() {
                volume["log"] = value(log);
            }
        }
        "add-device" => {
            let pool = named(&mut file, "pool", of("pool")?)?;
            let devices = pool.get_mut("devices")?.as_array_mut()?;
            devices.push(request["device"]["named"].as_str()?);
        }
        "remove-device" => {
            let device = of("device");
            let pool = named(&mut file, "pool", of("pool")?)?;
            let devices = pool.get_mut("devices")?.as_array_mut()?;
            let at = devices.iter().position(|name| name.as_str() == device)?;
            devices.remove(at);
        }
        _ => return None,
    }
    Some(file.to_string())
}

/// The section of this title and name.
fn named<'a>(file: &'a mut DocumentMut, title: &str, name: &str) -> Option<&'a mut Table> {
    let mut sections = file.get_mut(title)?.as_array_of_tables_mut()?.iter_mut();
    sections.find(|section| is_named(section, name))
}

fn is_named(section: &Table, name: &str) -> bool {
    section.get("name").and_then(|name| name.as_str()) == Some(name)
}

/// Removes the section of this title and name.
fn remove(file: &mut DocumentMut, title: &str, name: &str) -> Option<()> {
    let sections = file.get_mut(title)?.as_array_of_tables_mut()?;
    let at = sections
        .iter()
        .position(|section| is_named(section, name))?;
    sections.remove(at);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# first\n[daemon]\nbuffers = \"48MiB\"\n\n[[pool]]\nname = \"fast\"\n\
                        devices = [\"ssd0\"]\n\n[[volume]]\nname = \"back\"\n\
                        mode = \"write-around\"\noff = true\n";

    #[test]
    fn an_edit_has_its_request_and_keeps_the_rest() {
        let add = json!({"request": "add-device", "pool": "fast", "device": {"named": "ssd1"}});
        let more = edited(TEXT, &add).unwrap();
        assert_eq!(more, TEXT.replace("[\"ssd0\"]", "[\"ssd0\", \"ssd1\"]"));
        let remove = json!({"request": "remove-device", "pool": "fast", "device": "ssd1"});
        assert_eq!(edited(&more, &remove).unwrap(), TEXT);
        assert_eq!(edited(TEXT, &remove), None);
        let set = json!({"request": "set-mode", "volume": "back", "mode": "write-back",
            "log": [{"named": "log0"}, {"named": "log1"}]});
        let mode = "mode = \"write-back\"\nlog = [\"log0\", \"log1\"]";
        let expected = TEXT.replace("mode = \"write-around\"\noff = true", mode);
        assert_eq!(edited(TEXT, &set).unwrap(), expected);
        let lent = json!({"request": "add-pool", "pool": "name = \"lent\"\ndevices = []\n"});
        let more = edited(TEXT, &lent).unwrap();
        assert_ne!(more, TEXT);
        let gone = json!({"request": "remove-pool", "pool": "lent"});
        assert_eq!(edited(&more, &gone).unwrap().trim_end(), TEXT.trim_end());
        let noted = edited(TEXT, &json!({"request": "reload"})).unwrap();
        assert_eq!(edited(&noted, &json!({"request": "reload"})).unwrap(), TEXT);
    }

    #[test]
    fn each_mistake_changes_the_text() {
        for mistake in Mistake::ALL {
            assert_ne!(mistake.edited(TEXT).as_deref(), Some(TEXT), "{mistake:?}");
        }
    }
}
