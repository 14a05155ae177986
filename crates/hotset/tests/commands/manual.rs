//! Products of the definition of the command line: examples, manual pages, completions, and the
//! pages of docs/commands.

use crate::common::{
    Daemon, Place, Process, all, faultless_pages, hotset, mandoc, refused, run, tool, until,
};
use crate::documents::docs;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The devices, pools and volumes that the examples name: a pool, an array and a write-back volume,
/// so that a device of each kind is there.
pub const CONFIG: &str = r#"[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[device]]
name = "disk"
path = "$/disk"
[[device]]
name = "ssd"
path = "$/ssd"
[[device]]
name = "left"
path = "$/left"
[[device]]
name = "right"
path = "$/right"
[[device]]
name = "records"
path = "$/records"
[[device]]
name = "log0"
path = "$/log0"
controller = "first"
[[device]]
name = "log1"
path = "$/log1"
controller = "second"
[[array]]
name = "mirror"
level = "raid1"
members = ["left", "right"]
[[pool]]
name = "fast"
devices = ["ssd"]
hit_latency_max = "10s"
[[volume]]
name = "data"
origin = "disk"
pool = "fast"
[[volume]]
name = "files"
origin = "mirror"
pool = "fast"
[[volume]]
name = "db"
origin = "records"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
[[listen]]
unix = "$/nbd"
"#;

/// Examples that may be refused here, and a part of the message.
const REFUSED: [(&str, &str); 8] = [
    ("job pause", "detach:db"),
    ("job resume", "detach:db"),
    ("job cancel", "detach:db"),
    ("job outcome", "186e1a5c2f4b8d00-7"),
    ("pool readmit", "ssd"),
    ("volume takeover", "no other host has its origin"),
    ("attach", "ublk"),
    ("detach", "ublk"),
];

/// Examples, by the words of their command, in the order of the definition.
fn examples() -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/definition.rs");
    let source = fs::read_to_string(source).unwrap();
    let (_, table) = source.split_once("examples: &[").unwrap();
    let (table, _) = table.split_once("    ],\n").unwrap();
    let strings: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    let pairs = strings.chunks(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
        .collect()
}

/// A place in which the examples can run, and the way there.
struct Session {
    place: Place,
    path: String,
}

impl Session {
    fn new() -> Session {
        let place = Place::new();
        for name in [
            "disk", "records", "mail", "ssd", "ssd2", "ssd3", "left", "right", "new",
        ] {
            place.file(name, 64);
        }
        for name in ["log0", "log1", "log2"] {
            place.file(name, 32);
        }
        place.config(CONFIG);
        let log = "fio version 2 iolog\nf add\nf open\nf read 0 4096\nf write 8192 4096\nf close\n";
        fs::write(place.path("fio.log"), log).unwrap();
        let program = PathBuf::from(hotset().get_program());
        let folder = program.parent().unwrap().display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
        Session { place, path }
    }

    /// A shell that runs `line` in place of itself.
    fn shell(&self, line: &str) -> Command {
        let line = line.replace("/srv/", &self.place.text(""));
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(self.place.path(""));
        shell.env("PATH", &self.path);
        shell.env("HOTSET_CONFIG", self.place.path("hotset.toml"));
        shell.env("HOTSET_CONTROL", self.place.path("control"));
        shell
    }

    /// Runs an example that goes on until it is ended, with its output in the file `said`.
    fn lasting(&self, line: &str) -> Process {
        let said = fs::File::create(self.place.path("said")).unwrap();
        let mut shell = self.shell(&format!("exec {line}"));
        shell.stdout(said.try_clone().unwrap()).stderr(said);
        Process(shell.process_group(0).spawn().unwrap())
    }

    fn runs(&self, of: &str, line: &str) {
        let output = self.shell(line).output().unwrap();
        let refused = REFUSED.iter().find(|(refused, _)| *refused == of);
        let expected = refused.is_some_and(|(_, part)| all(&output).contains(part));
        assert!(
            output.status.success() || expected,
            "{line}: {}",
            all(&output)
        );
    }

    /// Waits until the array has all of its members.
    fn whole(&self) {
        until("a whole mirror", || {
            let status = run(&mut self.shell("hotset array status mirror"));
            status.contains("HEALTHY")
        });
    }
}

fn ends(mut process: Process) {
    process.signal(libc::SIGTERM);
    assert!(process.0.wait().unwrap().success());
}

#[test]
fn every_example_runs() {
    let session = Session::new();
    let mut examples = examples().into_iter();
    let (place, mut daemon) = (&session.place, None);
    for (of, line) in examples.by_ref() {
        match of.as_str() {
            "try" => {
                let trial = session.lasting(&line);
                until("the volume to try", || place.path("try/nbd.sock").exists());
                let status = "HOTSET_CONTROL=/srv/try/control.sock hotset status";
                until("its daemon", || {
                    session.shell(status).output().unwrap().status.success()
                });
                ends(trial);
                assert!(!place.path("try").exists());
            }
            "serve" => {
                daemon = Some(session.lasting(&line));
                until("the daemon", || {
                    session
                        .shell("hotset status")
                        .output()
                        .unwrap()
                        .status
                        .success()
                });
                run(&mut session.shell("nbdcopy 'nbd+unix:///data?socket=nbd' null:"));
            }
            "web" => {
                let web = session.lasting(&line.replace("8443", "0"));
                until("the page", || {
                    fs::read_to_string(place.path("said"))
                        .unwrap()
                        .contains("listening on")
                });
                ends(web);
            }
            "top" => {
                let typed = format!("(sleep 2; printf q) | script -qec '{line}' /dev/null");
                session.runs(&of, &typed);
            }
            "trace record" => {
                let uri = place.uri("data");
                let reads = format!("while nbdcopy '{uri}' null:; do sleep 0.1; done");
                let reader = session.lasting(&format!("sh -c \"{reads}\""));
                session.runs(&of, &line);
                let _ = Command::new("kill")
                    .args(["--", &format!("-{}", reader.0.id())])
                    .status();
            }
            "volume grow" => {
                place.file("disk", 96);
                session.runs(&of, &line);
            }
            "pool inspect" => {
                ends(daemon.take().unwrap());
                session.runs(&of, &line);
            }
            // The tests of drills run this command.
            "drill" => drop(run(&mut session.shell(&format!("{line} --help")))),
            _ => session.runs(&of, &line),
        }
        if ["array add", "array replace"].contains(&of.as_str()) {
            session.whole();
        }
    }
}

/// The manual pages, in a place of their own.
fn pages() -> (Place, Vec<PathBuf>) {
    let place = Place::new();
    run(hotset().args(["man", "--directory"]).arg(place.path("")));
    let pages = fs::read_dir(place.path("")).unwrap();
    let mut pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    pages.sort();
    (place, pages)
}

#[test]
fn manual_pages_have_no_faults() {
    let (place, pages) = pages();
    assert!(
        pages.len() > 50 && pages.contains(&place.path("hotset.toml.5")),
        "{pages:?}"
    );
    faultless_pages(&pages);
    let wrong = place.path("wrong.1");
    fs::write(&wrong, ".TH A 1\n.SH NAME\nx\n.FOO\n").unwrap();
    let judged = mandoc(&[wrong]);
    assert!(judged.is_none_or(|judged| !judged.stdout.is_empty()));
}

#[test]
fn manual_pages_show_options_values_and_examples() {
    let (place, _pages) = pages();
    let page = fs::read_to_string(place.path("hotset-volume-set-mode.1")).unwrap();
    for part in [
        "\\-\\-journal DEVICE",
        "\\fBwrite\\-around\\fR",
        ".SH EXAMPLES",
        "hotset.toml(5)",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let configuration = fs::read_to_string(place.path("hotset.toml.5")).unwrap();
    for part in [".SH [[volume]]", "line_size", "\\fB\"64KiB\"\\fR", "conf.d"] {
        assert!(configuration.contains(part), "{part} in {configuration}");
    }
}

/// The completions of a shell for the last of `words`.
fn offered(control: &Path, words: &[&str]) -> Vec<String> {
    let mut fish = hotset();
    fish.env("HOTSET_COMPLETE", "fish")
        .env("HOTSET_CONTROL", control);
    let offered = run(fish.args(["--", "hotset"]).args(words));
    let names = offered
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned());
    names.collect()
}

#[test]
fn completions_offer_modes_and_the_names_of_a_running_daemon() {
    let place = Place::usual();
    let daemon: Daemon = place.serve();
    let control = place.path("control");
    assert_eq!(offered(&control, &["volume", "set-mode", "v"]), ["vol"]);
    assert_eq!(offered(&control, &["pool", "remove", ""])[0], "fast");
    assert_eq!(
        offered(&control, &["pool", "remove-device", "fast", "po"])[0],
        "pool"
    );
    assert_eq!(
        offered(&control, &["volume", "set-mode", "vol", "write-a"]),
        ["write-around"]
    );
    assert_eq!(offered(&control, &["vol"]), ["volume"]);
    daemon.stop();
    let none = offered(&control, &["pool", "remove", ""]);
    assert!(!none.contains(&"fast".into()), "{none:?}");
}

#[test]
fn completions_are_scripts_of_their_shells() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.path(shell);
        fs::write(&script, run(hotset().args(["completions", shell]))).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(judged) => assert!(judged.status.success(), "{}", all(&judged)),
            Err(_) => {
                eprintln!("skipped: `{shell}` is missing: install the Debian package `{shell}`")
            }
        }
    }
    let session = Session::new();
    let line = "source ./bash; COMP_WORDS=(hotset volume set-); COMP_CWORD=2; \
                _clap_complete_hotset hotset set- volume; echo \"${COMPREPLY[@]}\"";
    let mut bash = tool("bash", "bash");
    bash.args(["-c", line])
        .current_dir(place.path(""))
        .env("PATH", &session.path);
    assert_eq!(run(&mut bash).trim(), "set-mode");
}

#[test]
fn help_is_in_groups_and_ends_with_an_example() {
    let help = run(hotset().arg("--help"));
    for part in ["Serve:\n  init ", "\nStudy:\n  trace ", "\nOptions:\n"] {
        assert!(help.contains(part), "{help}");
    }
    let help = run(hotset().args(["pool", "add", "--help"]));
    assert!(
        help.ends_with("Example:\n  hotset pool add second /srv/ssd3\n"),
        "{help}"
    );
}

/// The heading of the part of a page that is made.
const MADE: &str = "\n## Commands and options\n";

/// A page with its synopsis and its reference as the program has them.
fn renewed(page: &str, commands: &[&str]) -> String {
    let (mut synopses, mut reference) = (String::new(), String::new());
    for command in commands {
        let made = run(hotset().arg("reference").args(command.split(' ')));
        let (lines, rest) = made.split_once("\n\n").unwrap();
        synopses += &format!("{lines}\n");
        reference += &format!("\n{rest}");
    }
    let (title, rest) = page.split_once("\n\n").unwrap();
    let lines = rest.split_inclusive('\n');
    let prose: String = lines.skip_while(|line| line.starts_with("    ")).collect();
    let prose = prose.split(MADE).next().unwrap().trim();
    format!("{title}\n\n{synopses}\n{prose}\n{MADE}{reference}")
}

/// `HOTSET_RENEW=1 cargo test --workspace --test commands pages_of_commands` writes them.
#[test]
fn pages_of_commands_are_those_of_the_definition() {
    let pages = [
        "init", "try", "serve", "check", "reload", "status", "top", "web", "volume", "pool",
        "array", "job", "attach", "explain", "advise", "support", "trace", "drill",
    ];
    for name in pages {
        let path = docs(&format!("commands/{name}.md"));
        let page = fs::read_to_string(&path).unwrap();
        let commands = if name == "attach" {
            &["attach", "detach"][..]
        } else {
            &[name][..]
        };
        let made = renewed(&page, commands);
        if std::env::var_os("HOTSET_RENEW").is_some() {
            fs::write(&path, &made).unwrap();
        } else {
            assert!(page == made, "{name}.md: renew it with HOTSET_RENEW=1");
        }
    }
}

/// The first shell block of a page.
fn block(path: &str, heading: &str) -> String {
    let page = fs::read_to_string(docs(path)).unwrap();
    let (_, part) = page.split_once(heading).unwrap();
    let (_, block) = part.split_once("```sh\n").unwrap();
    block.split("```").next().unwrap().to_owned()
}

#[test]
fn the_first_pages_run_as_they_stand() {
    let lines = block("../README.md", "## Five lines");
    assert_eq!(lines.lines().count(), 5);
    assert_eq!(lines, block("guide/start.md", "## Two files"));
    let (place, session) = (Place::new(), Session::new());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &format!("{lines}kill $!; wait $!")]);
    shell.current_dir(place.path("")).env("PATH", &session.path);
    shell
        .env_remove("HOTSET_CONFIG")
        .env_remove("HOTSET_CONTROL");
    let report = run(&mut shell);
    assert!(report.contains(" 66.7\n"), "{report}");
}

#[test]
fn counters_requests_and_exit_statuses_are_listed() {
    let counters = run(hotset().args(["reference", "counters"]));
    let page = fs::read_to_string(docs("counters.md")).unwrap();
    assert!(
        page.ends_with(&counters),
        "renew it with `hotset reference counters`"
    );
    let statuses = run(hotset().args(["reference", "exit-statuses"]));
    let page = fs::read_to_string(docs("guide/messages.md")).unwrap();
    assert!(
        page.contains(&statuses),
        "renew it with `hotset reference exit-statuses`"
    );
    let page = fs::read_to_string(docs("commands/control.md")).unwrap();
    let wrong = serde_json::from_str::<control::protocol::ControlRequest>("{\"request\":\"?\"}");
    let known = wrong.map(drop).unwrap_err().to_string();
    let (_, known) = known.split_once("expected one of ").unwrap();
    for request in known.split('`').skip(1).step_by(2) {
        assert!(
            page.contains(&format!("{{\"request\":\"{request}\"")),
            "control.md lacks {request}"
        );
    }
}

/// A machine of which `lsblk` says this.
const MACHINE: &str = r#"{"blockdevices": [
    {"path": "/dev/vda", "size": 4000, "model": "BOOT", "rota": true, "fstype": null, "mountpoints": [null],
     "type": "disk", "children": [{"path": "/dev/vda1", "size": 4000, "model": null, "rota": true,
     "fstype": "ext4", "mountpoints": ["/"], "type": "part"}]},
    {"path": "$/slow", "size": 67108864, "model": "ST1", "rota": true, "fstype": "ext4", "mountpoints": [null],
     "type": "disk"},
    {"path": "$/fast", "size": 67108864, "model": "NVME", "rota": false, "fstype": null, "mountpoints": [null],
     "type": "disk"},
    {"path": "$/full", "size": 67108864, "model": "SSD", "rota": false, "fstype": "xfs", "mountpoints": [null],
     "type": "disk"}]}"#;

#[test]
fn init_finds_a_free_disk_and_a_blank_ssd() {
    let place = Place::new();
    for name in ["slow", "fast", "full"] {
        place.file(name, 64);
    }
    let lsblk = place.path("lsblk");
    let directory = place.text("");
    let machine = |text: &str| {
        let text = text.replace("$/", &directory);
        fs::write(&lsblk, format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n")).unwrap();
        fs::set_permissions(&lsblk, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let init = |file: &str, more: &[&str]| {
        let mut init = hotset();
        let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
        init.env("PATH", path)
            .args(["init", "--run", &directory, "--config"])
            .arg(place.path(file))
            .args(more);
        init
    };
    machine(MACHINE);
    let said = run(&mut init("first.toml", &[]));
    assert!(
        said.contains("volume data of")
            && said.contains("/slow, cached on")
            && said.contains("/fast\n"),
        "{said}"
    );
    let text = fs::read_to_string(place.path("first.toml")).unwrap();
    assert!(
        text.contains("# /dev/vda1: ")
            && text.contains("mounted at /")
            && text.contains("holds xfs"),
        "{text}"
    );
    let judged = run(hotset().arg("check").arg(place.path("first.toml")));
    assert!(judged.contains("1 volume,"), "{judged}");
    refused(
        &mut init("first.toml", &[]),
        1,
        &["first.toml", "remove it first"],
    );
    assert_eq!(fs::read_to_string(place.path("first.toml")).unwrap(), text);
    refused(
        &mut init("none.toml", &["--disk", "/nowhere"]),
        2,
        &["/nowhere", "name a file"],
    );
    assert!(!place.path("none.toml").exists());
    machine("{\"blockdevices\": []}");
    let said = run(&mut init("bare.toml", &[]));
    assert!(said.contains("--disk"), "{said}");
    let judged = run(hotset().arg("check").arg(place.path("bare.toml")));
    assert!(judged.contains("0 volumes"), "{judged}");
}
