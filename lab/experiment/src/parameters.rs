//! Parameters of a model by name: one is set in place of the model's own value, a drive is given
//! another cost, or a part of the model is left out.
//!
//! Invariant: all else stays the same, and no parameter is fitted again.

use block::Nanos;
use std::ops::RangeInclusive;

/// A parameter of a model: the name, the accepted values, and the change by a value.
pub type ModelParameter<S> = (&'static str, RangeInclusive<f64>, fn(&mut S, f64));

/// Parameters by name, with the values in place of the model's own.
pub type Settings<'a> = [(&'a str, f64)];

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

/// Returns the model with these settings; the error lists the parameters that there are.
pub fn set<S>(
    mut model: S,
    parameters: &[ModelParameter<S>],
    settings: &Settings<'_>,
) -> Result<S, String> {
    for (name, value) in settings {
        let Some((_, accepted, change)) = parameters.iter().find(|(known, ..)| known == name)
        else {
            let known: Vec<_> = parameters.iter().map(|(known, ..)| *known).collect();
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
        let set = |settings: &Settings<'_>| set((1.5, 7), &parameters, settings);
        assert_eq!(set(&[("users", 9.0)]), Ok((1.5, 9)));
        assert_eq!(set(&[("users", 9.0), ("think_ms", 0.0)]), Ok((0.0, 9)));
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
