//! Whether the ways to reach volumes agree with each other.

use crate::config::{Config, Listen};
use crate::problem::Problem;
use std::collections::HashMap;

/// The most requests of an attached volume: a shard's bound for one target.
const ATTACH_DEPTH_MAX: u32 = 256;
/// The most requests of a virtual machine's: as many as its ring holds.
const GUEST_DEPTH_MAX: u32 = 1024;

/// Appends what is wrong.
pub(super) fn agree(config: &Config, problems: &mut Vec<Problem>) {
    if config.listeners.is_empty() && config.attachments.is_empty() {
        let what = "no [[listen]] and no [[attach]] section: nobody could connect";
        let remedy =
            "add a [[listen]] with `unix`, `tcp` or `vhost_user`, or an [[attach]] with `ublk`";
        problems.push(Problem::new(1, what, remedy));
    }
    one_door_each(config, problems);
    attachments(config, problems);
    for listen in &config.listeners {
        listener(listen, problems);
    }
}

/// A volume that has a door of its own exists, and has no other.
fn one_door_each(config: &Config, problems: &mut Vec<Problem>) {
    let attached = config.attachments.iter();
    let attached = attached.map(|a| (a.ublk.to_string(), "[[attach]]", a.ublk.line));
    let guests = config.guests().map(|(volume, listen)| {
        let line = listen.vhost_user.as_ref().map_or(listen.line, |s| s.line);
        let line = listen.volume.as_ref().map_or(line, |v| v.line);
        (volume, "[[listen]]", line)
    });
    let mut doors: HashMap<String, u32> = HashMap::new();
    for (volume, section, line) in attached.chain(guests) {
        if !config.volumes.iter().any(|v| v.name.as_str() == volume) {
            let what = format!("{section} names a volume {volume} that does not exist");
            let remedy = "add a [[volume]] of that name, or correct the name";
            problems.push(Problem::new(line, what, remedy));
        }
        if let Some(first) = doors.insert(volume.clone(), line) {
            let what = format!(
                "volume {volume} has a door already ({}): file systems on two of them overwrite \
                 each other's data",
                config.files.place(first)
            );
            problems.push(Problem::new(line, what, "remove one of the two"));
        }
    }
}

fn attachments(config: &Config, problems: &mut Vec<Problem>) {
    for attach in &config.attachments {
        if !(1..=ATTACH_DEPTH_MAX).contains(&attach.depth.value) {
            let what = format!("a `depth` of {} is not possible", attach.depth.value);
            let remedy = format!("choose from 1 to {ATTACH_DEPTH_MAX}");
            problems.push(Problem::new(attach.depth.line, what, remedy));
        }
    }
}

/// What only sockets of virtual machines have, and what they have not.
fn guest(listen: &Listen, problems: &mut Vec<Problem>) {
    if listen.vhost_user.is_none() {
        if let Some(volume) = &listen.volume {
            let what = "`volume` belongs to `vhost_user`: over NBD, a socket has every volume";
            problems.push(Problem::new(volume.line, what, "remove it"));
        }
        return;
    }
    if let Some(tls) = &listen.tls_certificate {
        let what =
            "a socket of `vhost_user` has no TLS: it passes memory, and never leaves the host";
        problems.push(Problem::new(tls.line, what, "remove the parameters of TLS"));
    }
    let depth = &listen.depth;
    if !(1..=GUEST_DEPTH_MAX).contains(&depth.value) {
        let what = format!("a `depth` of {} is not possible", depth.value);
        let remedy = format!("choose from 1 to {GUEST_DEPTH_MAX}");
        problems.push(Problem::new(depth.line, what, remedy));
    }
}

fn listener(listen: &Listen, problems: &mut Vec<Problem>) {
    let places = [
        listen.unix.is_some(),
        listen.tcp.is_some(),
        listen.vhost_user.is_some(),
    ];
    if places.into_iter().filter(|is_given| *is_given).count() != 1 {
        let what = "a [[listen]] section must have one of `unix`, `tcp` and `vhost_user`";
        problems.push(Problem::new(listen.line, what, "give one of the three"));
    }
    guest(listen, problems);
    let tls = listen.tls_certificate.is_some();
    if tls != listen.tls_key.is_some() {
        let what = "`tls_certificate` and `tls_key` belong together";
        problems.push(Problem::new(listen.line, what, "give both or none"));
    }
    if let Some(authority) = &listen.tls_client_ca
        && !tls
    {
        let what = "`tls_client_ca` needs TLS";
        let remedy = "give `tls_certificate` and `tls_key` as well";
        problems.push(Problem::new(authority.line, what, remedy));
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
        problems.push(Problem::new(tcp.line, what, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    /// Problems of a configuration with two volumes and these doors.
    fn problems(doors: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let text = "[[volume]]\nname='a'\norigin='o'\npool='p'\n\
             [[volume]]\nname='b'\norigin='q'\npool='p'\n";
        let config = parse(&format!("{text}{doors}"), &mut problems);
        agree(&config, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_volume_has_one_door_of_its_own() {
        let guest = "[[listen]]\nvhost_user='/x/a.sock'\n";
        assert_eq!(problems(guest), Vec::<String>::new());
        for (doors, expected) in [
            (
                "[[attach]]\nublk='a'\n[[attach]]\nublk='a'\n",
                "12: volume a has a door already (line 10)",
            ),
            (
                "[[attach]]\nublk='a'\n[[listen]]\nvhost_user='/x/a.sock'\n",
                "12: volume a has a door already (line 10)",
            ),
            (
                "[[listen]]\nvhost_user='/x/a.sock'\n[[listen]]\nvhost_user='/x/b'\nvolume='a'\n",
                "13: volume a has a door already (line 10)",
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
            let found = problems(doors);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{doors}: {found:#?}"
            );
        }
    }
}
