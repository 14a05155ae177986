//! Sections of a configuration as text: finding, adding and removing them, and their values.
//!
//! Invariant: comments and what stands around a change stay as they are.

use control::config::Device;
use control::protocol::NamedOrNew;
use std::ffi::OsStr;
use std::path::Path;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

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

/// Whether a file has a door of a volume's own, by sections of this kind.
pub(crate) fn has_door(file: &DocumentMut, kind: &str, volume: &str) -> bool {
    let sections = file.get(kind).and_then(Item::as_array_of_tables);
    sections.is_some_and(|all| all.iter().any(|table| is_door(table, volume)))
}

/// Whether a section is one.
pub(crate) fn is_door(table: &Table, volume: &str) -> bool {
    let text = |key| table.get(key).and_then(Item::as_str);
    let socket = text("vhost_user").map(Path::new);
    let stem = socket.and_then(Path::file_stem).and_then(OsStr::to_str);
    let guest = text("volume").or(stem).filter(|_| socket.is_some());
    text("ublk") == Some(volume) || guest == Some(volume)
}

/// Every section of a kind; made if there is none.
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
    let all = sections(file, kind)?;
    let at = all.iter().position(|table| is_named(table, name));
    all.remove(at.ok_or_else(|| format!("no {kind} is named {name}"))?);
    Ok(())
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

/// Appends a device, unless this file or another has it already; its name.
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

/// The name of a device, which the file has in the end.
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

pub(crate) fn add(list: &mut Array, name: &str) {
    if !contains(list, name) {
        list.push(name);
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

/// Sets a value and leaves what stands around it.
pub(crate) fn set(table: &mut Table, key: &str, text: &str) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = Value::from(text);
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(key, value(text));
        }
    }
}
