//! Checks the frontends of volumes against each other.

use crate::config::{Attach, Config, Listen};
use crate::frontends::{Queues, TAGS_MAX};
use crate::problem::ConfigurationProblem;
use std::collections::HashMap;

/// Most requests in flight of one queue of a block device.
const ATTACH_DEPTH_MAX: u32 = 256;
/// Most hardware queues of a block device.
const QUEUES_MAX: u32 = 64;
/// Most requests in flight of a virtual machine's disk: the entries of its ring.
const GUEST_DEPTH_MAX: u32 = 1024;

/// Appends the problems of the frontends.
pub(super) fn agree(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    if config.listeners.is_empty() && config.attachments.is_empty() {
        let what = "no [[listen]] and no [[attach]] section: nobody could connect";
        let remedy =
            "add a [[listen]] with `unix`, `tcp` or `vhost_user`, or an [[attach]] with `ublk`";
        problems.push(ConfigurationProblem::new(1, what, remedy));
    }
    frontends_of_volumes(config, problems);
    attachments(config, problems);
    for listen in &config.listeners {
        listener(listen, problems);
    }
}

/// A frontend of one volume alone: a block device or a virtual machine's disk.
struct OwnFrontend {
    volume: String,
    section: &'static str,
    line: u32,
}

/// All frontends of single volumes, block devices first.
fn own_frontends(config: &Config) -> impl Iterator<Item = OwnFrontend> {
    let attached = config.attachments.iter().map(|attach| OwnFrontend {
        volume: attach.ublk.to_string(),
        section: Attach::TITLE,
        line: attach.ublk.line,
    });
    let guests = config.guests().map(|(volume, listen)| {
        let socket = listen.vhost_user.as_ref().map(|socket| socket.line);
        let name = listen.volume.as_ref().map(|name| name.line);
        OwnFrontend {
            volume,
            section: Listen::TITLE,
            line: name.or(socket).unwrap_or(listen.line),
        }
    });
    attached.chain(guests)
}

/// Appends the problems of frontends of single volumes. The volume must exist, and have no second
/// such frontend unless the volume is shared.
pub fn frontends_of_volumes(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    let volumes = config.volumes.iter();
    let volumes: HashMap<&str, _> = volumes.map(|v| (v.name.as_str(), v)).collect();
    let mut first: HashMap<String, (&str, u32)> = HashMap::new();
    for frontend in own_frontends(config) {
        let OwnFrontend {
            volume,
            section,
            line,
        } = frontend;
        let Some(served) = volumes.get(volume.as_str()) else {
            let (named, others) = (("volume", &*volume), config.volumes.iter());
            let others = others.map(|v| v.name.as_str());
            problems.push(ConfigurationProblem::absent(line, section, named, others));
            continue;
        };
        match first.get(&volume) {
            None => {
                first.insert(volume, (section, line));
            }
            Some((other, before)) if *other == Attach::TITLE && section == Attach::TITLE => {
                let place = config.files.place(*before);
                let what = format!("volume {volume} is attached already ({place})");
                problems.push(ConfigurationProblem::new(
                    line,
                    what,
                    "remove one of the two",
                ));
            }
            Some((_, before)) if !served.shared.value => {
                let what = format!(
                    "volume {volume} has a frontend already ({}): file systems on two of them \
                     overwrite each other's data",
                    config.files.place(*before)
                );
                let remedy = "remove one of the two, or, for clients that write with regard to \
                     each other, give the volume `shared = true`";
                problems.push(ConfigurationProblem::new(line, what, remedy));
            }
            Some(_) => {}
        }
    }
}

/// Appends a warning for each volume that two file systems may mount.
pub(super) fn warn(config: &Config, found: &mut Vec<ConfigurationProblem>) {
    let mut own: HashMap<String, Vec<String>> = HashMap::new();
    for frontend in own_frontends(config) {
        let place = config.files.place(frontend.line);
        own.entry(frontend.volume).or_default().push(place);
    }
    let all = config.volumes.iter();
    for volume in all.filter(|v| v.shared.value && !v.read_only.value) {
        let name = &volume.name.value;
        let Some(own) = own.get(name.as_str()) else {
            continue;
        };
        let what = format!(
            "volume {name} is shared: it is an NBD export, and has a frontend of its own ({}); a \
             file system that is mounted by two of them is damaged",
            own.join(", ")
        );
        let remedy = "mount it by one at a time, or use a cluster file system such as GFS2";
        found.push(ConfigurationProblem::new(volume.shared.line, what, remedy));
    }
}

fn attachments(config: &Config, problems: &mut Vec<ConfigurationProblem>) {
    for attach in &config.attachments {
        let Queues { count, depth } = config.queues_of(attach);
        let mut most = QUEUES_MAX;
        if (1..=ATTACH_DEPTH_MAX).contains(&depth) {
            most = most.min(TAGS_MAX / depth);
        } else {
            let what = format!("a `depth` of {depth} is not possible");
            let remedy = format!("choose from 1 to {ATTACH_DEPTH_MAX}");
            problems.push(ConfigurationProblem::new(attach.depth.line, what, remedy));
        }
        if !(1..=most).contains(&count) {
            let what = format!("{count} `queues` of {depth} requests each are not possible");
            let remedy = format!("choose from 1 to {most}");
            let line = attach
                .queues
                .as_ref()
                .map_or(attach.line, |queues| queues.line);
            problems.push(ConfigurationProblem::new(line, what, remedy));
        }
    }
}

/// Checks parameters that only sockets of virtual machines have, or that only other sockets have.
fn guest(listen: &Listen, problems: &mut Vec<ConfigurationProblem>) {
    if listen.vhost_user.is_none() {
        if let Some(volume) = &listen.volume {
            let what = "`volume` belongs to `vhost_user`: over NBD, a socket has every volume";
            problems.push(ConfigurationProblem::new(volume.line, what, "remove it"));
        }
        return;
    }
    if let Some(tls) = &listen.tls_certificate {
        let what =
            "a socket of `vhost_user` has no TLS: it passes memory, and never leaves the host";
        problems.push(ConfigurationProblem::new(
            tls.line,
            what,
            "remove the parameters of TLS",
        ));
    }
    let depth = &listen.depth;
    if !(1..=GUEST_DEPTH_MAX).contains(&depth.value) {
        let what = format!("a `depth` of {} is not possible", depth.value);
        let remedy = format!("choose from 1 to {GUEST_DEPTH_MAX}");
        problems.push(ConfigurationProblem::new(depth.line, what, remedy));
    }
}

fn listener(listen: &Listen, problems: &mut Vec<ConfigurationProblem>) {
    let places = [
        listen.unix.is_some(),
        listen.tcp.is_some(),
        listen.vhost_user.is_some(),
    ];
    if places.into_iter().filter(|is_given| *is_given).count() != 1 {
        let what = "a [[listen]] section must have one of `unix`, `tcp` and `vhost_user`";
        problems.push(ConfigurationProblem::new(
            listen.line,
            what,
            "give one of the three",
        ));
    }
    guest(listen, problems);
    let tls = listen.tls_certificate.is_some();
    if tls != listen.tls_key.is_some() {
        let what = "`tls_certificate` and `tls_key` belong together";
        problems.push(ConfigurationProblem::new(
            listen.line,
            what,
            "give both or none",
        ));
    }
    if let Some(authority) = &listen.tls_client_ca
        && !tls
    {
        let what = "`tls_client_ca` needs TLS";
        let remedy = "give `tls_certificate` and `tls_key` as well";
        problems.push(ConfigurationProblem::new(authority.line, what, remedy));
    }
    if let Some(tcp) = &listen.tcp
        && !tcp.is_loopback()
        && !tls
        && !listen.allow_plaintext.value
    {
        let what = format!(
            "{} can be reached by others, and nothing is encrypted",
            tcp.0
        );
        let remedy = "give `tls_certificate` and `tls_key`, listen on 127.0.0.1, \
             or accept it with `allow_plaintext = true`";
        problems.push(ConfigurationProblem::new(tcp.line, what, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    /// Problems of a configuration with two volumes and these frontends.
    fn problems(frontends: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let text = "[[volume]]\nname='a'\norigin='o'\npool='p'\n\
             [[volume]]\nname='b'\norigin='q'\npool='p'\n";
        let config = parse(&format!("{text}{frontends}"), &mut problems);
        agree(&config, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_volume_has_one_frontend_of_its_own() {
        let guest = "[[listen]]\nvhost_user='/x/a.sock'\n";
        assert_eq!(problems(guest), Vec::<String>::new());
        for (frontends, expected) in [
            (
                "[[attach]]\nublk='a'\n[[attach]]\nublk='a'\n",
                "12: volume a is attached already (line 10)",
            ),
            (
                "[[attach]]\nublk='a'\n[[listen]]\nvhost_user='/x/a.sock'\n",
                "12: volume a has a frontend already (line 10)",
            ),
            (
                "[[listen]]\nvhost_user='/x/a.sock'\n[[listen]]\nvhost_user='/x/b'\nvolume='a'\n",
                "13: volume a has a frontend already (line 10)",
            ),
            (
                "[[listen]]\nvhost_user='/x/c.sock'\n",
                "10: [[listen]] names a volume c that does not exist",
            ),
            (
                "[[attach]]\nublk='c'\n",
                "10: [[attach]] names a volume c that does not exist",
            ),
            (
                "[[attach]]\nublk='a'\nqueues=65\n",
                "11: 65 `queues` of 128 requests each are not possible; choose from 1 to 32",
            ),
            (
                "[[attach]]\nublk='a'\nqueues=0\ndepth=1\n",
                "11: 0 `queues` of 1 requests each are not possible; choose from 1 to 64",
            ),
            (
                "[[listen]]\nvhost_user='/x/a.sock'\nunix='/x/b'\n",
                "9: a [[listen]] section must have one of",
            ),
            (
                "[[listen]]\nunix='/x/a.sock'\nvolume='a'\n",
                "11: `volume` belongs to `vhost_user`",
            ),
            (
                "[[listen]]\nvhost_user='/x/a.sock'\ndepth=0\n",
                "11: a `depth` of 0",
            ),
        ] {
            let found = problems(frontends);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{frontends}: {found:#?}"
            );
        }
    }

    #[test]
    fn a_block_device_has_a_queue_for_each_shard_unless_it_names_a_number() {
        for (shards, attach, expected) in [
            ("1", "", 1),
            ("3", "", 3),
            ("[2, 4]", "", 2),
            ("3", "queues=2", 2),
            ("64", "", 32),
            ("64", "depth=256", 16),
        ] {
            let text = format!("[daemon]\nshards={shards}\n[[attach]]\nublk='a'\n{attach}\n");
            let mut found = Vec::new();
            let config = parse(&text, &mut found);
            attachments(&config, &mut found);
            assert!(found.is_empty(), "{text}: {found:#?}");
            let queues = config.queues_of(&config.attachments[0]);
            assert_eq!(queues.count, expected, "{text}");
        }
    }

    #[test]
    fn an_impossible_depth_hides_no_impossible_number_of_queues() {
        for (depth, queues) in [("0", "65"), ("257", "0")] {
            let found = problems(&format!(
                "[[attach]]\nublk='a'\ndepth={depth}\nqueues={queues}\n"
            ));
            let expected = [
                format!("11: a `depth` of {depth} is not possible; choose from 1 to 256"),
                format!(
                    "12: {queues} `queues` of {depth} requests each are not possible; choose from 1 \
                     to 64"
                ),
            ];
            assert_eq!(found, expected);
        }
        let shallow = "[[attach]]\nublk='a'\ndepth=0\nqueues=64\n";
        assert_eq!(problems(shallow).len(), 1);
    }

    #[test]
    fn a_shared_volume_has_several_and_is_warned_about() {
        let volume = "[[volume]]\nname='s'\norigin='o'\npool='p'\nshared=true\n";
        let both = "[[attach]]\nublk='s'\n[[listen]]\nvhost_user='/x/s.sock'\n";
        let two_guests = "[[listen]]\nvhost_user='/x/s.sock'\n\
             [[listen]]\nvhost_user='/x/t.sock'\nvolume='s'\n";
        for frontends in [both, two_guests] {
            assert_eq!(
                problems(&format!("{volume}{frontends}")),
                Vec::<String>::new()
            );
        }
        let twice = problems(&format!(
            "{volume}[[attach]]\nublk='s'\n[[attach]]\nublk='s'\n"
        ));
        assert!(
            twice.len() == 1 && twice[0].contains("17: volume s is attached already (line 15)"),
            "{twice:#?}"
        );

        let warnings = |text: &str| {
            let config = parse(text, &mut Vec::new());
            let mut found = Vec::new();
            warn(&config, &mut found);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let found = warnings(&format!("{volume}{both}"));
        assert!(
            found.len() == 1
                && found[0].contains("5: volume s is shared")
                && found[0].contains("(line 7, line 9)"),
            "{found:#?}"
        );
        let read_only = volume.replace("shared", "read_only=true\nshared");
        assert_eq!(
            warnings(&format!("{read_only}{both}")),
            Vec::<String>::new()
        );
        assert_eq!(warnings(volume), Vec::<String>::new());
    }
}
