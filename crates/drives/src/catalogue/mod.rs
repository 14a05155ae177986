//! The devices that come with hotset: one definition each, every number labelled
//! with its basis and its source.

pub mod controller;
pub mod hdd;
pub mod link;
pub mod ssd;

use super::{DriveModel, Figure, Hdd, HddParameters, SsdModel, SsdParameters, SsdWear};
use block::{IoError, IoErrorKind, IoResult, Sectors};

/// A drive of either kind.
#[derive(Clone, Debug)]
pub enum Drive {
    /// A hard disk.
    Hdd(HddParameters),
    /// A flash drive.
    Ssd(SsdParameters),
}

impl Drive {
    /// Every drive of the catalogue.
    pub fn all() -> impl Iterator<Item = Drive> {
        let disks = hdd::ALL.into_iter().map(Drive::Hdd);
        disks.chain(ssd::ALL.into_iter().map(Drive::Ssd))
    }

    /// The drive called `name`; `Err` lists the names there are.
    pub fn named(name: &str) -> IoResult<Drive> {
        Drive::all()
            .find(|drive| drive.name() == name)
            .ok_or_else(|| {
                let names: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
                let names = names.join(", ");
                IoError::new(
                    IoErrorKind::Invalid,
                    format!("no drive model is called {name:?}; choose one of: {names}"),
                )
            })
    }

    /// The model's name.
    pub fn name(&self) -> &'static str {
        match self {
            Drive::Hdd(disk) => disk.name,
            Drive::Ssd(flash) => flash.name,
        }
    }

    /// Capacity in sectors.
    pub fn capacity(&self) -> Sectors {
        match self {
            Drive::Hdd(disk) => disk.capacity(),
            Drive::Ssd(flash) => flash.capacity(),
        }
    }

    /// Every number under its name.
    pub fn figures(&self) -> Vec<(&'static str, Figure)> {
        match self {
            Drive::Hdd(disk) => disk.figures().to_vec(),
            Drive::Ssd(flash) => flash.figures().to_vec(),
        }
    }

    /// The idle model: a hard disk takes the `phase` of its spindle
    /// ([`Hdd::new`]), a flash drive its `wear`.
    pub fn model(&self, phase: f64, wear: SsdWear) -> IoResult<Box<dyn DriveModel + Send>> {
        Ok(match self {
            Drive::Hdd(disk) => Box::new(Hdd::new(disk, phase)?),
            Drive::Ssd(flash) => Box::new(SsdModel::new(flash, wear)?),
        })
    }
}
