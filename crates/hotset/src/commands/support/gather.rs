//! The parts of the archive, from this machine, the configuration, a daemon, programs and devices.
//!
//! Invariants:
//!     a part that may never come is gathered in a thread of its own, and all have one time limit
//!     nothing is written, and no device is locked

use super::headers;
use super::part::{SupportPart, reason};
use crate::commands::{check, status};
use crate::platform::state;
use crate::platform::ublk::mounts;
use command::CommandFailure;
use control::client::ControlClient;
use control::config::{Config, Device};
use control::files::ConfigurationFiles;
use control::secrets::Secrets;
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time limit of all parts.
const LIMIT: Duration = Duration::from_secs(15);
/// Time limit of a program, in seconds.
const PROGRAM_LIMIT: &str = "10";
/// Longest part: the end of a longer one is taken.
const PART_BYTES_MAX: usize = 4 << 20;
/// Lines of a journal.
const JOURNAL_LINES: &str = "--lines=5000";
/// Properties of the units; none has an environment or a command line.
const PROPERTIES: &str = "--property=Id,LoadState,UnitFileState,ActiveState,SubState,Result,NRestarts,ExecMainCode,\
                          ExecMainStatus,ActiveEnterTimestamp,InactiveEnterTimestamp,MemoryCurrent,TasksCurrent,\
                          LimitNOFILE,LimitMEMLOCK,DropInPaths";

/// Texts by their names within the archive, or the reason for their absence.
type Texts = Result<Vec<(String, String)>, String>;

/// Parts that are gathered at the time.
#[derive(Default)]
pub struct GatheredParts(Vec<PendingPart>);

struct PendingPart {
    name: String,
    from: String,
    texts: Receiver<Texts>,
}

impl GatheredParts {
    /// Begins the parts that `work` returns, in a thread; `name` stands for all if there are none.
    fn begin(&mut self, name: &str, from: &str, work: impl FnOnce() -> Texts + Send + 'static) {
        let (sender, texts) = mpsc::channel();
        let refused = sender.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            // After the time limit there is no receiver.
            let _ = sender.send(work());
        });
        if let Err(cause) = thread {
            let _ = refused.send(Err(format!("no thread can be begun ({cause})")));
        }
        self.0.push(PendingPart {
            name: name.to_owned(),
            from: from.to_owned(),
            texts,
        });
    }

    /// Begins one part.
    fn one(
        &mut self,
        name: &str,
        from: &str,
        work: impl FnOnce() -> Result<String, String> + Send + 'static,
    ) {
        let named = name.to_owned();
        self.begin(name, from, move || Ok(vec![(named, work()?)]));
    }

    /// Waits for all parts, within the time limit.
    pub fn end(self) -> Vec<SupportPart> {
        let until = Instant::now() + LIMIT;
        let ended = self.0.into_iter().flat_map(|part| {
            let left = until.saturating_duration_since(Instant::now());
            let late = || format!("no answer within {} s", LIMIT.as_secs());
            let texts = part.texts.recv_timeout(left).unwrap_or_else(|error| {
                Err(match error {
                    RecvTimeoutError::Timeout => late(),
                    RecvTimeoutError::Disconnected => "gathering it has failed".into(),
                })
            });
            let parts = match texts {
                Ok(texts) => texts
                    .into_iter()
                    .map(|(name, text)| (name, Ok(bounded(text))))
                    .collect(),
                Err(why) => vec![(part.name, Err(why))],
            };
            let from = part.from;
            parts.into_iter().map(move |(name, text)| SupportPart {
                name,
                from: from.clone(),
                text,
            })
        });
        ended.collect()
    }
}

/// The end of a text, from the beginning of a line, if all of it is too long.
fn bounded(text: String) -> String {
    if text.len() <= PART_BYTES_MAX {
        return text;
    }
    let from = text.len() - PART_BYTES_MAX;
    let line = text.as_bytes()[from..].iter().position(|b| *b == b'\n');
    let from = line.map_or(text.len(), |line| from + line + 1);
    format!("({from} bytes before are left out)\n{}", &text[from..])
}

/// The places to gather from.
pub struct MachineGatherer<'a> {
    pub config: &'a Path,
    pub control: &'a Path,
    pub web_state: &'a Path,
}

impl MachineGatherer<'_> {
    /// Begins all parts, in the order of the list. The secrets of the configuration are learnt.
    pub fn gather(&self, secrets: &mut Secrets, parts: &mut GatheredParts) {
        parts.one("version.txt", "this program", || Ok(version()));
        MachineGatherer::machine(parts);
        let config = self.configuration(secrets, parts);
        self.daemon(parts);
        MachineGatherer::programs(parts);
        let events = self.web_state.join("events");
        parts.one("page/events.jsonl", &events.display().to_string(), {
            let events = events.clone();
            move || read(&events)
        });
        if let Some(config) = &config {
            witnesses(&config.daemon.state.value, parts);
            config.devices.iter().for_each(|d| device(d, parts));
        }
    }

    fn machine(parts: &mut GatheredParts) {
        for (name, path) in [
            ("kernel.txt", "/proc/version"),
            ("os-release.txt", "/etc/os-release"),
            ("memory.txt", "/proc/meminfo"),
        ] {
            parts.one(&format!("machine/{name}"), path, move || {
                read(Path::new(path))
            });
        }
        parts.one("machine/processors.txt", "/proc/cpuinfo", || {
            let all = read(Path::new("/proc/cpuinfo"))?;
            let count = std::thread::available_parallelism().map_or(0, usize::from);
            let first = all.split("\n\n").next().unwrap_or_default();
            Ok(format!(
                "{count} for this process, of which the first is:\n\n{first}\n"
            ))
        });
        parts.one(
            "machine/block-devices.json",
            "lsblk",
            || match web::block_devices() {
                found if found.is_empty() => Err("lsblk lists no device".into()),
                found => pretty(&found),
            },
        );
    }

    /// The files of the configuration, and what `hotset check` finds. Returns what can be read.
    fn configuration(&self, secrets: &mut Secrets, parts: &mut GatheredParts) -> Option<Config> {
        let from = self.config.display().to_string();
        let files = match ConfigurationFiles::read(self.config) {
            Ok(files) => files,
            Err((path, cause)) => {
                let why = format!("{} cannot be read ({cause})", path.display());
                parts.begin("configuration", &from, || Err(why));
                return None;
            }
        };
        for (n, file) in files.iter().enumerate() {
            let name = file.path.file_name().unwrap_or_default();
            let folder = if n == 0 { "" } else { "conf.d/" };
            let name = format!("configuration/{folder}{}", name.to_string_lossy());
            let text = secrets.configuration(&file.text);
            parts.one(&name, &file.path.display().to_string(), move || {
                let why = "it is no TOML, so that secrets cannot be found; see check.txt";
                text.ok_or_else(|| why.into())
            });
        }
        let (file, control) = (self.config.to_owned(), self.control.to_owned());
        parts.one("check.txt", "hotset check", move || {
            // A daemon has the sockets and ports of its configuration.
            let is_served = ControlClient::connect(&control).is_ok();
            match check::judged(&file, is_served) {
                Ok(lines) => Ok(lines.join("\n") + "\n"),
                Err(CommandFailure::Usage(problems)) => Ok(problems + "\n"),
                Err(failure) => Err(reason(failure)),
            }
        });
        let config = files.parse(&mut Vec::new());
        let paths = used_paths(&config, self.config);
        parts.one("machine/mounts.txt", "/proc/self/mountinfo", move || {
            Ok(paths.iter().map(|path| mount_line(path)).collect())
        });
        Some(config)
    }

    fn daemon(&self, parts: &mut GatheredParts) {
        let from = format!("the daemon on {}", self.control.display());
        let control = self.control.to_owned();
        parts.begin("daemon/status.json", &from, move || {
            let mut client = ControlClient::connect(&control).map_err(text)?;
            let status = client.status().map_err(text)?;
            let events = status.arrays.iter().flat_map(|array| {
                let name = &array.name;
                let lines = array.events.iter();
                lines.map(move |event| format!("array {name}: {event}\n"))
            });
            Ok(vec![
                ("daemon/status.json".into(), pretty(&status)?),
                ("daemon/status.txt".into(), status::table(&status)),
                ("daemon/troubles.json".into(), pretty(&status.troubles)?),
                ("daemon/jobs.json".into(), pretty(&status.jobs)?),
                ("daemon/array-events.txt".into(), events.collect()),
            ])
        });
        let control = self.control.to_owned();
        parts.begin("daemon/volumes", &from, move || {
            let mut client = ControlClient::connect(&control).map_err(text)?;
            let volumes = client.status().map_err(text)?.volumes;
            let explained = volumes.iter().map(|volume| {
                let explained = client.explain(&volume.name, None).map_err(text)?;
                let name = format!("daemon/volumes/{}.json", volume.name);
                Ok((name, pretty(&explained)?))
            });
            explained.collect()
        });
        let (file, control) = (self.config.to_owned(), self.control.to_owned());
        let name = "daemon/differences.txt";
        parts.one(name, "hotset check --against-running", move || {
            let found = check::differences(&file, &control);
            let lines = found.map_err(reason)?;
            Ok(lines.join("\n") + "\n")
        });
    }

    fn programs(parts: &mut GatheredParts) {
        let journal = |unit| {
            let form = "--output=short-iso";
            vec!["journalctl", unit, JOURNAL_LINES, "--no-pager", form]
        };
        let units = vec!["systemctl", "show", "hotset", "hotset-web", PROPERTIES];
        for (name, words) in [
            ("journal/units.txt", units),
            ("journal/hotset.txt", journal("--unit=hotset")),
            ("journal/hotset-web.txt", journal("--unit=hotset-web")),
        ] {
            parts.one(name, &words[..2].join(" "), move || program(&words));
        }
    }
}

/// The output of a program, which is ended once it takes too long.
fn program(words: &[&str]) -> Result<String, String> {
    let name = words[0];
    let output = Command::new("timeout")
        .arg(PROGRAM_LIMIT)
        .args(words)
        .output()
        .map_err(|cause| format!("{name} cannot be run ({cause})"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{name} ended with {}: {said}", output.status))
        }
    }
}

fn version() -> String {
    let build = if cfg!(debug_assertions) {
        "with"
    } else {
        "without"
    };
    format!(
        "hotset {}\n{}, {build} debug assertions\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
    )
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn pretty(value: &impl serde::Serialize) -> Result<String, String> {
    let json = serde_json::to_string_pretty(value).map_err(text)?;
    Ok(json + "\n")
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|cause| format!("{}: {cause}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The paths whose mounts count.
fn used_paths(config: &Config, file: &Path) -> Vec<PathBuf> {
    let devices = config.devices.iter();
    let devices = devices.filter_map(|device| Some(device.path.as_ref()?.value.clone()));
    let state = config.daemon.state.value.clone();
    [file.to_owned(), state]
        .into_iter()
        .chain(devices)
        .collect()
}

/// The mount that a path is on. Values of options are left out: they may be passwords.
fn mount_line(path: &Path) -> String {
    let shown = path.display();
    let Some(mount) = mounts::of(path) else {
        return format!("{shown}: not there, or its mount is hidden\n");
    };
    let options = mount.options.split(',');
    let options: Vec<&str> = options.filter_map(|one| one.split('=').next()).collect();
    let (at, kind, source) = (mount.at.display(), mount.kind, mount.source);
    format!(
        "{shown}: {kind} of {source} on {at}: {}\n",
        options.join(",")
    )
}

/// The files in `state`, and the superblocks of its witnesses.
fn witnesses(state: &Path, parts: &mut GatheredParts) {
    let from = state.display().to_string();
    let folder = state.to_owned();
    parts.begin("state", &from, move || {
        let entries = fs::read_dir(&folder).map_err(|c| format!("{}: {c}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let (mut list, mut texts) = (String::new(), Vec::new());
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let meta = path.symlink_metadata().map_err(text)?;
            let _ = writeln!(
                list,
                "{name}: {} B, changed at {}",
                meta.len(),
                meta.mtime()
            );
            if path.extension().is_some_and(|ending| ending == "pool") {
                let report = headers::of(&path).unwrap_or_else(|why| json!({ "missing": why }));
                texts.push((format!("state/{name}.json"), pretty(&report)?));
            }
        }
        texts.insert(0, ("state/files.txt".into(), list));
        Ok(texts)
    });
    let folder = state.to_owned();
    parts.begin("state/logs", &from, move || {
        let logs = state::logs(&folder).map_err(text)?;
        let texts = logs.iter().map(|log| {
            let name = log.file.file_name().unwrap_or_default().to_string_lossy();
            let report = headers::log_report(&log.superblock);
            Ok((format!("state/{name}.json"), pretty(&report)?))
        });
        texts.collect()
    });
}

/// The superblocks of a device.
fn device(device: &Device, parts: &mut GatheredParts) {
    let name = format!("devices/{}.json", device.name.value);
    let Some(path) = &device.path else {
        let why = "an export of an NBD server is not read";
        parts.one(&name, "NBD", move || Err(why.into()));
        return;
    };
    let path = path.value.clone();
    parts.one(&name, &path.display().to_string(), {
        let path = path.clone();
        move || pretty(&headers::of(&path)?)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_part_stays() {
        let long = "a line\n".repeat(PART_BYTES_MAX / 7 + 10) + "the last\n";
        let kept = bounded(long.clone());
        assert!(kept.len() < PART_BYTES_MAX + 64);
        assert!(kept.starts_with('(') && kept.ends_with("\na line\nthe last\n"));
        assert_eq!(bounded("short\n".into()), "short\n");
    }

    #[test]
    fn a_part_that_fails_leaves_the_others() {
        let mut parts = GatheredParts::default();
        parts.one("first", "a", || Err("why".into()));
        parts.one("second", "b", || panic!("a fault of this test"));
        parts.one("third", "c", || Ok("text".into()));
        let ended = parts.end();
        let names: Vec<&str> = ended.iter().map(|part| &*part.name).collect();
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(ended[0].text, Err("why".into()));
        assert!(ended[1].text.is_err());
        assert_eq!(ended[2].text, Ok("text".into()));
    }
}
