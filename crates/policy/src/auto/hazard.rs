//! The chance of a line's reuse at each age, by class, and the worth of the line that follows.
//!
//! For each class and age bucket two numbers are counted: the lines that left the bucket, reused or
//! grown older, and the lines among them that were reused. Their quotient is the hazard. Fine
//! classes are shrunk towards coarse ones, those towards all lines, and those towards a prior under
//! which older means worse, which is LRU.
//!
//! The worth is the Gittins index (Gittins, "Bandit processes and dynamic allocation indices", JRSS
//! B 1979): the best ratio, over all horizons, of the chance of a reuse within the horizon to the
//! expected time until reuse or horizon.

use super::class::{BUCKETS, CLASSES, COARSE, LineClass, bucket_start};
use super::fills::Fills;
use super::line::PackedLine;
use crate::LineParts;

/// Hazard of the prior in every bucket: a line is as likely to be reused in one
/// half-octave of age as in the next.
const PRIOR_HAZARD: f32 = 0.05;
/// Observations that the next coarser level is worth.
const SHRINKAGE: f32 = 8.0;
/// The share of an observation that remains after one round over all classes.
const RETENTION: f32 = 0.98;

#[derive(Clone, Copy, Debug, Default)]
struct HazardCell {
    /// Lines that left the bucket.
    left: f32,
    /// Those of them that were reused.
    reused: f32,
}

type Row = [HazardCell; BUCKETS];

/// Observed reuse and the worth computed from it.
#[derive(Clone, Debug)]
pub(crate) struct Hazards {
    fine: Vec<Row>,
    coarse: Vec<Row>,
    all: Row,
    worth: Vec<[f32; BUCKETS]>,
    /// For a line just accessed: the chance of a reuse within the best horizon.
    chance: Vec<f32>,
    next: usize,
    fills: Fills,
}

impl Hazards {
    pub(crate) fn new() -> Hazards {
        let mut hazards = Hazards {
            fine: vec![Row::default(); CLASSES],
            coarse: vec![Row::default(); COARSE],
            all: Row::default(),
            worth: vec![[0.0; BUCKETS]; CLASSES],
            chance: vec![0.0; CLASSES],
            next: 0,
            fills: Fills::new(),
        };
        for class in 0..CLASSES {
            hazards.rebuild(LineClass(class as u16));
        }
        hazards
    }

    /// A line of `class` left `bucket`.
    #[inline]
    pub(crate) fn left(&mut self, class: LineClass, bucket: usize, reused: bool) {
        let cells = [
            &mut self.fine[class.0 as usize][bucket],
            &mut self.coarse[class.coarse()][bucket],
            &mut self.all[bucket],
        ];
        for cell in cells {
            cell.left += 1.0;
            if reused {
                cell.reused += 1.0;
            }
        }
    }

    /// Notes a read of `line`, in its state before, for `touched`.
    #[inline]
    pub(crate) fn read(&mut self, line: PackedLine, touched: LineParts) {
        self.fills.read(line, touched);
    }

    /// Notes another use of the resident `line`, in its state before.
    pub(crate) fn again(&mut self, line: PackedLine) {
        self.fills.again(line);
    }

    /// The resident `line` is evicted.
    pub(crate) fn evicted(&mut self, line: PackedLine) {
        self.fills.evicted(line);
    }

    /// The chance that the next read of `line` hits.
    #[inline(always)]
    pub(crate) fn found(&self, line: PackedLine) -> f32 {
        self.fills.chance(line)
    }

    /// The worth of a line of `class` and of an age in `bucket`.
    #[inline]
    pub(crate) fn worth(&self, class: LineClass, bucket: usize) -> f32 {
        self.worth[class.0 as usize][bucket]
    }

    /// The chance that a line of `class` just accessed is reused in time.
    #[inline]
    pub(crate) fn chance(&self, class: LineClass) -> f32 {
        self.chance[class.0 as usize]
    }

    /// Recomputes the worth of one class and lets its observations fade. As many calls as there are
    /// classes cover every class.
    #[inline(never)]
    pub(crate) fn step(&mut self) {
        let class = LineClass(self.next as u16);
        if self.coarse[class.coarse()]
            .iter()
            .any(|cell| cell.left > 0.5)
        {
            self.rebuild(class);
        }
        fade(&mut self.fine[self.next]);
        if self.next.is_multiple_of(CLASSES / COARSE) {
            fade(&mut self.coarse[class.coarse()]);
        }
        self.next += 1;
        if self.next == CLASSES {
            self.next = 0;
            fade(&mut self.all);
            self.fills.refresh();
        }
    }

    /// Every observation: `[left, reused]` for each bucket of each class, each
    /// coarse class, and all lines, in this order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = [[f32; 2]; BUCKETS]> {
        let rows = self.fine.iter().chain(&self.coarse).chain([&self.all]);
        rows.map(|row| row.map(|cell| [cell.left, cell.reused]))
    }

    /// The findings of reads, beside these.
    pub(crate) fn fills(&self) -> &Fills {
        &self.fills
    }

    /// Observations from the rows of [`Hazards::rows`], by position; absent rows are empty.
    pub(crate) fn from_rows(
        rows: impl Iterator<Item = (usize, [[f32; 2]; BUCKETS])>,
        fills: Fills,
    ) -> Hazards {
        let mut hazards = Hazards {
            fills,
            ..Hazards::new()
        };
        for (at, row) in rows {
            let row = row.map(|[left, reused]| HazardCell { left, reused });
            match at {
                _ if at < CLASSES => hazards.fine[at] = row,
                _ if at < CLASSES + COARSE => hazards.coarse[at - CLASSES] = row,
                _ => hazards.all = row,
            }
        }
        for class in 0..CLASSES {
            hazards.rebuild(LineClass(class as u16));
        }
        hazards
    }

    /// The same observations, of ages in ticks of `1 << old` accesses, as of
    /// ages in ticks of `1 << new`.
    pub(crate) fn rescaled(&self, old: u32, new: u32) -> Hazards {
        let rows = self.rows().map(|row| {
            let mut moved = [[0.0; 2]; BUCKETS];
            for (b, [left, reused]) in row.into_iter().enumerate() {
                let to = (b + 2 * old as usize).saturating_sub(2 * new as usize);
                let to = &mut moved[to.min(BUCKETS - 1)];
                *to = [to[0] + left, to[1] + reused];
            }
            moved
        });
        Hazards::from_rows(rows.enumerate(), self.fills.clone())
    }

    fn rebuild(&mut self, class: LineClass) {
        let mut hazard = [0.0; BUCKETS];
        for (b, hazard) in hazard.iter_mut().enumerate() {
            let levels = [
                self.all[b],
                self.coarse[class.coarse()][b],
                self.fine[class.0 as usize][b],
            ];
            *hazard = levels.iter().fold(PRIOR_HAZARD, |above, cell| {
                (cell.reused + SHRINKAGE * above) / (cell.left + SHRINKAGE)
            });
        }
        self.chance[class.0 as usize] = gittins(&hazard, &mut self.worth[class.0 as usize]);
    }
}

fn fade(row: &mut Row) {
    for cell in row {
        cell.left *= RETENTION;
        cell.reused *= RETENTION;
    }
}

/// Ages from the start of a bucket up to the horizon that attains its index.
#[derive(Clone, Copy, Default)]
struct HazardStretch {
    /// For a line at the start: the chance of a reuse within the stretch, ...
    chance: f32,
    /// ... the expected ticks until then or the end, ...
    ticks: f32,
    /// ... and the chance to reach the end.
    alive: f32,
}

/// The index of a line at the start of each bucket; returns the chance of a
/// reuse within the best horizon of a line just accessed.
///
/// From the oldest bucket down, a stretch takes in the next one for as long as
/// that raises its ratio, so that each bucket is merged once.
fn gittins(hazard: &[f32; BUCKETS], worth: &mut [f32; BUCKETS]) -> f32 {
    let mut later = [HazardStretch::default(); BUCKETS];
    let mut stretches = 0;
    let mut chance = 0.0;
    for b in (0..BUCKETS).rev() {
        let width = (bucket_start(b + 1) - bucket_start(b)) as f32;
        let mut own = HazardStretch {
            chance: hazard[b],
            ticks: width * (1.0 - hazard[b] / 2.0),
            alive: 1.0 - hazard[b],
        };
        while stretches > 0 {
            let next = later[stretches - 1];
            if next.chance * own.ticks <= own.chance * next.ticks {
                break;
            }
            own.chance += own.alive * next.chance;
            own.ticks += own.alive * next.ticks;
            own.alive *= next.alive;
            stretches -= 1;
        }
        later[stretches] = own;
        stretches += 1;
        worth[b] = own.chance / own.ticks;
        chance = own.chance;
    }
    chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_observations_older_is_worth_less() {
        let hazards = Hazards::new();
        for class in [0, 5, CLASSES as u16 - 1] {
            for octave_later in 4..BUCKETS {
                let class = LineClass(class);
                let younger = hazards.worth(class, octave_later - 2);
                assert!(hazards.worth(class, octave_later) < younger);
            }
        }
    }

    #[test]
    fn a_change_of_scale_moves_what_was_learnt() {
        let mut hazards = Hazards::new();
        for _ in 0..100 {
            hazards.left(LineClass(3), 20, true);
        }
        for _ in 0..CLASSES {
            hazards.step();
        }
        let coarser = hazards.rescaled(2, 5);
        assert!(coarser.worth(LineClass(3), 14) > 2.0 * coarser.worth(LineClass(3), 12));
        let back = coarser.rescaled(5, 2);
        assert!(back.rows().zip(hazards.rows()).all(|(a, b)| a == b));
    }

    #[test]
    fn the_index_is_the_best_ratio_over_all_horizons() {
        let mut random = super::super::random::UniformNumbers::new(3);
        for _ in 0..200 {
            let hazard = [(); BUCKETS].map(|()| random.below(1000) as f32 / 1001.0);
            let mut worth = [0.0; BUCKETS];
            gittins(&hazard, &mut worth);
            for (age, worth) in worth.iter().enumerate() {
                let (mut alive, mut chance, mut time, mut best) = (1.0f64, 0.0, 0.0, 0.0f64);
                for (b, hazard) in hazard.iter().enumerate().skip(age) {
                    let width = f64::from(bucket_start(b + 1) - bucket_start(b));
                    chance += alive * f64::from(*hazard);
                    time += alive * width * (1.0 - f64::from(*hazard) / 2.0);
                    alive *= 1.0 - f64::from(*hazard);
                    best = best.max(chance / time);
                }
                assert!(
                    (f64::from(*worth) / best - 1.0).abs() < 1e-3,
                    "{worth} {best}"
                );
            }
        }
    }

    #[test]
    fn a_loop_makes_the_older_line_worth_more() {
        let mut hazards = Hazards::new();
        for _ in 0..1000 {
            for b in 0..20 {
                hazards.left(LineClass(0), b, false);
            }
            hazards.left(LineClass(0), 20, true);
        }
        hazards.rebuild(LineClass(0));
        assert!(hazards.worth(LineClass(0), 19) > 2.0 * hazards.worth(LineClass(0), 2));
        assert!(hazards.chance(LineClass(0)) > 0.9);
        assert!(hazards.worth(LineClass(0), 24) < hazards.worth(LineClass(0), 19));
    }
}
