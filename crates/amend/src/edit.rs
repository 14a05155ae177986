//! A change as an edit of the file's text.

use crate::form::FileForm;
use crate::sections::{
    add, append, append_new, contains, drop_if_empty, exchange, find, has, has_frontend,
    is_frontend, is_listener, is_named, known, list, remove, remove_all, section, set, take,
};
use control::config::{self, Attach, Cleaning, Listen, Volume};
use control::protocol::ControlRequest;
use toml_edit::{DocumentMut, Item, Table, Value};

/// The roles of an array by number, and the device that has each.
pub type Roles = Vec<(u32, Option<String>)>;

/// Applies `request` to `texts`, the files of a configuration: the index of the changed file, and
/// its new text. `roles` names the roles of an array before the request. A readable file stays
/// readable.
pub fn edit(
    texts: &[&str],
    request: &ControlRequest,
    roles: &dyn Fn(&str) -> Roles,
) -> Result<(usize, String), String> {
    if let ControlRequest::SetUp { additions } = request {
        return set_up(texts, additions, roles);
    }
    let forms: Vec<FileForm> = texts.iter().map(|text| FileForm::of(text)).collect();
    let files = texts.iter().zip(&forms).map(|(text, form)| {
        let file = form.plain(text).parse();
        file.map_err(|error| format!("it is no TOML ({error}); mend that, or use --temporary"))
    });
    let mut files: Vec<DocumentMut> = files.collect::<Result<_, _>>()?;
    let at = holder(&files, request)?;
    let mut file = files.swap_remove(at);
    change_volume(&mut file, &files, request)?;
    change_pool(&mut file, &files, request)?;
    change_array(&mut file, &files, request, roles)?;
    let after = forms[at].apply(&file.to_string());
    let mut problems = Vec::new();
    config::parse(&after, &mut problems);
    match problems.first() {
        None => Ok((at, after)),
        Some(problem) => Err(format!("line {problem} (or use --temporary)")),
    }
}

/// Applies a request that is about a volume.
fn change_volume(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    request: &ControlRequest,
) -> Result<(), String> {
    match request {
        ControlRequest::SetMode {
            volume,
            mode,
            log,
            journal,
        } => {
            let log: Vec<String> = log
                .iter()
                .map(|device| known(file, others, device))
                .collect::<Result<_, _>>()?;
            let journal = journal
                .as_ref()
                .map(|device| known(file, others, device))
                .transpose()?;
            set_mode(section(file, "volume", volume)?, mode, &log, journal)?;
        }
        ControlRequest::SetOff { volume, off } => {
            let table = section(file, "volume", volume)?;
            match off {
                true => set(table, "off", true),
                false => drop(table.remove("off")),
            }
        }
        ControlRequest::ReplaceLog { volume, device, by } => {
            let name = known(file, others, by)?;
            let table = section(file, "volume", volume)?;
            if table.get("journal").and_then(Item::as_str) == Some(device) {
                set(table, "journal", name.as_str());
            } else {
                exchange(list(table, "log")?, device, &name);
            }
        }
        ControlRequest::AddVolume { volume, device } => {
            if let Some(device) = device {
                append_new(file, others, device)?;
            }
            // A section of that name, which the daemon does not serve, is replaced.
            let name = Volume::parse(volume)?.name.value;
            remove_all(file, "volume", |table| is_named(table, name.as_str()))?;
            append(file, "volume", volume)?;
        }
        ControlRequest::RemoveVolume { volume } => remove_volume(file, others, volume)?,
        ControlRequest::Attach { attach } => {
            let volume = Attach::parse(attach)?.ublk.value;
            if !has_frontend(file, "attach", volume.as_str()) {
                append(file, "attach", attach)?;
            }
        }
        ControlRequest::Listen { listen } => append(file, "listen", listen)?,
        ControlRequest::Close { place } => {
            remove_all(file, "listen", |table| is_listener(table, place))?;
        }
        _ => (),
    }
    Ok(())
}

/// Gives the section of a volume its mode, and the devices of its log if there are any.
fn set_mode(
    table: &mut Table,
    mode: &str,
    log: &[String],
    journal: Option<String>,
) -> Result<(), String> {
    set(table, "mode", mode);
    table.remove("off");
    if !log.is_empty() {
        let devices = list(table, "log")?;
        let same = devices.iter().map(Value::as_str);
        if !same.eq(log.iter().map(|device| Some(device.as_str()))) {
            devices.clear();
            log.iter().for_each(|device| add(devices, device));
        }
    }
    if let Some(journal) = journal {
        set(table, "journal", journal);
        set(table, "write_back", Cleaning::Journaled.name());
    }
    Ok(())
}

fn remove_volume(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    volume: &str,
) -> Result<(), String> {
    const KINDS: [&str; 2] = ["attach", "listen"];
    let has_one = |file| KINDS.iter().any(|kind| has_frontend(file, kind, volume));
    if others.iter().any(has_one) {
        return Err(format!(
            "another file has a frontend of volume {volume}; remove that first, or use --temporary"
        ));
    }
    remove(file, "volume", volume)?;
    for kind in KINDS {
        if has_frontend(file, kind, volume) {
            remove_all(file, kind, |table| is_frontend(table, volume))?;
        }
    }
    Ok(())
}

/// Applies a request that is about a pool.
fn change_pool(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    request: &ControlRequest,
) -> Result<(), String> {
    match request {
        ControlRequest::AddPool { pool, devices } => {
            for device in devices {
                append_new(file, others, device)?;
            }
            append(file, "pool", pool)?;
        }
        ControlRequest::RemovePool { pool } => remove(file, "pool", pool)?,
        ControlRequest::AddDevice { pool, device } => {
            let name = known(file, others, device)?;
            add(list(section(file, "pool", pool)?, "devices")?, &name);
        }
        ControlRequest::RemoveDevice { pool, device } => {
            take(list(section(file, "pool", pool)?, "devices")?, device);
        }
        _ => (),
    }
    Ok(())
}

/// Applies a request that is about an array.
fn change_array(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    request: &ControlRequest,
    roles: &dyn Fn(&str) -> Roles,
) -> Result<(), String> {
    match request {
        ControlRequest::AddMember { array, device, .. } => {
            let name = known(file, others, device)?;
            let table = section(file, "array", array)?;
            let members = list(table, "members")?;
            if contains(members, &name) || members.len() < roles(array).len() {
                add(members, &name);
                list(table, "spares")?.retain(|other| other.as_str() != Some(&name));
                drop_if_empty(table, "spares");
            } else {
                add(list(table, "spares")?, &name);
            }
        }
        // Until the exchange has ended a start needs both, and takes whichever has the role.
        ControlRequest::ReplaceMember { array, device, .. } => {
            let name = known(file, others, device)?;
            let table = section(file, "array", array)?;
            if !contains(list(table, "members")?, &name) {
                add(list(table, "spares")?, &name);
            }
            drop_if_empty(table, "spares");
        }
        ControlRequest::Exchanged {
            array,
            member,
            device,
        } => {
            let table = section(file, "array", array)?;
            let gone = match exchange(list(table, "members")?, member, device) {
                true => device,
                false => member,
            };
            take(list(table, "spares")?, gone);
            drop_if_empty(table, "spares");
        }
        _ => (),
    }
    Ok(())
}

/// Applies the additions in their order. All have to change the same file.
fn set_up(
    texts: &[&str],
    additions: &[ControlRequest],
    roles: &dyn Fn(&str) -> Roles,
) -> Result<(usize, String), String> {
    let mut changed: Option<(usize, String)> = None;
    for addition in additions {
        let mut texts = texts.to_vec();
        if let Some((at, text)) = &changed {
            texts[*at] = text;
        }
        let (at, text) = edit(&texts, addition, roles)?;
        if changed.as_ref().is_some_and(|(other, _)| *other != at) {
            return Err("the additions belong to two files; make them one by one".into());
        }
        changed = Some((at, text));
    }
    changed.ok_or_else(|| "no addition is given".into())
}

/// Returns the index of the file with the section to change; a new section goes to the first file.
fn holder(files: &[DocumentMut], request: &ControlRequest) -> Result<usize, String> {
    let (kind, name) = match request {
        ControlRequest::SetMode { volume, .. }
        | ControlRequest::SetOff { volume, .. }
        | ControlRequest::ReplaceLog { volume, .. }
        | ControlRequest::RemoveVolume { volume } => ("volume", volume.clone()),
        ControlRequest::AddVolume { volume, .. } => {
            let name = Volume::parse(volume)?.name.value;
            return Ok(find(files, "volume", name.as_str()).unwrap_or(0));
        }
        ControlRequest::Attach { attach } => {
            let volume = Attach::parse(attach)?.ublk.value;
            let has = |file: &DocumentMut| has_frontend(file, "attach", volume.as_str());
            let at = files.iter().position(has);
            return Ok(at
                .or_else(|| find(files, "volume", volume.as_str()))
                .unwrap_or(0));
        }
        ControlRequest::Listen { listen } => {
            let volume = Listen::parse(listen)?.guest_volume();
            let its = volume.and_then(|volume| find(files, "volume", &volume));
            return Ok(its.unwrap_or(0));
        }
        ControlRequest::Close { place } => {
            let has_it = |file| has(file, "listen", |table| is_listener(table, place));
            let at = files.iter().position(has_it);
            return at.ok_or_else(|| format!("no [[listen]] has {place}"));
        }
        ControlRequest::AddDevice { pool, .. }
        | ControlRequest::RemoveDevice { pool, .. }
        | ControlRequest::RemovePool { pool } => ("pool", pool.clone()),
        ControlRequest::AddMember { array, .. }
        | ControlRequest::ReplaceMember { array, .. }
        | ControlRequest::Exchanged { array, .. } => ("array", array.clone()),
        _ => return Ok(0),
    };
    let is_inline = |file: &DocumentMut| {
        let item = file.get(kind);
        item.is_some_and(|item| item.as_array_of_tables().is_none())
    };
    let why = || match files.iter().any(is_inline) {
        true => format!("`{kind}` is not written as [[{kind}]]; write it so, or use --temporary"),
        false => format!("no {kind} is named {name}"),
    };
    find(files, kind, &name).ok_or_else(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::NamedOrNew;
    use proptest::prelude::*;

    const TEXT: &str = r#"# The archive's cache.
[daemon]
state = "/var/lib/hotset"   # on the system's disk

[[device]]
name = "archive"
path = "/dev/sdb"

# Fast, but worn.
[[device]]
name = "ssd0"
path = "/dev/nvme0n1"

[[array]]
name = "mirror"
level = "raid1"
members = ["a", "b"] # both in bay 2

[[pool]]
name = "fast"
devices = [
    "ssd0", # bay 1
]

[[volume]]
name = "web"
origin = "archive"
pool = "fast"
mode = "write-through" # for now

[[listen]]
unix = "/run/hotset/nbd.sock"
"#;

    fn with(text: &str, request: ControlRequest) -> Result<String, String> {
        let roles = |_: &str| vec![(0, Some("a".to_owned())), (1, Some("b".to_owned()))];
        edit(&[text], &request, &roles).map(|(_, after)| after)
    }

    fn new(name: &str) -> NamedOrNew {
        NamedOrNew::New(format!("name = \"{name}\"\npath = \"/dev/{name}\"\n"))
    }

    /// The removed lines and the added ones.
    fn changed(after: &str) -> (Vec<&str>, Vec<&str>) {
        let gone = TEXT
            .lines()
            .filter(|line| !after.lines().any(|other| other == *line));
        let come = after
            .lines()
            .filter(|line| !TEXT.lines().any(|other| other == *line));
        (gone.collect(), come.collect())
    }

    #[test]
    fn each_change_touches_its_own_lines_alone() {
        let mode = ControlRequest::set_mode("web", "pass-through");
        let after = with(TEXT, mode).unwrap();
        let expected = (
            vec!["mode = \"write-through\" # for now"],
            vec!["mode = \"pass-through\" # for now"],
        );
        assert_eq!(changed(&after), expected);

        let add = ControlRequest::AddDevice {
            pool: "fast".into(),
            device: new("ssd1"),
        };
        let after = with(TEXT, add).unwrap();
        let comments = |text: &str| text.matches('#').count();
        assert_eq!(comments(&after), comments(TEXT), "{after}");
        let read = config::parse(&after, &mut Vec::new());
        let devices = read.pools[0].devices.value.iter().map(|name| name.as_str());
        assert!(devices.eq(["ssd0", "ssd1"]), "{after}");
        assert_eq!(read.devices.len(), 3);

        let volume = ControlRequest::AddVolume {
            volume: "name = \"b\"\norigin = \"x\"\npool = \"fast\"\n".into(),
            device: Some("name = \"x\"\npath = \"/x\"\n".into()),
        };
        let added = with(TEXT, volume).unwrap();
        assert!(changed(&added).0.is_empty());
        let remove = ControlRequest::RemoveVolume { volume: "b".into() };
        let removed = with(&added, remove).unwrap();
        assert!(!removed.contains("name = \"b\"") && removed.contains("name = \"x\""));

        let pool = ControlRequest::AddPool {
            pool: "name = \"p\"\ndevices = [\"archive\", \"y\"]\n".into(),
            devices: vec!["name = \"y\"\npath = \"/y\"\n".into()],
        };
        let added = with(TEXT, pool).unwrap();
        assert!(changed(&added).0.is_empty() && added.contains("/y"));
        let removed = with(&added, ControlRequest::RemovePool { pool: "p".into() }).unwrap();
        assert!(!removed.contains("name = \"p\"") && removed.contains("name = \"y\""));
    }

    /// Until an exchange has ended, a start has both devices.
    #[test]
    fn lists_of_members_follow_what_an_array_is() {
        let replace = |member: &str, device| ControlRequest::ReplaceMember {
            array: "mirror".into(),
            member: member.into(),
            device,
            overwrite: true,
        };
        let exchanged = |member: &str, device: &str| ControlRequest::Exchanged {
            array: "mirror".into(),
            member: member.into(),
            device: device.into(),
        };
        let lists = |text: &str| {
            let read = config::parse(text, &mut Vec::new());
            let names = |names: &[config::Name]| names.iter().map(|n| n.to_string()).collect();
            let array = &read.arrays[0];
            let lists: [Vec<String>; 2] = [names(&array.members.value), names(&array.spares.value)];
            lists.map(|list| list.join(" "))
        };
        for member in ["b", "1"] {
            let begun = with(TEXT, replace(member, new("c"))).unwrap();
            assert_eq!(lists(&begun), ["a b", "c"]);
            assert!(begun.contains("members = [\"a\", \"b\"] # both in bay 2"));
            let ended = with(&begun, exchanged("b", "c")).unwrap();
            assert_eq!(lists(&ended), ["a c", ""]);
            assert!(ended.contains("members = [\"a\", \"c\"] # both in bay 2"));
            // A cancelled exchange leaves the old member.
            let ended = with(&begun, exchanged("c", "b")).unwrap();
            assert_eq!(lists(&ended), ["a b", ""]);
            // A spare that serves is exchanged like any other.
            let next = with(&begun, replace("c", new("d"))).unwrap();
            assert_eq!(lists(&next), ["a b", "c d"]);
            let ended = with(&next, exchanged("c", "d")).unwrap();
            assert_eq!(lists(&ended), ["a b", "d"]);
        }
        let named = NamedOrNew::Named("b".into());
        assert_eq!(
            lists(&with(TEXT, replace("0", named)).unwrap()),
            ["a b", ""]
        );
        let spare = ControlRequest::AddMember {
            array: "mirror".into(),
            device: new("d"),
            overwrite: true,
        };
        assert!(with(TEXT, spare).unwrap().contains("spares = [\"d\"]"));
        let back = ControlRequest::AddMember {
            array: "mirror".into(),
            device: NamedOrNew::Named("b".into()),
            overwrite: false,
        };
        assert_eq!(with(TEXT, back.clone()).unwrap(), TEXT);
        let lacking = TEXT.replace("[\"a\", \"b\"]", "[\"a\"]");
        assert_eq!(with(&lacking, back).unwrap(), TEXT);
    }

    #[test]
    fn a_volume_has_its_log_in_the_file_while_another_mode_is_on_too() {
        let on = |log, journal| ControlRequest::SetMode {
            volume: "web".into(),
            mode: "write-back".into(),
            log,
            journal,
        };
        let log = || vec![new("l0"), NamedOrNew::Named("l1".into())];
        let written = with(TEXT, on(log(), None)).unwrap();
        let (gone, come) = changed(&written);
        assert_eq!(gone, ["mode = \"write-through\" # for now"]);
        let expected = [
            "name = \"l0\"",
            "path = \"/dev/l0\"",
            "mode = \"write-back\" # for now",
            "log = [\"l0\", \"l1\"]",
        ];
        assert!(expected.iter().all(|line| come.contains(line)), "{come:?}");
        assert_eq!(with(&written, on(Vec::new(), None)).unwrap(), written);
        let off = with(&written, ControlRequest::set_mode("web", "write-through")).unwrap();
        let through = "mode = \"write-through\" # for now";
        assert_eq!(
            off,
            written.replace("mode = \"write-back\" # for now", through)
        );
        let journaled = with(&off, on(log(), Some(new("j")))).unwrap();
        let volume = &config::parse(&journaled, &mut Vec::new()).volumes[0];
        assert_eq!(volume.write_back.value, Cleaning::Journaled);
        let replace = |device: &str, by| ControlRequest::ReplaceLog {
            volume: "web".into(),
            device: device.into(),
            by,
        };
        let replaced = with(&journaled, replace("l1", new("l2"))).unwrap();
        assert!(replaced.contains("log = [\"l0\", \"l2\"]"), "{replaced}");
        let replaced = with(&replaced, replace("j", new("k"))).unwrap();
        assert!(replaced.contains("journal = \"k\""), "{replaced}");
    }

    #[test]
    fn a_volume_that_is_off_keeps_its_mode_in_the_file() {
        let turn = |text: &str, off| {
            let volume = "web".into();
            with(text, ControlRequest::SetOff { volume, off }).unwrap()
        };
        let off = turn(TEXT, true);
        assert_eq!(changed(&off), (vec![], vec!["off = true"]));
        assert_eq!(turn(&off, true), off);
        assert_eq!(turn(&off, false), TEXT);
        assert_eq!(turn(TEXT, false), TEXT);
        let said = TEXT.replace(
            "pool = \"fast\"\nmode",
            "pool = \"fast\"\noff = false\nmode",
        );
        assert_eq!(turn(&said, true), said.replace("off = false", "off = true"));
        let other = with(&off, ControlRequest::set_mode("web", "write-around")).unwrap();
        assert_eq!(other, TEXT.replace("\"write-through\"", "\"write-around\""));
    }

    #[test]
    fn comments_of_others_stay_when_a_section_goes() {
        let heading = "# Managed by the storage team.\n# Ask first.\n\n";
        let first = "# for mail\n[[volume]]\nname = \"v\"\norigin = \"a\"\npool = \"fast\"\n\n";
        let rest = "# the pool\n[[pool]]\nname = \"fast\"\ndevices = [\"s\"]\n";
        let gone = |text: &str| {
            let volume = "v".into();
            with(text, ControlRequest::RemoveVolume { volume }).unwrap()
        };
        assert_eq!(
            gone(&format!("{heading}{first}{rest}")),
            format!("{heading}{rest}")
        );
        let after = gone(&format!("{rest}\n{heading}{first}# The end.\n"));
        assert_eq!(after, format!("{rest}\n{heading}# The end.\n"));
    }

    #[test]
    fn a_list_of_a_line_each_keeps_the_comment_of_each_line() {
        let text = |devices: &str| format!("[[pool]]\nname = \"p\"\ndevices = [{devices}]\n");
        let add = |text: &str, name: &str| {
            let device = NamedOrNew::Named(name.into());
            let pool = "p".into();
            with(text, ControlRequest::AddDevice { pool, device }).unwrap()
        };
        let take = |text: &str, name: &str| {
            let (pool, device) = ("p".into(), name.into());
            with(text, ControlRequest::RemoveDevice { pool, device }).unwrap()
        };
        let one = text("\n  \"a\", # fast\n\n  # room for more\n");
        let two = text("\n  \"a\", # fast\n  \"b\",\n\n  # room for more\n");
        assert_eq!(add(&one, "b"), two);
        assert_eq!(take(&two, "b"), one);
        assert_eq!(take(&two, "a"), text("\n  \"b\",\n\n  # room for more\n"));
        let commented = text("\n  \"a\", # fast\n  # slow\n  \"b\", # worn\n  \"c\",\n");
        assert_eq!(take(&commented, "b"), text("\n  \"a\", # fast\n  \"c\",\n"));
        let line = text("\"a\", \"b\"");
        assert_eq!(add(&text("\"a\""), "b"), line);
        assert_eq!(take(&line, "a"), text("\"b\""));
        assert_eq!(take(&line, "b"), text("\"a\""));
    }

    #[test]
    fn a_volume_goes_with_its_frontends() {
        let attach = |depth: &str| ControlRequest::Attach {
            attach: format!("ublk = \"web\"\n{depth}"),
        };
        let attached = with(TEXT, attach("depth = 7\n")).unwrap();
        let come = changed(&attached).1;
        assert_eq!(come, ["[[attach]]", "ublk = \"web\"", "depth = 7"]);
        assert_eq!(with(&attached, attach("")).unwrap(), attached);

        let frontends = "[[attach]]\nublk = \"web\"\n[[attach]]\nublk = \"other\"\n\
             [[listen]]\nvhost_user = \"/x/web.sock\"\n\
             [[listen]]\nvhost_user = \"/x/a.sock\"\nvolume = \"web\"\n\
             [[listen]]\nvhost_user = \"/x/web\"\nvolume = \"other\"\n";
        let remove = ControlRequest::RemoveVolume {
            volume: "web".into(),
        };
        let after = with(&format!("{TEXT}{frontends}"), remove.clone()).unwrap();
        let read = config::parse(&after, &mut Vec::new());
        assert!(
            read.frontends_of("web") == config::parse("", &mut Vec::new()).frontends_of("web"),
            "{after}"
        );
        assert_eq!(
            (read.attachments.len(), read.listeners.len()),
            (1, 2),
            "{after}"
        );
        let roles = |_: &str| Vec::new();
        let refused = edit(&[TEXT, frontends], &remove, &roles).unwrap_err();
        assert!(refused.contains("another file has a frontend"), "{refused}");
        let (at, _) = edit(&[TEXT, frontends], &attach(""), &roles).unwrap();
        assert_eq!(at, 1);
    }

    #[test]
    fn of_several_files_the_one_that_has_the_section_changes() {
        let more = "# Mail.\n[[pool]]\nname = \"small\"\ndevices = []\n";
        let add = |pool: &str, device| ControlRequest::AddDevice {
            pool: pool.into(),
            device,
        };
        let roles = |_: &str| Vec::new();
        let request = add("small", new("ssd1"));
        let (at, after) = edit(&[TEXT, more], &request, &roles).unwrap();
        assert!(at == 1 && after.starts_with("# Mail.\n[[pool]]"), "{after}");
        assert!(after.contains("devices = [\"ssd1\"]") && after.contains("[[device]]"));
        // A device of another file is not written again.
        let old = NamedOrNew::New("name = \"ssd0\"\npath = \"/dev/nvme0n1\"\n".into());
        let (at, after) = edit(&[TEXT, more], &add("small", old), &roles).unwrap();
        assert!(at == 1 && !after.contains("[[device]]"), "{after}");
        let volume = ControlRequest::AddVolume {
            volume: "name = \"b\"\norigin = \"x\"\npool = \"small\"\n".into(),
            device: None,
        };
        assert_eq!(edit(&[TEXT, more], &volume, &roles).unwrap().0, 0);
    }

    #[test]
    fn a_set_up_is_one_edit_of_one_file() {
        let pool = ControlRequest::AddPool {
            pool: "name = \"p\"\ndevices = [\"s\"]\n".into(),
            devices: vec!["name = \"s\"\npath = \"/s\"\n".into()],
        };
        let volume = |pool: &str| ControlRequest::AddVolume {
            volume: format!("name = \"v\"\norigin = \"o\"\npool = \"{pool}\"\n"),
            device: Some("name = \"o\"\npath = \"/o\"\n".into()),
        };
        let attach = ControlRequest::Attach {
            attach: "ublk = \"v\"\n".into(),
        };
        let listen = ControlRequest::Listen {
            listen: "vhost_user = \"/v\"\n".into(),
        };
        let mode = ControlRequest::SetMode {
            volume: "v".into(),
            mode: "write-back".into(),
            log: ["l", "m"].map(new).into(),
            journal: None,
        };
        let set_up = |additions| ControlRequest::SetUp { additions };
        let additions = vec![pool, volume("p"), attach, listen, mode];
        let after = with(TEXT, set_up(additions)).unwrap();
        assert!(changed(&after).0.is_empty());
        let read = config::parse(&after, &mut Vec::new());
        assert_eq!((read.pools.len(), read.volumes.len()), (2, 2));
        assert_eq!((read.devices.len(), read.attachments.len()), (6, 1));
        assert_eq!(read.guests().count(), 1);
        let made = &read.volumes[1];
        assert_eq!(made.mode.value.name(), "write-back");
        assert_eq!(made.log.value.len(), 2);
        let give = ControlRequest::AddDevice {
            pool: "small".into(),
            device: new("t"),
        };
        let more = "[[pool]]\nname = \"small\"\ndevices = []\n";
        let request = set_up(vec![give, volume("small")]);
        let refused = edit(&[TEXT, more], &request, &|_| Vec::new()).unwrap_err();
        assert!(refused.contains("two files"), "{refused}");
        assert!(with(TEXT, set_up(Vec::new())).is_err());
    }

    #[test]
    fn what_the_file_does_not_have_is_refused() {
        let mode = |volume: &str, mode: &str| ControlRequest::set_mode(volume, mode);
        let other = ControlRequest::AddDevice {
            pool: "fast".into(),
            device: new("archive"),
        };
        for (text, request, reason) in [
            (
                TEXT,
                mode("none", "pass-through"),
                "no volume is named none",
            ),
            (TEXT, mode("web", "fast"), "mode"),
            (TEXT, other, "another device is named archive"),
            ("volume = []", mode("web", "pass-through"), "[[volume]]"),
            ("[[volume", mode("web", "pass-through"), "no TOML"),
        ] {
            let why = with(text, request).unwrap_err();
            assert!(why.contains(reason), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_edited_or_refused(text in "(\\[\\[(volume|pool|device|array)\\]\\]\n|name = \"w\"\n|devices = .{0,8}\n|.{0,12}\n){0,8}") {
            for request in [
                ControlRequest::set_mode("w", "pass-through"),
                ControlRequest::SetMode {
                    volume: "w".into(),
                    mode: "write-back".into(),
                    log: vec![new("s"), new("t")],
                    journal: Some(new("u")),
                },
                ControlRequest::RemoveVolume { volume: "w".into() },
                ControlRequest::AddDevice { pool: "w".into(), device: new("s") },
                ControlRequest::RemoveDevice { pool: "w".into(), device: "s".into() },
            ] {
                if let Ok(after) = with(&text, request) {
                    let mut problems = Vec::new();
                    config::parse(&after, &mut problems);
                    prop_assert!(problems.is_empty());
                }
            }
        }
    }
}
