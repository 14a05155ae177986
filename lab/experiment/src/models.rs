//! Models of drives in place of those of a topology, by the role of the drive; or another topology.
//!
//! Invariant: sizes that a load gives its drives stay.

use crate::topology;
use drives::catalogue::{Drive, hdd, ssd};
use std::ops::RangeInclusive;

/// Numbers of the drives of the catalogue, as values of parameters.
pub const NUMBERS: RangeInclusive<f64> = 0.0..=(hdd::ALL.len() + ssd::ALL.len() - 1) as f64;

/// The models that disks and flash drives have instead of their own, and the topology in place of
/// the published one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoleModels {
    /// The model of the disks.
    pub disk: Option<&'static str>,
    /// The model of the flash drives.
    pub flash: Option<&'static str>,
    /// The topology.
    pub topology: Option<&'static str>,
}

impl RoleModels {
    /// Every drive has its own model.
    pub const OWN: RoleModels = RoleModels {
        disk: None,
        flash: None,
        topology: None,
    };

    /// The configuration `text` on this machine, where `published` is the machine of the load.
    pub fn put(self, text: &str, published: &str) -> Result<String, String> {
        Ok(match self.topology {
            None => self.put_models(text),
            Some(own) => self.put_models(&topology::exchanged(text, published, own)?),
        })
    }

    fn put_models(self, text: &str) -> String {
        let line = |line: &str| {
            let own = line.strip_prefix("model = \"");
            let own = own.and_then(|rest| rest.strip_suffix('"'));
            let other = match own.map(Drive::named) {
                Some(Ok(Drive::Hdd(_))) => self.disk,
                Some(Ok(Drive::Ssd(_))) => self.flash,
                _ => None,
            };
            other.map_or_else(
                || format!("{line}\n"),
                |other| format!("model = \"{other}\"\n"),
            )
        };
        text.lines().map(line).collect()
    }
}

/// The number of the drive called `name`; the error lists the names that there are.
pub fn number(name: &str) -> Result<f64, String> {
    let wanted = Drive::named(name).map_err(|error| error.to_string())?;
    let place = Drive::all().position(|drive| drive.name() == wanted.name());
    Ok(place.expect("a drive of the catalogue is in it") as f64)
}

/// The name of the drive of this number.
pub fn name(number: f64) -> Option<&'static str> {
    Drive::all().nth(number as usize).map(|drive| drive.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maxiq::TOPOLOGY;

    #[test]
    fn a_drive_has_the_model_of_its_role_and_an_unknown_one_is_refused() {
        let both = RoleModels {
            disk: Some("SAS15K"),
            flash: Some("X25-M G1 160"),
            topology: None,
        };
        let text = both.put(TOPOLOGY, TOPOLOGY).unwrap();
        assert_eq!(text.matches("model = \"SAS15K\"").count(), 3);
        assert_eq!(text.matches("model = \"X25-M G1 160\"").count(), 1);
        let own = RoleModels::OWN.put(TOPOLOGY, TOPOLOGY);
        assert_eq!(own.as_deref(), Ok(TOPOLOGY));
        for drive in Drive::all() {
            let found = number(drive.name()).unwrap();
            assert!(NUMBERS.contains(&found));
            assert_eq!(name(found), Some(drive.name()));
        }
        assert!(number("floppy").unwrap_err().contains("SAS15K"));
    }
}
