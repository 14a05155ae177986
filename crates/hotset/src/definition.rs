//! The definition of the command line with its groups, its examples and the values for completions.
//! Help, manual pages, completions and docs/commands are made from it.

use crate::commands::daemon::{CONTROL, CONTROL_VARIABLE};
use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use command::manual::Manual;
use control::client::ControlClient;
use control::config::VolumeMode;
use control::status::Status;
use policy::registry::POLICIES;
use std::ffi::OsStr;
use std::path::Path;

/// The variable by which a shell asks for completions.
pub const COMPLETE: &str = "HOTSET_COMPLETE";

/// The groups of the help, and an example of each command. The examples are one session, in the
/// order of the commands that need a daemon; a test runs them.
pub const MANUAL: Manual = Manual {
    groups: &[
        (
            "Serve",
            &[
                "init", "try", "check", "serve", "reload", "attach", "detach",
            ],
        ),
        ("Watch", &["status", "top", "web"]),
        ("Change", &["volume", "pool", "array", "job"]),
        ("Understand", &["explain", "advise", "support"]),
        ("Study", &["trace", "drill"]),
    ],
    examples: &[
        (
            "init",
            "hotset init --disk /srv/disk --ssd /srv/ssd --config new.toml",
        ),
        ("try", "hotset try --directory /srv/try"),
        ("check", "hotset check hotset.toml"),
        ("array create", "hotset array create mirror"),
        ("array assemble", "hotset array assemble mirror"),
        ("pool format", "hotset pool format /srv/ssd2 --yes"),
        ("serve", "hotset serve --config hotset.toml"),
        ("status", "hotset status --watch --interval 1 --count 2"),
        ("top", "hotset top --interval 5"),
        ("web", "hotset web --listen 127.0.0.1:8443 --state /srv/web"),
        ("explain", "hotset explain data 1MiB+256KiB"),
        ("advise", "hotset advise --volume data"),
        ("support", "hotset support --out report.tar.gz"),
        (
            "trace record",
            "hotset trace record data day.hottrace --seconds 5",
        ),
        ("trace info", "hotset trace info day.hottrace"),
        ("trace convert", "hotset trace convert day.hottrace day.csv"),
        ("trace import", "hotset trace import fio.log fio.hottrace"),
        (
            "trace replay",
            "hotset trace replay fio.hottrace /srv/mail --speed 10",
        ),
        ("volume list", "hotset volume list"),
        (
            "volume set-mode",
            "hotset volume set-mode data write-around",
        ),
        ("volume off", "hotset volume off data"),
        ("volume on", "hotset volume on data"),
        ("volume quiesce", "hotset volume quiesce data"),
        ("volume resume", "hotset volume resume data"),
        (
            "volume snapshot",
            "hotset volume snapshot data -- cp --sparse=always /srv/disk /srv/snapshot",
        ),
        ("volume grow", "hotset volume grow data"),
        ("volume takeover", "hotset volume takeover data --yes"),
        ("volume invalidate", "hotset volume invalidate data"),
        (
            "volume add",
            "hotset volume add mail --origin /srv/mail --pool fast",
        ),
        ("volume remove", "hotset volume remove mail"),
        (
            "volume replace-log",
            "hotset volume replace-log db log0 /srv/log2 --controller third",
        ),
        ("pool list", "hotset pool list"),
        ("pool add", "hotset pool add second /srv/ssd3"),
        ("pool remove", "hotset pool remove second"),
        ("pool add-device", "hotset pool add-device fast /srv/ssd2"),
        ("pool readmit", "hotset pool readmit fast ssd"),
        ("pool remove-device", "hotset pool remove-device fast ssd2"),
        ("array status", "hotset array status mirror"),
        ("array fail", "hotset array fail mirror left"),
        ("array add", "hotset array add mirror left --yes"),
        (
            "array replace",
            "hotset array replace mirror right /srv/new",
        ),
        ("array scrub", "hotset array scrub mirror --repair"),
        ("job list", "hotset job list"),
        ("job pause", "hotset job pause detach:db"),
        ("job resume", "hotset job resume detach:db"),
        ("job cancel", "hotset job cancel detach:db"),
        ("job outcome", "hotset job outcome 186e1a5c2f4b8d00-7"),
        ("attach", "hotset attach data"),
        ("detach", "hotset detach data"),
        ("reload", "hotset reload"),
        ("pool inspect", "hotset pool inspect /srv/ssd"),
        ("pool recover", "hotset pool recover db --check"),
        ("drill", "hotset drill --set-up write-back --json"),
    ],
    see_also: &["hotset.toml(5)"],
};

/// The command line, for parsing and for completions.
pub fn definition(program: Command) -> Command {
    with_values(MANUAL.in_help(program))
}

fn with_values(command: Command) -> Command {
    let mut names: Vec<String> = Vec::new();
    names.extend(
        command
            .get_subcommands()
            .map(|below| below.get_name().to_owned()),
    );
    let command = command.mut_args(offered);
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_values)
    })
}

/// An argument with its possible values.
fn offered(arg: Arg) -> Arg {
    let fixed = !arg.get_possible_values().is_empty();
    match arg.get_id().as_str() {
        "volume" => arg.add(ArgValueCandidates::new(|| {
            names(|s| each(&s.volumes, |v| &v.name))
        })),
        "pool" => arg.add(ArgValueCandidates::new(|| {
            names(|s| each(&s.pools, |p| &p.name))
        })),
        "array" => arg.add(ArgValueCandidates::new(|| {
            names(|s| each(&s.arrays, |a| &a.name))
        })),
        "job" => arg.add(ArgValueCandidates::new(|| {
            names(|s| each(&s.jobs, |j| &j.name))
        })),
        "device" | "devices" | "by" | "member" | "origin" | "log" | "journal" => {
            arg.add(ArgValueCompleter::new(devices))
        }
        "mode" if !fixed => arg.add(ArgValueCandidates::new(|| {
            listed(VolumeMode::ALL.map(VolumeMode::name))
        })),
        "policy" if !fixed => arg.add(ArgValueCandidates::new(|| listed(POLICIES))),
        _ => arg,
    }
}

fn listed(names: impl IntoIterator<Item = &'static str>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn each<T>(all: &[T], name: impl Fn(&T) -> &String) -> Vec<String> {
    all.iter().map(|one| name(one).clone()).collect()
}

/// Names of a running daemon; none where none answers.
fn names(of: impl Fn(&Status) -> Vec<String>) -> Vec<CompletionCandidate> {
    let control = std::env::var_os(CONTROL_VARIABLE).unwrap_or_else(|| CONTROL.into());
    let status = ControlClient::connect(Path::new(&control)).and_then(|mut client| client.status());
    let names = status.map(|status| of(&status)).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Devices of a running daemon, and paths.
fn devices(current: &OsStr) -> Vec<CompletionCandidate> {
    let all = names(|status| {
        let used = each(&status.devices, |device| &device.name);
        let unused = each(&status.unused, |device| &device.name);
        [used, unused].concat()
    });
    let typed = current.to_string_lossy();
    let mut found: Vec<_> = all
        .into_iter()
        .filter(|name| name.get_value().to_string_lossy().starts_with(&*typed))
        .collect();
    found.extend(PathCompleter::any().complete(current));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use command::manual::walk;

    #[test]
    fn each_command_is_in_a_group_and_has_an_example() {
        let mut program = Cli::command();
        program.build();
        let shown = program.get_subcommands().filter(|c| !c.is_hide_set());
        let mut shown: Vec<_> = shown
            .map(Command::get_name)
            .filter(|name| *name != "help")
            .collect();
        let mut grouped: Vec<_> = MANUAL
            .groups
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
        let mut lacking = Vec::new();
        walk(&program, "", &mut |command, path| {
            let words = path.trim();
            let leaf = !command
                .get_subcommands()
                .any(|below| below.get_name() != "help");
            if leaf && !MANUAL.examples.iter().any(|(of, _)| *of == words) {
                lacking.push(words.to_owned());
            }
        });
        assert!(lacking.is_empty(), "no example: {lacking:?}");
    }
}
