//! Parameters of a model by name: one is set in place of the model's own value, a drive is given
//! another cost, or a part of the model is left out.
//!
//! Invariant: all else stays the same, and no parameter is fitted again.

use crate::models::{self, RoleModels};
use crate::topology;
use block::Nanos;
use std::ops::RangeInclusive;

/// A parameter of a model: the name, the accepted values, and the change by a value.
pub type ModelParameter<S> = (&'static str, RangeInclusive<f64>, fn(&mut S, f64));

/// Parameters by name, with the values in place of the model's own.
pub type Settings<'a> = [(&'a str, f64)];

/// A model of a load on a machine.
pub trait OnMachine {
    /// True if the flash drives have one model, which may be another.
    const HAS_FLASH: bool;

    /// The machine.
    fn machine(&mut self) -> &mut RoleModels;
}

/// The parameters of every machine.
fn of_machine<S: OnMachine>() -> impl Iterator<Item = ModelParameter<S>> {
    let all: [ModelParameter<S>; 3] = [
        ("disk_model", models::NUMBERS, |model, value| {
            model.machine().disk = models::name(value);
        }),
        ("topology", topology::NUMBERS, |model, value| {
            model.machine().topology = topology::kept(value);
        }),
        ("flash_model", models::NUMBERS, |model, value| {
            model.machine().flash = models::name(value);
        }),
    ];
    let has = |name: &str| S::HAS_FLASH || name != "flash_model";
    all.into_iter().filter(move |(name, ..)| has(name))
}

/// A part of a model, and the settings that leave it out.
pub type ModelPart = (&'static str, &'static Settings<'static>);

/// Accepted costs of a drive, as factors of all its times.
pub const COSTS: RangeInclusive<f64> = 0.0..=100.0;

/// A time in milliseconds.
pub fn millis(value: f64) -> Nanos {
    micros(value * 1e3)
}

/// A time in microseconds.
pub fn micros(value: f64) -> Nanos {
    Nanos((value * 1e3) as u64)
}

/// Units that a parameter's name may end with, each kind by size.
const UNITS: [[(&str, f64); 3]; 2] = [
    [("_kib", 1.0), ("_mib", 1024.0), ("_gib", 1024.0 * 1024.0)],
    [("_us", 1.0), ("_ms", 1e3), ("_s", 1e6)],
];

/// The name `wanted` in another unit of its kind, if there is such a parameter, and the factor.
fn in_its_unit<'a>(
    wanted: &str,
    mut known: impl Iterator<Item = &'a str>,
) -> Option<(&'a str, f64)> {
    known.find_map(|name| {
        UNITS.iter().find_map(|units| {
            let of = |name: &str| {
                let units = units.iter();
                let mut bases =
                    units.filter_map(|(unit, size)| Some((name.strip_suffix(unit)?.len(), *size)));
                bases.next()
            };
            let ((base, size), (asked_base, asked)) = (of(name)?, of(wanted)?);
            (name[..base] == wanted[..asked_base]).then_some((name, asked / size))
        })
    })
}

/// Returns the model with these settings, each in the unit of its parameter or in another of that
/// kind; the error lists the parameters that there are.
pub fn set<S: OnMachine>(
    model: S,
    parameters: &[ModelParameter<S>],
    settings: &Settings<'_>,
) -> Result<S, String> {
    let all: Vec<_> = parameters.iter().cloned().chain(of_machine()).collect();
    set_of(model, &all, settings)
}

fn set_of<S>(
    mut model: S,
    parameters: &[ModelParameter<S>],
    settings: &Settings<'_>,
) -> Result<S, String> {
    for (name, value) in settings {
        let known = || parameters.iter().map(|(known, ..)| *known);
        let same = known().find(|known| known == name).map(|name| (name, 1.0));
        let (name, factor) = same
            .or_else(|| in_its_unit(name, known()))
            .unwrap_or((*name, 1.0));
        let value = &(value * factor);
        let Some((_, accepted, change)) = parameters.iter().find(|(known, ..)| *known == name)
        else {
            let known: Vec<_> = known().collect();
            return Err(format!(
                "no parameter is called {name:?}; choose of {}",
                known.join(", ")
            ));
        };
        if !accepted.contains(value) {
            let (least, most) = (accepted.start(), accepted.end());
            return Err(format!("{name} = {value}; choose from {least} to {most}"));
        }
        change(&mut model, *value);
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ALL;
    use std::collections::HashSet;

    #[test]
    fn a_setting_changes_its_parameter_or_is_refused_with_those_that_there_are() {
        let parameters: [ModelParameter<(f64, u32)>; 2] = [
            ("think_ms", 0.0..=10.0, |model, value| model.0 = value),
            ("users", 1.0..=50.0, |model, value| model.1 = value as u32),
        ];
        let set = |settings: &Settings<'_>| set_of((1.5, 7), &parameters, settings);
        assert_eq!(set(&[("users", 9.0)]), Ok((1.5, 9)));
        assert_eq!(set(&[("users", 9.0), ("think_ms", 0.0)]), Ok((0.0, 9)));
        assert_eq!(set(&[("think_us", 2_500.0)]), Ok((2.5, 7)));
        assert_eq!(set(&[("think_s", 0.01)]), Ok((10.0, 7)));
        for other in ["think_gib", "thinks_s", "users_s", "think"] {
            assert!(set(&[(other, 1.0)]).is_err(), "{other}");
        }
        let unknown = set(&[("user", 9.0)]).unwrap_err();
        assert!(unknown.ends_with("choose of think_ms, users"), "{unknown}");
        let beyond = set(&[("users", 0.0)]).unwrap_err();
        assert!(beyond.ends_with("choose from 1 to 50"), "{beyond}");
        assert!(set(&[("users", f64::NAN)]).is_err());
    }

    #[test]
    fn every_experiment_names_its_parts_and_each_once() {
        for experiment in &ALL {
            let names = experiment.parts.iter().map(|(name, _)| name);
            let distinct: HashSet<_> = names.collect();
            assert!(distinct.len() > 1, "{}", experiment.name);
            assert_eq!(distinct.len(), experiment.parts.len(), "{distinct:?}");
        }
    }

    /// A part without any effect would be no part.
    #[test]
    fn without_a_part_the_figures_are_others() {
        let quick = ALL.iter().find(|e| e.name == "nytro").unwrap();
        let run = |settings| (quick.run)(1, true, settings, &|_| ()).unwrap();
        let whole = run(&[]);
        for (part, settings) in quick.parts {
            assert_ne!(run(settings).values, whole.values, "{part}");
        }
    }
}
