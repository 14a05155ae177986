//! A machine of the user's own in place of the published one: drives, arrays and origins from a
//! configuration in the form that `hotset check` reads.
//!
//! Invariants:
//!     a case keeps its modes and its settings of the pool; all else is the user's
//!     a case with a part of the published flash drives has that part of the user's
//!
//! Not here: models by the role of a drive ([`crate::models`]), sizes of flash drives
//! ([`crate::load`]).

use crate::rig;
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use toml::{Table, Value};

/// Numbers of topologies, as values of parameters.
pub const NUMBERS: RangeInclusive<f64> = 0.0..=(1u64 << 48) as f64;

/// Topologies by their numbers.
static KEPT: Mutex<BTreeMap<u64, &'static str>> = Mutex::new(BTreeMap::new());

/// The number of the topology `text`: the same in every process. The text is kept.
pub fn number(text: &str) -> f64 {
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    let number = hasher.finish() >> 16;
    let mut kept = KEPT.lock().expect("nobody panics");
    kept.entry(number)
        .or_insert_with(|| String::leak(text.to_owned()));
    number as f64
}

/// The topology of this number, if it is kept.
pub fn kept(number: f64) -> Option<&'static str> {
    let kept = KEPT.lock().expect("nobody panics");
    kept.get(&(number as u64)).copied()
}

/// The entries of the list `section`.
fn entries<'a>(topology: &'a mut Table, section: &str) -> impl Iterator<Item = &'a mut Table> {
    let list = topology.get_mut(section).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_table_mut)
}

fn name(entry: &Table) -> &str {
    entry
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The flash drives of the pool.
fn flash(topology: &mut Table) -> Result<&mut Vec<Value>, String> {
    let mut pools = entries(topology, "pool");
    match (pools.next(), pools.next()) {
        (Some(pool), None) => pool.get_mut("devices").and_then(Value::as_array_mut),
        _ => None,
    }
    .ok_or_else(|| "give one [[pool]] with its devices".into())
}

/// Gives the pool of `own` the same part of its flash drives that `case` has of those of
/// `published`; more than all of them are further drives of the same models.
fn share_flash(own: &mut Table, case: &mut Table, published: &mut Table) -> Result<(), String> {
    let (has, of) = (flash(case)?.len(), flash(published)?.len());
    let drives = flash(own)?.clone();
    let wanted = (drives.len() * has).div_ceil(of.max(1));
    let mut names = drives.clone();
    names.truncate(wanted);
    for n in drives.len()..wanted {
        let model = &drives[n % drives.len()];
        let further = format!("{}-{n}", model.as_str().unwrap_or_default());
        let device = entries(own, "device").find(|device| device.get("name") == Some(model));
        let device = device.ok_or("each device of the pool needs a [[device]]")?;
        let mut device = device.clone();
        device.insert("name".into(), further.clone().into());
        device.insert("path".into(), format!("/dev/{further}").into());
        let devices = own.get_mut("device").and_then(Value::as_array_mut);
        devices
            .into_iter()
            .for_each(|all| all.push(device.clone().into()));
        names.push(further.into());
    }
    *flash(own)? = names;
    Ok(())
}

/// The configuration `case` of a load on the machine of `own`, where `published` is the machine
/// of the load.
pub fn exchanged(case: &str, published: &str, own: &str) -> Result<String, String> {
    let read = |text: &str| text.parse::<Table>().map_err(|error| error.to_string());
    let (mut case, mut published, mut own) = (read(case)?, read(published)?, read(own)?);
    share_flash(&mut own, &mut case, &mut published)?;
    let pool = entries(&mut own, "pool")
        .next()
        .map(|pool| name(pool).to_owned());
    let set = |own: &mut Table, case: &Table, machine: &[&str]| {
        let kept = |key: &str| machine.contains(&key);
        if case.get("mode").is_some() {
            own.retain(|key, _| key == "name" || kept(key));
        }
        let keys = case.iter().filter(|(key, _)| !kept(key) && *key != "name");
        keys.for_each(|(key, value)| drop(own.insert(key.clone(), value.clone())));
    };
    for from in entries(&mut case, "pool") {
        entries(&mut own, "pool").for_each(|to| set(to, from, &["devices"]));
    }
    for from in entries(&mut case, "volume") {
        let wanted = name(from).to_owned();
        let to = entries(&mut own, "volume").find(|volume| name(volume) == wanted);
        let to = to.ok_or_else(|| format!("give a [[volume]] called {wanted:?}"))?;
        set(to, from, &["origin", "pool"]);
        to.insert("pool".into(), pool.clone().unwrap_or_default().into());
    }
    if !own.contains_key("listen") {
        own.extend(case.remove_entry("listen"));
    }
    toml::to_string(&own).map_err(|error| error.to_string())
}

/// Tests a topology in place of `published`.
pub fn check(published: &str, own: &str) -> Result<(), String> {
    let text = exchanged(published, published, own)?;
    let config = rig::topology(&text)?;
    let unmodelled = config.devices.iter().find(|device| device.model.is_none());
    match unmodelled {
        None => Ok(()),
        Some(device) => Err(format!("give device {:?} a model", device.name.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn the_published_machine_in_its_own_place_changes_no_value() {
        for name in ["nytro", "perc-oltp", "redskin"] {
            let experiment = registry::named(name).unwrap();
            let own = [("topology", number(experiment.topology))];
            let run = |settings| (experiment.run)(1, true, settings, &|_| ()).unwrap().values;
            assert_eq!(run(&own), run(&[]), "{name}");
        }
    }

    #[test]
    fn a_machine_of_ones_own_takes_the_place_of_the_published_one() {
        let nytro = registry::named("nytro").unwrap();
        let run = |settings: &[(&str, f64)]| (nytro.run)(1, true, settings, &|_| ()).unwrap();
        let slower = nytro.topology.replace("SAS15K", "SAS7K2");
        let machine = number(&slower);
        assert_eq!(kept(machine), Some(&*slower));
        let model = crate::models::number("SAS7K2").unwrap();
        let (own, other) = (run(&[("topology", machine)]), run(&[("disk_model", model)]));
        assert_eq!(own.values, other.values);
        assert_ne!(own.values, run(&[]).values);
    }

    #[test]
    fn a_case_has_its_part_of_the_flash_and_its_mode() {
        let published = registry::named("cachecade").unwrap().topology;
        let two = "devices = [\"ssd0\", \"ssd1\"]";
        let all = "devices = [\"ssd0\", \"ssd1\", \"ssd2\"]";
        let own = published.replace(all, two).replace("X25-E", "X25-M G1 160");
        let flash_of = |case: &str| {
            let text = exchanged(case, published, &own).unwrap();
            let config = rig::topology(&text).unwrap();
            let mode = config.volumes[0].mode.value.name();
            (config.pools[0].devices.value.len(), mode)
        };
        assert_eq!(flash_of(published), (2, "write-through"));
        assert_eq!(flash_of(&published.replace(all, two)), (2, "write-through"));
        assert_eq!(
            flash_of(&published.replace(all, "devices = [\"ssd0\"]")),
            (1, "write-through")
        );
        let none = "[[volume]]\nmode = \"pass-through\"\n";
        let none = published
            .replace(all, "devices = []")
            .replace("[[volume]]\n", none);
        assert_eq!(flash_of(&none), (0, "pass-through"));
        let maxiq = registry::named("maxiq").unwrap().topology;
        let twice = maxiq.replace("devices = [\"ssd\"]", "devices = [\"ssd\", \"disk\"]");
        let twice = twice.replace(
            "[[pool]]",
            "[[device]]\nname = \"disk\"\npath = \"/dev/d\"\nmodel = \"X25-E\"\n[[pool]]",
        );
        let text = exchanged(&twice, maxiq, &twice).unwrap();
        let config = rig::topology(&text).unwrap();
        assert_eq!(
            config.pools[0].devices.value.len(),
            4,
            "twice as many as the published one: {text}"
        );
    }

    #[test]
    fn a_machine_without_the_volume_or_with_a_drive_of_no_model_is_refused() {
        let published = registry::named("maxiq").unwrap().topology;
        check(published, published).unwrap();
        for (from, to, what) in [
            (
                "\"sites\"",
                "\"others\"",
                "give a [[volume]] called \"sites\"",
            ),
            ("model = \"X25-E\"\n", "", "give device \"ssd\" a model"),
            (
                "devices = [\"ssd\"]",
                "",
                "give one [[pool]] with its devices",
            ),
            ("level = \"raid5\"", "level = \"raid7\"", "raid7"),
            ("[[device]]", "[[device", "TOML"),
        ] {
            let refused = check(published, &published.replace(from, to)).unwrap_err();
            assert!(refused.contains(what), "{refused}");
        }
    }
}
