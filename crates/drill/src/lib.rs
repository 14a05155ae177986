//! Availability drills: parts of a mirrored server, or of a write-back volume, are pulled,
//! with and without load, and come back.
//!
//! Drilled are a configuration's arrays (`setup`), the published set-up's unless another is given,
//! and its write-back volumes (`write_back`), on drives of the drill's own. One script runs on a
//! real daemon (`real`), on drives that are NBD servers of their own processes, or loop devices
//! (`drive`). With the feature `simulated` the same script runs in the simulated world (`sim`).
//!
//! Not here: unplugging disks of a machine.

mod drive;
mod load;
mod page;
mod play;
mod real;
mod remote;
mod row;
mod setup;
#[cfg(feature = "simulated")]
mod sim;
mod write_back;

pub use drive::DriveKind;
pub use page::page;
pub use row::{Detail, DrillRow};
pub use setup::{DrillSetup, WRITE_BACK};

use std::path::Path;

/// Runs every cell of `setup` in the simulated world; `done` hears of each.
#[cfg(feature = "simulated")]
pub fn simulated(
    setup: &DrillSetup,
    seed: u64,
    done: &dyn Fn(&DrillRow),
) -> Result<Vec<DrillRow>, String> {
    let arrays = setup.cells().into_iter();
    let arrays = arrays.map(|cell| sim::run(setup, seed, cell));
    let volumes = setup.write_back();
    let cells = volumes.cells().into_iter();
    let cached = cells.map(|cell| write_back::simulated(volumes, seed, cell));
    let all = arrays.chain(cached);
    all.inspect(|row| row.iter().for_each(done)).collect()
}

/// Runs every cell of `setup` on a daemon of `program` with drives of `kind`, with files in
/// `directory`, which is made if missing; `done` hears of each.
pub fn real(
    setup: &DrillSetup,
    kind: DriveKind,
    program: &Path,
    directory: &Path,
    done: &dyn Fn(&DrillRow),
) -> Result<Vec<DrillRow>, String> {
    let volumes = setup.write_back();
    // A log has its devices in this machine, wherever the other drives are.
    let most = match volumes.is_empty() {
        true => kind,
        false => DriveKind::Loop,
    };
    if let Some(obstacle) = most.obstacle() {
        return Err(obstacle);
    }
    most.prepare()?;
    let mut rows = Vec::new();
    let mut stage = None;
    for cell in setup.cells() {
        let mut ready = match stage.take() {
            Some(ready) => ready,
            None => real::DrillStage::new(setup, kind, program, directory)?,
        };
        let row = ready.run(cell)?;
        done(&row);
        // A spare that took a place is not where the next cell has the spare.
        if row.is_right() && !setup.has_spares() {
            stage = Some(ready);
        }
        rows.push(row);
    }
    drop(stage);
    let mut stage = None;
    for cell in volumes.cells() {
        let mut ready = match stage.take() {
            Some(ready) => ready,
            None => write_back::WriteBackStage::new(volumes, kind, program, directory)?,
        };
        let row = ready.run(cell)?;
        done(&row);
        stage = row.is_right().then_some(ready);
        rows.push(row);
    }
    Ok(rows)
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::setup::tests::{array, setup};
    use super::*;

    fn all_survived(setup: &DrillSetup) -> Vec<DrillRow> {
        let rows = simulated(setup, 1, &|_| ()).unwrap();
        for row in &rows {
            assert!(row.is_right(), "{row:#?}");
            assert_eq!(row.io, row.writes_per_s > 0.0, "{row:#?}");
        }
        rows
    }

    #[test]
    fn other_arrays_are_drilled_as_well() {
        for (arrays, cells) in [
            // Half of the array is lost at once, and a spare takes a place.
            (
                array("r", "raid10", "'a0','a1','b0','b1'") + "spares = ['b2']\n",
                8,
            ),
            (array("r", "raid5", "'a0','a1','b0','b1'"), 4),
            // An inner array stops, and is reassembled.
            (
                array("x", "raid5", "'a0','a1','a2'")
                    + &array("y", "raid5", "'b0','b1','b2'")
                    + &array("r", "raid1", "'x','y'"),
                8,
            ),
            (
                array("x", "raid1", "'a0','b0'")
                    + &array("y", "raid1", "'a1','b1'")
                    + &array("r", "raid0", "'x','y'"),
                8,
            ),
        ] {
            assert_eq!(all_survived(&setup(&arrays)).len(), cells, "{arrays}");
        }
    }

    #[test]
    fn canary_a_write_that_an_origin_loses_is_found() {
        let setup = DrillSetup::named("write-back").unwrap();
        let row = write_back::run_dropping(setup.write_back(), 1).unwrap();
        assert!(row.wrong_bytes > 0 && !row.is_right(), "{row:#?}");
    }

    #[test]
    fn canary_a_byte_that_an_origin_alone_has_otherwise_is_found() {
        let setup = DrillSetup::named("write-back").unwrap();
        let row = write_back::run_altered(setup.write_back(), 1).unwrap();
        assert!(row.wrong_bytes == 1 && !row.is_right(), "{row:#?}");
        let why = row.error.unwrap();
        assert!(why.contains("the origin of volume 0"), "{why}");
    }

    #[test]
    fn canary_content_that_changes_is_found() {
        let setup = DrillSetup::named("published").unwrap();
        let row = sim::run_corrupt(&setup, 1).unwrap();
        assert!(row.wrong_bytes > 0 && !row.is_right(), "{row:#?}");
    }
}
