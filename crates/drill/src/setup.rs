//! The objects of a drill: the arrays and the write-back volumes of a configuration, on drives of
//! the drill's own.
//!
//! Not here: the user's devices, of which only names and controllers count; the drills of volumes
//! (`write_back`).

use super::row::to_message;
use super::write_back::Volumes;
use block::{Nanos, SECTOR_BYTES, Sectors};
use control::check::{check_alone, domain, survives};
use control::config::{Array, Config, Device, Name};
use std::collections::BTreeSet;
use std::path::Path;

/// One cell.
#[derive(Clone, Debug)]
pub(super) struct DrillCell {
    pub(super) scenario: DrillScenario,
    pub(super) io: bool,
}

/// The set-up called `write-back`.
pub const WRITE_BACK: &str = include_str!("write_back.toml");

/// Configurations that are drilled by their names; without one, the first.
const SETUPS: [(&str, &str); 2] = [
    ("published", include_str!("published.toml")),
    ("write-back", WRITE_BACK),
];
/// The least size of a drive.
const DRIVE_MIB: u64 = 6;
/// Time that parts stay away beyond the detection time.
const LONGER: Nanos = Nanos::from_secs(1);

/// The arrays and the write-back volumes of a configuration.
#[derive(Clone)]
pub struct DrillSetup {
    config: Config,
    /// Arrays, inner ones first.
    arrays: Vec<Array>,
    write_back: Volumes,
}

/// A loss to play.
#[derive(Clone, Debug)]
pub(super) struct DrillScenario {
    /// Name on the page.
    pub(super) name: String,
    /// The controller of the drives.
    pub(super) side: String,
    /// The drives.
    pub(super) drives: Vec<Name>,
}

/// The scenarios to run, and a sentence for each that no array could survive.
struct Scenarios {
    /// Scenarios that are run.
    run: Vec<DrillScenario>,
    /// Scenarios that are not run, and why.
    not_run: Vec<String>,
}

impl DrillSetup {
    /// Builds the set-up of a configuration that agrees with itself.
    pub fn new(config: Config) -> Result<DrillSetup, String> {
        let write_back = Volumes::new(config.clone());
        if config.arrays.is_empty() && write_back.is_empty() {
            let what = "hotset: the configuration has no [[array]] and no [[volume]] that is \
                        write-back to be drilled; add one";
            return Err(what.into());
        }
        let mut left = config.arrays.clone();
        let mut arrays: Vec<Array> = Vec::new();
        while !left.is_empty() {
            let waits =
                |array: &Array| members(array).any(|m| left.iter().any(|a| a.name.value == *m));
            let (later, now): (Vec<_>, Vec<_>) = left.iter().cloned().partition(waits);
            if now.is_empty() {
                return Err("arrays are members of each other".into());
            }
            arrays.extend(now);
            left = later;
        }
        Ok(DrillSetup {
            config,
            arrays,
            write_back,
        })
    }

    /// The names of set-ups that are there.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SETUPS.iter().map(|(name, _)| *name)
    }

    /// The set-up of that name.
    pub fn named(name: &str) -> Result<DrillSetup, String> {
        let found = SETUPS.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| format!("hotset: no set-up is named {name:?}"))?;
        let config = check_alone(*text, &[]);
        DrillSetup::new(
            config.map_err(|problems| problems.iter().map(to_message).collect::<String>())?,
        )
    }

    /// The write-back volumes.
    pub(super) fn write_back(&self) -> &Volumes {
        &self.write_back
    }

    /// The arrays, those within others first.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The arrays that are part of no other: clients read and write these.
    pub fn volumes(&self) -> Vec<&Array> {
        let part = |name: &Name| self.arrays.iter().any(|a| members(a).any(|m| m == name));
        let arrays = self.arrays.iter();
        arrays.filter(|array| !part(&array.name.value)).collect()
    }

    /// The devices that arrays are made of.
    pub fn drives(&self) -> Vec<&Device> {
        let used = |d: &&Device| {
            self.arrays
                .iter()
                .any(|a| members(a).any(|m| *m == d.name.value))
        };
        self.config.devices.iter().filter(used).collect()
    }

    /// The failure domain of a device or an array.
    pub fn domain(&self, name: &Name) -> String {
        domain(&self.config, name)
    }

    /// The size of every drive: enough for some chunks.
    pub fn drive_size(&self) -> Sectors {
        let chunks = self.arrays.iter().map(|array| array.chunk.value.0);
        let bytes = chunks.max().unwrap_or(0) * 8 + (2 << 20);
        Sectors(bytes.max(DRIVE_MIB << 20) / SECTOR_BYTES)
    }

    /// The longest time that a member may take before it is lost.
    pub fn detection(&self) -> Nanos {
        let each = self.arrays.iter().map(detection);
        each.max().unwrap_or(Nanos::ZERO)
    }

    /// Time that parts stay away: long enough to be lost.
    pub fn away(&self) -> Nanos {
        self.detection() + LONGER
    }

    /// Tests for spares, which may take a lost member's place.
    pub fn has_spares(&self) -> bool {
        self.arrays.iter().any(|a| !a.spares.value.is_empty())
    }

    /// A configuration of the arrays for a daemon in `directory`, with the place of each
    /// drive by `source`; a volume has its array's name.
    pub fn configuration(&self, directory: &Path, source: impl Fn(&str) -> String) -> String {
        let dir = directory.display();
        let mut text = format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n[[listen]]\nunix = \"{dir}/nbd\"\n\
             [[pool]]\nname = \"none\"\ndevices = []\n"
        );
        for drive in self.drives() {
            let (name, controller) = (drive.name.as_str(), self.domain(&drive.name.value));
            text += &format!(
                "[[device]]\nname = \"{name}\"\n{}\ncontroller = {controller:?}\n",
                source(name)
            );
        }
        for array in self.arrays() {
            let names = |all: &[Name]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
            text += &format!(
                "[[array]]\nname = \"{}\"\nlevel = \"{}\"\nmembers = {:?}\nspares = {:?}\nchunk = \"{}B\"\n\
                 detection = \"{}ms\"\nrebuild_rate = \"{}B\"\nspare_delay = \"0s\"\n",
                array.name.value,
                array.level.name(),
                names(&array.members.value),
                names(&array.spares.value),
                array.chunk.value.0,
                detection(array).0 / 1_000_000,
                array.rebuild_rate.value.0,
            );
        }
        for volume in self.volumes() {
            text += &format!(
                "[[volume]]\nname = \"{0}\"\norigin = \"{0}\"\npool = \"none\"\nmode = \"pass-through\"\n",
                volume.name.value
            );
        }
        text
    }

    /// The arrays that have each byte more than once.
    pub fn redundant(&self) -> impl Iterator<Item = &Name> {
        let redundant = |array: &&Array| array.level.value.is_redundant();
        let arrays = self.arrays.iter().filter(redundant);
        arrays.map(|array| &array.name.value)
    }

    /// One line.
    pub(super) fn about(&self) -> String {
        let each = self.arrays.iter().map(|array| {
            let members: Vec<&str> = array.members.value.iter().map(Name::as_str).collect();
            format!(
                "{}: {} of {}",
                array.name.value,
                array.level.name(),
                members.join(", ")
            )
        });
        let all: Vec<_> = each.chain(self.write_back.about()).collect();
        all.join("; ")
    }

    /// Tests for cells to run.
    pub fn has_cells(&self) -> bool {
        !self.scenarios().run.is_empty() || !self.write_back.scenarios().0.is_empty()
    }

    /// The scenarios that are not run, and why: a sentence for each.
    pub fn not_run(&self) -> Vec<String> {
        let arrays = self.scenarios().not_run;
        [arrays, self.write_back.scenarios().1].concat()
    }

    fn survives(&self, volume: &Array, lost: &[Name]) -> bool {
        let lost = |device: &Device| lost.contains(&device.name.value);
        survives(&self.config, &volume.name.value, &lost)
    }

    /// The array and its inner arrays.
    fn within<'a>(&'a self, array: &'a Array) -> Vec<&'a Array> {
        let below = |name: &Name| self.arrays.iter().find(|a| a.name.value == *name);
        let inner = members(array).filter_map(below);
        let deeper = inner.flat_map(|array| self.within(array));
        [array].into_iter().chain(deeper).collect()
    }

    /// Scenarios of each controller in turn: two drives of one group, or a single drive of an array
    /// that cannot lose two; and all drives of the controller.
    fn scenarios(&self) -> Scenarios {
        let sides: BTreeSet<String> = self
            .drives()
            .iter()
            .map(|d| self.domain(&d.name.value))
            .collect();
        let (mut twos, mut ones, mut alls) = (Vec::new(), Vec::new(), Vec::new());
        for side in &sides {
            for volume in self.volumes() {
                let of = |array: &Array| self.of_side(&array.members.value, side);
                let groups: Vec<_> = self.within(volume).into_iter().map(of).collect();
                let pairs: Vec<_> = groups.iter().flat_map(|group| pairs(group)).collect();
                let survived = pairs.iter().find(|pair| self.survives(volume, *pair));
                if let Some(pair) = survived.or(pairs.first()) {
                    twos.push(("two drives of one group", Some(volume), side, pair.to_vec()));
                }
                if let (None, Some(one)) = (survived, groups.iter().flatten().next()) {
                    ones.push(("a single drive", Some(volume), side, vec![one.clone()]));
                }
            }
            let all: Vec<Name> = self.drives().iter().map(|d| d.name.value.clone()).collect();
            let all = self.of_side(&all, side);
            if all.len() > 1 {
                alls.push(("a whole controller", None, side, all));
            }
        }
        let mut scenarios = Scenarios {
            run: Vec::new(),
            not_run: Vec::new(),
        };
        for (name, volume, side, drives) in twos.into_iter().chain(ones).chain(alls) {
            let name = match volume {
                Some(volume) => format!("{name} ({})", volume.name.value),
                None => name.to_owned(),
            };
            let volumes = self.volumes().into_iter();
            let stopped = volumes.filter(|volume| !self.survives(volume, &drives));
            let stopped: Vec<&str> = stopped.map(|volume| volume.name.as_str()).collect();
            if stopped.is_empty() {
                scenarios.run.push(DrillScenario {
                    name,
                    side: side.clone(),
                    drives,
                });
            } else {
                let stopped = stopped.join(", ");
                let what = format!("{name} of side {side}: by its making it would stop {stopped}");
                scenarios.not_run.push(what);
            }
        }
        scenarios
    }

    /// The devices among `names` in the failure domain `side`.
    fn of_side(&self, names: &[Name], side: &str) -> Vec<Name> {
        let drives = self.drives();
        let device = |name: &&Name| drives.iter().any(|drive| drive.name.value == **name);
        let here = names
            .iter()
            .filter(device)
            .filter(|name| self.domain(name) == side);
        here.cloned().collect()
    }

    /// Every cell: each scenario without and with clients.
    pub(super) fn cells(&self) -> Vec<DrillCell> {
        let each = self.scenarios().run.into_iter().flat_map(|scenario| {
            [false, true].map(|io| DrillCell {
                scenario: scenario.clone(),
                io,
            })
        });
        each.collect()
    }
}

/// The longest time that a member of `array` may take before it is lost.
fn detection(array: &Array) -> Nanos {
    Nanos(u64::try_from(array.detection.value.as_nanos()).unwrap_or(u64::MAX))
}

/// Members and spares.
fn members(array: &Array) -> impl Iterator<Item = &Name> {
    array.members.value.iter().chain(&array.spares.value)
}

/// Every two of `names`, neighbours last.
fn pairs(names: &[Name]) -> Vec<[Name; 2]> {
    let apart = (1..names.len()).rev();
    let pairs = apart.flat_map(|apart| names.iter().zip(&names[apart..]));
    pairs.map(|(a, b)| [a.clone(), b.clone()]).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Drives a0 to a3 on the controller a, and b0 to b3 on b, and `arrays`.
    pub fn setup(arrays: &str) -> DrillSetup {
        let mut text = String::from("[[listen]]\nunix = '/nonexistent/s'\n");
        for side in ["a", "b"] {
            for number in 0..4 {
                text += &format!(
                    "[[device]]\nname = '{side}{number}'\npath = '/nonexistent/{side}{number}'\n\
                     controller = '{side}'\n"
                );
            }
        }
        let config = check_alone(&(text + arrays), &[]);
        DrillSetup::new(config.unwrap()).unwrap()
    }

    pub fn array(name: &str, level: &str, members: &str) -> String {
        format!("[[array]]\nname = '{name}'\nlevel = '{level}'\nmembers = [{members}]\n")
    }

    fn names(setup: &DrillSetup) -> (Vec<String>, usize) {
        let scenarios = setup.scenarios();
        let run = scenarios.run.iter();
        let run = run.map(|s| format!("{} of {}", s.name, s.side)).collect();
        (run, scenarios.not_run.len())
    }

    #[test]
    fn the_published_set_up_has_twelve_cells() {
        let published = DrillSetup::named("published").unwrap();
        assert_eq!(published.cells().len(), 12);
        assert_eq!(published.scenarios().not_run, Vec::<String>::new());
        assert_eq!(published.drives().len(), 16);
        assert_eq!(published.away(), Nanos::from_secs(3));
        let write_back = DrillSetup::named("write-back").unwrap();
        assert_eq!(write_back.not_run(), Vec::<String>::new());
    }

    #[test]
    fn what_arrays_cannot_survive_is_reported_and_not_run() {
        let five = setup(&array("r", "raid5", "'a0','a1','a2'"));
        // Neither two of its drives nor all; the drives that no array uses do not count.
        assert_eq!(names(&five), (vec!["a single drive (r) of a".into()], 2));
        let ten = setup(&array("r", "raid10", "'a0','a1','b0','b1'"));
        assert_eq!((names(&ten).0.len(), names(&ten).1), (4, 0));
        let stripe = setup(&array("r", "raid0", "'a0','b0'"));
        assert_eq!((names(&stripe).0.len(), names(&stripe).1), (0, 2));
        let pair = setup(&array("r", "raid1", "'a0','b0'"));
        assert_eq!((names(&pair).0.len(), names(&pair).1), (2, 0));
    }

    #[test]
    fn arrays_are_in_the_order_in_which_they_can_be_made() {
        let nested = array("outer", "raid1", "'x','y'")
            + &array("x", "raid5", "'a0','a1','a2'")
            + &array("y", "raid5", "'b0','b1','b2'");
        let nested = setup(&nested);
        let order: Vec<&str> = nested.arrays().iter().map(|a| a.name.as_str()).collect();
        assert_eq!(order, ["x", "y", "outer"]);
        assert_eq!(nested.volumes().len(), 1);
        assert!(
            DrillSetup::new(Config {
                arrays: Vec::new(),
                ..nested.config
            })
            .is_err()
        );
    }
}
