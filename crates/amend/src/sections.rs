//! Sections of a configuration as text: finding, adding and removing them, and their values.
//!
//! Invariant: comments and text around a change stay. A removed section or name takes along the
//! comments of its own lines and those right above.

use control::config::Device;
use control::protocol::NamedOrNew;
use std::ffi::OsStr;
use std::path::Path;
use toml_edit::{Array, ArrayOfTables, Decor, DocumentMut, Item, RawString, Table, Value, value};

/// The first file that has a section of a kind and name.
pub(crate) fn find(files: &[DocumentMut], kind: &str, name: &str) -> Option<usize> {
    files
        .iter()
        .position(|file| named(file, kind, name).is_some())
}

pub(crate) fn named<'a>(file: &'a DocumentMut, kind: &str, name: &str) -> Option<&'a Table> {
    let all = file.get(kind)?.as_array_of_tables()?;
    all.iter().find(|table| is_named(table, name))
}

/// Tests a file for a frontend of the volume's own, in sections of this kind.
pub(crate) fn has_frontend(file: &DocumentMut, kind: &str, volume: &str) -> bool {
    has(file, kind, |table| is_frontend(table, volume))
}

/// Tests a file for a section of a kind that `is_it` selects.
pub(crate) fn has(file: &DocumentMut, kind: &str, is_it: impl Fn(&Table) -> bool) -> bool {
    let sections = file.get(kind).and_then(Item::as_array_of_tables);
    sections.is_some_and(|all| all.iter().any(is_it))
}

/// Tests for a section of a frontend of the volume's own.
pub(crate) fn is_frontend(table: &Table, volume: &str) -> bool {
    let text = |key| table.get(key).and_then(Item::as_str);
    let socket = text("vhost_user").map(Path::new);
    let stem = socket.and_then(Path::file_stem).and_then(OsStr::to_str);
    let guest = text("volume").or(stem).filter(|_| socket.is_some());
    text("ublk") == Some(volume) || guest == Some(volume)
}

/// Tests for the section of a listener at `place`.
pub(crate) fn is_listener(table: &Table, place: &str) -> bool {
    let is_at = |key| table.get(key).and_then(Item::as_str) == Some(place);
    ["unix", "vhost_user", "tcp"].into_iter().any(is_at)
}

/// Returns the sections of a kind; adds an empty list if there are none.
pub(crate) fn sections<'a>(
    file: &'a mut DocumentMut,
    kind: &str,
) -> Result<&'a mut ArrayOfTables, String> {
    let item = file
        .entry(kind)
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let inline = || format!("`{kind}` is not written as [[{kind}]]");
    item.as_array_of_tables_mut().ok_or_else(inline)
}

pub(crate) fn is_named(table: &Table, name: &str) -> bool {
    table.get("name").and_then(Item::as_str) == Some(name)
}

pub(crate) fn section<'a>(
    file: &'a mut DocumentMut,
    kind: &str,
    name: &str,
) -> Result<&'a mut Table, String> {
    let mut all = sections(file, kind)?.iter_mut();
    let found = all.find(|table| is_named(table, name));
    found.ok_or_else(|| format!("no {kind} is named {name}"))
}

pub(crate) fn remove(file: &mut DocumentMut, kind: &str, name: &str) -> Result<(), String> {
    let is_it = |table: &Table| is_named(table, name);
    if !sections(file, kind)?.iter().any(is_it) {
        return Err(format!("no {kind} is named {name}"));
    }
    remove_all(file, kind, is_it)
}

/// Removes every section of a kind that `is_it` selects. Comments that a blank line separates from
/// a removed section stay, above the next one.
pub(crate) fn remove_all(
    file: &mut DocumentMut,
    kind: &str,
    is_it: impl Fn(&Table) -> bool,
) -> Result<(), String> {
    loop {
        let all = sections(file, kind)?;
        let Some(at) = all.iter().position(&is_it) else {
            return Ok(());
        };
        let removed = all.get(at).expect("found above");
        let kept = of_others(prefix(removed.decor().prefix())).to_owned();
        let position = removed.position();
        all.remove(at);
        if kept.contains('#') {
            prepend(file, position, &kept);
        }
    }
}

fn prefix(text: Option<&RawString>) -> &str {
    text.and_then(RawString::as_str).unwrap_or_default()
}

/// The text before a section up to its last blank line.
fn of_others(prefix: &str) -> &str {
    let mut end = 0;
    let mut at = 0;
    for line in prefix.split_inclusive('\n') {
        at += line.len();
        if line.trim().is_empty() && line.ends_with('\n') {
            end = at;
        }
    }
    &prefix[..end]
}

/// Puts `text` before the first section after the place `position`, or at the end.
fn prepend(file: &mut DocumentMut, position: Option<isize>, text: &str) {
    let mut next: Option<&mut Table> = None;
    for (_, item) in file.iter_mut() {
        let tables: Vec<&mut Table> = match item {
            Item::Table(table) => vec![table],
            Item::ArrayOfTables(all) => all.iter_mut().collect(),
            _ => Vec::new(),
        };
        for table in tables
            .into_iter()
            .filter(|table| table.position() > position)
        {
            if next
                .as_ref()
                .is_none_or(|next| table.position() < next.position())
            {
                next = Some(table);
            }
        }
    }
    match next {
        Some(table) => {
            let after = prefix(table.decor().prefix());
            // One blank line is enough between the two.
            let after = after.strip_prefix('\n').unwrap_or(after);
            let both = format!("{text}{after}");
            table.decor_mut().set_prefix(both);
        }
        None => {
            let after = file.trailing().as_str().unwrap_or_default();
            let after = after.strip_prefix('\n').unwrap_or(after);
            file.set_trailing(format!("{text}{after}"));
        }
    }
}

/// Appends a section that a request carries.
pub(crate) fn append(file: &mut DocumentMut, kind: &str, text: &str) -> Result<(), String> {
    let new: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    let mut table = Table::new();
    for (key, item) in new.iter() {
        table.insert(key, item.clone());
    }
    table.decor_mut().set_prefix("\n");
    sections(file, kind)?.push(table);
    Ok(())
}

/// Appends a device unless this file or another has it already. Returns the device's name.
pub(crate) fn append_new(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    text: &str,
) -> Result<String, String> {
    let name = Device::parse(text)?.name.value.to_string();
    let new: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    sections(file, "device")?;
    let old = {
        let mut all = others.iter().chain([&*file]);
        all.find_map(|file| named(file, "device", &name)).cloned()
    };
    let Some(old) = old else {
        append(file, "device", text)?;
        return Ok(name);
    };
    let place = |table: &Table, key| table.get(key).and_then(Item::as_str).map(str::to_owned);
    let same = ["path", "nbd"]
        .iter()
        .all(|key| place(&old, key) == place(&new, key));
    if same {
        Ok(name)
    } else {
        Err(format!("another device is named {name} in it"))
    }
}

/// Returns the name of a device, and adds a new device to the file.
pub(crate) fn known(
    file: &mut DocumentMut,
    others: &[DocumentMut],
    device: &NamedOrNew,
) -> Result<String, String> {
    match device {
        NamedOrNew::Named(name) => Ok(name.clone()),
        NamedOrNew::New(text) => append_new(file, others, text),
    }
}

pub(crate) fn list<'a>(table: &'a mut Table, key: &str) -> Result<&'a mut Array, String> {
    let item = table.entry(key).or_insert(value(Array::new()));
    item.as_array_mut()
        .ok_or_else(|| format!("`{key}` is no list"))
}

pub(crate) fn contains(list: &Array, name: &str) -> bool {
    list.iter().any(|other| other.as_str() == Some(name))
}

/// Adds a name at the end; in a list of a line each, in a line of its own.
pub(crate) fn add(list: &mut Array, name: &str) {
    if contains(list, name) {
        return;
    }
    let trailing = list.trailing().as_str().unwrap_or_default().to_owned();
    let last = list.iter().last();
    let before = last
        .map_or("", |last| prefix(last.decor().prefix()))
        .to_owned();
    let (Some((of_last, rest)), Some((_, indent)), true) = (
        trailing.split_once('\n'),
        before.rsplit_once('\n'),
        list.trailing_comma(),
    ) else {
        list.push(name);
        return;
    };
    let mut value = Value::from(name);
    // A comment in the line of the last name stays there.
    *value.decor_mut() = Decor::new(format!("{of_last}\n{indent}"), "");
    list.push_formatted(value);
    list.set_trailing(format!("\n{rest}"));
}

/// Replaces a name, with the text around it kept. Returns false if the name is missing.
pub(crate) fn exchange(list: &mut Array, name: &str, by: &str) -> bool {
    let at = list.iter().position(|other| other.as_str() == Some(name));
    at.map(|at| list.replace(at, by)).is_some()
}

/// Removes a name, with the comments in its line and those right above.
pub(crate) fn take(list: &mut Array, name: &str) {
    loop {
        let at = list.iter().position(|other| other.as_str() == Some(name));
        let Some(at) = at else { return };
        let removed = list.remove(at);
        let before = prefix(removed.decor().prefix()).to_owned();
        let is_last = at == list.len();
        let after = match list.get(at) {
            Some(next) => prefix(next.decor().prefix()),
            None => list.trailing().as_str().unwrap_or_default(),
        };
        let after = joined(&before, after, is_last);
        match list.get_mut(at) {
            Some(next) => next.decor_mut().set_prefix(after),
            None => list.set_trailing(after),
        }
    }
}

/// The text between the neighbours of a removed value, around which stood `before` and `after`.
fn joined(before: &str, after: &str, is_last: bool) -> String {
    match (before.split_once('\n'), after.split_once('\n')) {
        // The whole list is in one line.
        (None, None) if is_last => after.to_owned(),
        (None, None) => before.to_owned(),
        (None, Some(_)) if before.trim().is_empty() && is_last => after.to_owned(),
        (None, Some((_, rest))) => format!("{before}\n{rest}"),
        (Some((of_one_before, _)), Some((_, rest))) => format!("{of_one_before}\n{rest}"),
        (Some((of_one_before, above)), None) => {
            let above = of_others(above);
            format!("{of_one_before}\n{above}{}", after.trim_start())
        }
    }
}

pub(crate) fn drop_if_empty(table: &mut Table, key: &str) {
    if table
        .get(key)
        .and_then(Item::as_array)
        .is_some_and(Array::is_empty)
    {
        table.remove(key);
    }
}

/// Sets a value, with the text around it kept.
pub(crate) fn set(table: &mut Table, key: &str, to: impl Into<Value>) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = to.into();
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(key, value(to));
        }
    }
}
