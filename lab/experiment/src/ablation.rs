//! A model without one of its parts, to see the effect of that part.
//!
//! Invariant: all else stays the same, and no parameter is fitted again.

/// A part of an experiment's model.
pub struct AblationPart<S> {
    /// Name of the part.
    pub name: &'static str,
    /// Returns the same model without the part.
    pub without: fn(S) -> S,
}

/// The names of parts.
pub fn names<S>(parts: &[AblationPart<S>]) -> Vec<&'static str> {
    parts.iter().map(|part| part.name).collect()
}

#[cfg(test)]
mod tests {
    use crate::registry::ALL;
    use std::collections::HashSet;

    #[test]
    fn every_experiment_names_its_parts_and_each_once() {
        for experiment in &ALL {
            let parts = (experiment.parts)();
            let distinct: HashSet<_> = parts.iter().collect();
            assert!(parts.len() > 1, "{}", experiment.name);
            assert_eq!(distinct.len(), parts.len(), "{parts:?}");
        }
    }

    /// A part without any effect would be no part.
    #[test]
    fn without_a_part_the_figures_are_others() {
        let quick = ALL.iter().find(|e| e.name == "nytro").unwrap();
        let whole = (quick.run)(1, true, &|_| ()).unwrap();
        for part in 0..(quick.parts)().len() {
            let without = (quick.without)(1, true, part, &|_| ()).unwrap();
            assert_ne!(without.values, whole.values, "{part}");
        }
    }
}
