//! Draws a case from its seed.

use super::case::{CaseCut, CrashCase, CrashStep, DiskFault, PowerLoss, PresentDisks, Setting};
use crate::model::Space;
use block::{IoErrorKind, Nanos, Sectors};
use cache::CacheMode;
use sim::{FaultEffect, OpFilter, ServiceSpan, SimRng};
use std::ops::Range;

/// The changes of disks and witness between two lives of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comings {
    /// Disks that were unplugged stay so, or all come back.
    Common,
    /// Each disk is there or not, for a life or several; no client plugs a disk in.
    Roaming,
    /// All disks are there, and the witness may go back.
    Backup,
}

impl Comings {
    fn draw(rng: &mut SimRng, disks: u64) -> Comings {
        match rng.below(10) {
            0..2 if disks > 1 => Comings::Roaming,
            2..4 if disks > 1 => Comings::Backup,
            _ => Comings::Common,
        }
    }
}

fn draw_volumes(rng: &mut SimRng, block: Sectors) -> Vec<Space> {
    let volume = |rng: &mut SimRng| Space {
        windows: rng.between(1, 4),
        each: rng.between(8, 64) * 8 + if rng.chance(0.2) { block.0 % 8 } else { 0 },
    };
    (0..rng.between(1, 3)).map(|_| volume(rng)).collect()
}

/// The length of cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// A script of 10 to 40 steps, with no cut of its own.
    Short,
    /// A script of 300 to 700 steps and up to five cuts, some during recovery.
    Long,
}

impl CrashCase {
    /// The case of `seed`.
    pub fn new(seed: u64, length: Length) -> CrashCase {
        let (mut case, comings) = CrashCase::simple(seed, length);
        if length == Length::Long {
            case.trouble(&mut SimRng::fork(seed, 12), comings);
        }
        case
    }

    /// The same daemon in an easier world: origins have no faults and no administrators, and the
    /// volumes never change.
    pub fn plain(seed: u64) -> CrashCase {
        CrashCase::simple(seed, Length::Long).0
    }

    fn simple(seed: u64, length: Length) -> (CrashCase, Comings) {
        let mut rng = SimRng::fork(seed, 11);
        let rng = &mut rng;
        let block = Sectors(if rng.chance(0.6) { 1 } else { 8 });
        let volumes = draw_volumes(rng, block);
        let line_bytes = 4096 << rng.below(5);
        let line = u64::from(line_bytes) / 512;
        let disks = rng.between(1, 4);
        let comings = match length {
            Length::Long => Comings::draw(rng, disks),
            Length::Short => Comings::Common,
        };
        // Writes that a disk missed show in a line that the disk kept and that no bit covers. Where
        // disks come and go, lines therefore stay, bits are cleared soon, and writes are few.
        let is_calm = comings != Comings::Common;
        let all: u64 = volumes.iter().map(|v| v.windows * v.each).sum();
        let least = if is_calm { 60 } else { 10 };
        let each = all * rng.between(least, 110) / 100 / disks;
        let pool = (0..disks)
            .map(|_| Sectors((each / line).max(1) * line + super::stage::METADATA.0))
            .collect();
        let count = match length {
            Length::Short => rng.between(10, 40),
            Length::Long => rng.between(300, 700),
        };
        let policies = policy::registry::POLICIES;
        let mut case = CrashCase {
            seed,
            block,
            line_bytes,
            policy: policies[rng.below(policies.len() as u64) as usize],
            pool,
            clients: rng.between(1, 6),
            steps: Vec::new(),
            cuts: Vec::new(),
            faults: Vec::new(),
            origin_late: 0.0,
            pools: 1,
            neighbours: 0,
            settings: Vec::new(),
            origin_time: ServiceSpan {
                min: Nanos::from_micros(20),
                max: Nanos::from_micros(rng.between(100, 1000)),
            },
            pool_time: ServiceSpan {
                min: Nanos::from_micros(5),
                max: Nanos::from_micros(rng.between(20, 300)),
            },
            hit_latency_max: Nanos::from_millis(rng.between(1, 5)),
            commit_period: Nanos::from_micros(rng.between(50, if is_calm { 200 } else { 1500 })),
            mark_idle_periods: rng.between(1, if is_calm { 1 } else { 3 }) as u32,
            volumes,
        };
        let write_share = match is_calm {
            true => rng.between(4, 20),
            false => rng.between(20, 60),
        };
        case.steps = (0..count).map(|_| case.step(rng, write_share)).collect();
        if length == Length::Long {
            case.draw_losses(rng, comings);
        }
        let setting = |space: &Space| Setting {
            name: 0,
            pool: 0,
            windows: space.windows,
        };
        case.settings = vec![case.volumes.iter().map(setting).collect()];
        (case, comings)
    }

    fn step(&self, rng: &mut SimRng, write_share: u64) -> CrashStep {
        let volume = rng.below(self.volumes.len() as u64) as usize;
        let disk = rng.below(self.pool.len() as u64) as usize;
        match rng.below(1000) {
            0..12 => CrashStep::Mode(
                volume,
                [
                    CacheMode::WriteThrough,
                    CacheMode::WriteAround,
                    CacheMode::PassThrough,
                ][rng.below(3) as usize],
            ),
            12..24 => CrashStep::Unplug(disk),
            24..40 => CrashStep::Plug(disk),
            40..60 => CrashStep::Pause(Nanos(rng.below(3_000_000))),
            60..85 => CrashStep::Flush(volume),
            85..100 => CrashStep::Zero(volume, self.place(rng, volume)),
            100..110 => CrashStep::Discard(volume, self.place(rng, volume)),
            n if n - 110 < write_share * 9 => {
                CrashStep::Write(volume, self.place(rng, volume), rng.chance(0.05))
            }
            _ => CrashStep::Read(volume, self.place(rng, volume)),
        }
    }

    /// Draws a small place, mostly in the hot quarter of a window, aligned to logical blocks.
    fn place(&self, rng: &mut SimRng, volume: usize) -> Range<u64> {
        let block = self.block.0;
        let space = self.volumes[volume];
        let window = space.window(rng.below(space.windows));
        let total = space.each / block;
        let len = match rng.below(10) {
            0..6 => rng.between(1, 8),
            6..9 => 8,
            _ => rng.between(1, 64),
        };
        let len = len.div_ceil(block).min(total);
        let range = if rng.chance(0.6) {
            total / 4 + 1
        } else {
            total
        };
        let mut start = rng.below(range);
        if rng.chance(0.6) {
            start = start * block / 8 * 8 / block;
        }
        let start = window.start + start.min(total - len) * block;
        start..start + len * block
    }

    /// Draws cuts, and faults of pool disks.
    fn draw_losses(&mut self, rng: &mut SimRng, comings: Comings) {
        self.draw_cuts(rng, comings);
        if comings == Comings::Roaming {
            self.steps
                .retain(|step| !matches!(step, CrashStep::Plug(_)));
        }
        if comings != Comings::Backup && rng.chance(0.4) {
            self.draw_faults(rng);
        }
    }

    /// A step of a script takes about four disk steps. A cut beyond the end of a life finds that
    /// life closed.
    fn draw_cuts(&mut self, rng: &mut SimRng, comings: Comings) {
        let lives = match comings {
            Comings::Common => rng.between(1, 3),
            Comings::Roaming | Comings::Backup => rng.between(2, 4),
        };
        let each = self.steps.len() as u64 * 4 / lives;
        let disks = self.pool.len() as u64;
        for _ in 0..lives {
            let mut cut = |most| CaseCut {
                after: rng.between(1, most),
                loss: PowerLoss::ALL[rng.below(4) as usize],
                disks: match comings {
                    Comings::Common if rng.chance(0.4) => PresentDisks::Same,
                    Comings::Common | Comings::Backup => PresentDisks::All,
                    Comings::Roaming => PresentDisks::Only(rng.between(1, (1 << disks) - 1) as u8),
                },
                witness_back: comings == Comings::Backup && rng.chance(0.5),
                disks_back: 0,
            };
            let main = cut(each.max(2));
            self.cuts.push(main);
            // More cuts while the next life recovers.
            let recovery = [cut(60), cut(60), cut(30)];
            let times = rng.below(4) as usize;
            self.cuts.extend(&recovery[..times]);
        }
    }

    fn draw_faults(&mut self, rng: &mut SimRng) {
        let media = FaultEffect::Fail(IoErrorKind::Media);
        let late = FaultEffect::Delay(Nanos(self.hit_latency_max.0 * rng.between(1, 3)));
        let kinds = [
            (OpFilter::Reads, media, 0.05),
            (OpFilter::Writes, media, 0.05),
            (OpFilter::Flushes, media, 0.05),
            (OpFilter::Reads, FaultEffect::FlipBit, 0.05),
            (OpFilter::Writes, FaultEffect::FlipBit, 0.05),
            (OpFilter::Writes, FaultEffect::Drop, 0.03),
            (OpFilter::Writes, FaultEffect::Misdirect, 0.03),
            (OpFilter::Writes, FaultEffect::Ruin, 0.01),
            (OpFilter::All, late, 0.05),
            (OpFilter::All, FaultEffect::Stick(None), 0.005),
        ];
        for disk in 0..self.pool.len() {
            for (ops, effect, most) in kinds {
                if rng.chance(0.2) {
                    self.draw_fault(rng, disk, (ops, effect, most));
                }
            }
        }
    }

    /// `disk` does `effect`, in a share of the operations up to `most`.
    fn draw_fault(
        &mut self,
        rng: &mut SimRng,
        disk: usize,
        (ops, effect, most): (OpFilter, FaultEffect, f64),
    ) {
        let chance = most * rng.between(1, 100) as f64 / 100.0;
        self.faults.push(DiskFault {
            disk,
            ops,
            effect,
            chance,
        });
    }

    /// Adds trouble beside losses of power and faults of pool disks: origins that lose writes, back
    /// ends that restore snapshots, daemons that stop in order, volumes that move, pool disks that
    /// hang, lie and go back in time.
    fn trouble(&mut self, rng: &mut SimRng, comings: Comings) {
        if rng.chance(0.3) {
            self.insert(rng, 8, |rng, volume| match rng.below(4) {
                0 => CrashStep::Away(volume, Nanos(rng.between(1, 3_000_000))),
                _ => CrashStep::Forget(volume),
            });
            self.insert(rng, 8, |_, volume| CrashStep::Flush(volume));
        }
        if rng.chance(0.3) {
            self.insert(rng, 6, |rng, volume| match rng.below(6) {
                0 => CrashStep::Invalidate(volume),
                1..3 => CrashStep::Snapshot(volume),
                _ => CrashStep::Rollback(volume),
            });
            if rng.chance(0.5) {
                self.stop_at_standstill();
            }
        }
        if rng.chance(0.35) {
            self.insert(rng, 2, |_, _| CrashStep::Stop);
        }
        if rng.chance(0.3) {
            self.move_volumes(rng, comings);
        }
        if rng.chance(0.08) {
            let disk = rng.below(self.pool.len() as u64) as usize;
            self.insert(rng, 1, |_, _| CrashStep::Hang(disk));
        }
        if rng.chance(0.08) {
            self.origin_late = 0.03;
        }
        if comings == Comings::Backup {
            for cut in self.cuts.iter_mut().filter(|cut| !cut.witness_back) {
                let disks = rng.between(1, (1 << self.pool.len()) - 1) as u8;
                cut.disks_back = if rng.chance(0.6) { disks } else { 0 };
            }
        } else if rng.chance(0.15) {
            self.draw_lies(rng);
        }
        if comings == Comings::Common && rng.chance(0.15) {
            self.crowd(rng);
        }
    }

    /// Inserts up to `most` steps anywhere.
    fn insert(
        &mut self,
        rng: &mut SimRng,
        most: u64,
        make: impl Fn(&mut SimRng, usize) -> CrashStep,
    ) {
        for _ in 0..rng.between(1, most) {
            let volume = rng.below(self.volumes.len() as u64) as usize;
            let at = rng.below(self.steps.len() as u64 + 1) as usize;
            self.steps.insert(at, make(rng, volume));
        }
    }

    /// Daemons are to stop while an administrator restores a snapshot.
    fn stop_at_standstill(&mut self) {
        let is_rollback = |step: &CrashStep| matches!(step, CrashStep::Rollback(_));
        if let Some(last) = self.steps.iter().rposition(is_rollback) {
            self.steps.insert(last + 1, CrashStep::Stop);
            self.clients = self.clients.max(2);
        }
    }

    /// From life to life a volume has another name, pool or size.
    fn move_volumes(&mut self, rng: &mut SimRng, comings: Comings) {
        if comings == Comings::Common && self.pool.len() > 1 && rng.chance(0.5) {
            self.pools = 2;
        }
        let pools = self.pools as u64;
        for life in 0..10 {
            let mut setting = self.settings[life].clone();
            for (volume, space) in setting.iter_mut().zip(&self.volumes) {
                if rng.chance(0.4) {
                    match rng.below(3) {
                        0 => volume.name = rng.below(3) as u8,
                        1 => volume.pool = rng.below(pools) as usize,
                        _ => volume.windows = rng.between(1, space.windows),
                    }
                }
            }
            self.settings.push(setting);
        }
    }

    /// The pools remember more volumes than their superblocks have room for.
    fn crowd(&mut self, rng: &mut SimRng) {
        self.neighbours = rng.between(30, 36);
        let each = self.pool.iter_mut();
        each.for_each(|sectors| *sectors += super::stage::TABLES);
        for _ in 0..rng.between(2, 12) {
            let at = rng.below(self.steps.len() as u64 + 1) as usize;
            self.steps.insert(at, CrashStep::Renew);
        }
    }

    /// Draws faults of pool disks: acknowledged flushes that make nothing durable, and failed
    /// writes that land later.
    fn draw_lies(&mut self, rng: &mut SimRng) {
        for disk in 0..self.pool.len() {
            let late = FaultEffect::Late(Nanos(rng.between(1, 3_000_000)));
            for (ops, effect, most) in [
                (OpFilter::Flushes, FaultEffect::IgnoreFlush, 0.5),
                (OpFilter::Writes, late, 0.03),
            ] {
                if rng.chance(0.4) {
                    self.draw_fault(rng, disk, (ops, effect, most));
                }
            }
        }
    }
}
