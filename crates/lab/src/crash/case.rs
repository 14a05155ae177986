//! What a case is made of: a topology, a script of operations, faults, and the
//! moments at which the power goes. All of it is data, so that a case that fails
//! can be made smaller piece by piece.

use block::{Extent, Kind, Lba, Nanos, Sectors, TargetId};
use cache::Mode;
use sim::{Domain, Effect, Ops, Plan, Point, PowerCut, Rng, Rule, Span, When};
use std::ops::Range;

/// The power domain of the origins.
pub(super) const ORIGINS: Domain = Domain(1);
/// The power domain of the pool's disks.
pub(super) const POOL: Domain = Domain(2);
/// The daemon's own "power domain": a kill of the process.
pub(super) const DAEMON: Domain = Domain(3);

/// Sectors from the start of one window to that of the next: more than a region
/// that the pool marks as a whole, so that a write in one leaves others alone.
const STRIDE: u64 = 3 * 8192;

/// A volume whose clients use a few windows far apart, so that a small case
/// spans much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// How many windows.
    pub windows: u64,
    /// Sectors of each.
    pub each: u64,
}

impl Space {
    /// The size of the volume.
    pub fn sectors(self) -> Sectors {
        Sectors((self.windows - 1) * STRIDE + self.each)
    }

    /// The sectors of a window.
    pub fn window(self, number: u64) -> Range<u64> {
        number * STRIDE..number * STRIDE + self.each
    }

    /// The number of a sector among those of all windows.
    pub fn index(self, sector: u64) -> usize {
        assert!(
            self.each <= STRIDE && sector % STRIDE < self.each,
            "sector {sector} is in no window"
        );
        (sector / STRIDE * self.each + sector % STRIDE) as usize
    }
}

/// One step of a client's script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reads sectors of a volume.
    Read(usize, Range<u64>),
    /// Writes them; `true` forces unit access.
    Write(usize, Range<u64>, bool),
    /// Zeroes them.
    Zero(usize, Range<u64>),
    /// Discards them.
    Discard(usize, Range<u64>),
    /// Flushes a volume.
    Flush(usize),
    /// Changes a volume's mode.
    Mode(usize, Mode),
    /// Unplugs a pool disk.
    Unplug(usize),
    /// Plugs it in again, and puts it into the pool if the daemon runs.
    Plug(usize),
    /// Does nothing for a time.
    Pause(Nanos),
}

/// What stops when the power goes. The daemon always does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The process is killed; all disks keep their power.
    Daemon,
    /// The pool loses power with it.
    Pool,
    /// The origins lose power with it.
    Origins,
    /// Everything does.
    All,
}

impl Loss {
    /// Every loss.
    pub const ALL: [Loss; 4] = [Loss::Daemon, Loss::Pool, Loss::Origins, Loss::All];

    fn domains(self) -> &'static [Domain] {
        match self {
            Loss::Daemon => &[DAEMON],
            Loss::Pool => &[DAEMON, POOL],
            Loss::Origins => &[DAEMON, ORIGINS],
            Loss::All => &[DAEMON, ORIGINS, POOL],
        }
    }

    /// Whether the origins lose what they have not made durable.
    pub(super) fn takes_origins(self) -> bool {
        matches!(self, Loss::Origins | Loss::All)
    }
}

/// A loss in the life of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Disk steps (submissions and completions) after the life began.
    pub after: u64,
    /// What is lost.
    pub loss: Loss,
    /// Which pool disks the next daemon finds, as they were.
    pub disks: Disks,
    /// Whether the witness goes back to what it was a life ago, as if it came
    /// from a backup; only while that can be told.
    pub witness_back: bool,
}

/// The pool disks that are there when a daemon starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disks {
    /// Those that were there when the last one ended.
    Same,
    /// All.
    All,
    /// Those whose bits are set.
    Only(u8),
}

/// What becomes of disks and witness between two lives of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comings {
    /// Disks that were unplugged stay so, or all come back.
    Common,
    /// Each disk is there or not, for a life or several; nobody plugs one in.
    Roaming,
    /// All disks are there, and the witness may go back.
    Backup,
}

impl Comings {
    fn draw(rng: &mut Rng, disks: u64) -> Comings {
        match rng.below(10) {
            0..2 if disks > 1 => Comings::Roaming,
            2..4 if disks > 1 => Comings::Backup,
            _ => Comings::Common,
        }
    }
}

/// A fault of a pool disk's operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// The disk.
    pub disk: usize,
    /// Of which operations.
    pub ops: Ops,
    /// What happens to them.
    pub effect: Effect,
    /// With which probability.
    pub chance: f64,
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Seeds the world.
    pub seed: u64,
    /// The origins' logical block.
    pub block: Sectors,
    /// The volumes.
    pub volumes: Vec<Space>,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// The replacement policy.
    pub policy: &'static str,
    /// Sizes of the pool's disks.
    pub pool: Vec<Sectors>,
    /// Steps in progress at once.
    pub clients: u64,
    /// The script, over all lives of the daemon.
    pub steps: Vec<Step>,
    /// The end of each life but the last, which ends in order.
    pub cuts: Vec<Cut>,
    /// What pool disks do wrong.
    pub faults: Vec<Fault>,
    /// Service times of origins.
    pub origin_time: Span,
    /// Service times of the pool.
    pub pool_time: Span,
    /// The engine's limit for hits.
    pub hit_latency_max: Nanos,
    /// How often the engine brings its map up to date.
    pub commit_period: Nanos,
    /// Of these, after how many an unused mark goes.
    pub mark_idle_periods: u32,
}

/// How long cases are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// A script of 10 to 40 steps, with no cut of its own.
    Short,
    /// A script of 300 to 700 steps and up to five cuts, some during recovery.
    Long,
}

impl Case {
    /// The case of `seed`.
    pub fn new(seed: u64, length: Length) -> Case {
        let mut rng = Rng::fork(seed, 11);
        let rng = &mut rng;
        let block = Sectors(if rng.chance(0.6) { 1 } else { 8 });
        let volumes: Vec<_> = (0..rng.between(1, 3))
            .map(|_| Space {
                windows: rng.between(1, 4),
                each: rng.between(8, 64) * 8 + if rng.chance(0.2) { block.0 % 8 } else { 0 },
            })
            .collect();
        let line_bytes = 4096 << rng.below(5);
        let line = u64::from(line_bytes) / 512;
        let disks = rng.between(1, 4);
        let comings = match length {
            Length::Long => Comings::draw(rng, disks),
            Length::Short => Comings::Common,
        };
        // What a disk missed shows in a line that it kept and that no mark covers:
        // where disks come and go, lines stay, marks go soon, and writes are few.
        let is_calm = comings != Comings::Common;
        let all: u64 = volumes.iter().map(|v: &Space| v.windows * v.each).sum();
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
        let mut case = Case {
            seed,
            block,
            line_bytes,
            policy: policies[rng.below(policies.len() as u64) as usize].0,
            pool,
            clients: rng.between(1, 6),
            steps: Vec::new(),
            cuts: Vec::new(),
            faults: Vec::new(),
            origin_time: Span {
                min: Nanos::from_micros(20),
                max: Nanos::from_micros(rng.between(100, 1000)),
            },
            pool_time: Span {
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
            case.draw_cuts(rng, comings);
            if comings == Comings::Roaming {
                case.steps.retain(|step| !matches!(step, Step::Plug(_)));
            }
            if comings != Comings::Backup && rng.chance(0.4) {
                case.draw_faults(rng);
            }
        }
        case
    }

    fn step(&self, rng: &mut Rng, write_share: u64) -> Step {
        let volume = rng.below(self.volumes.len() as u64) as usize;
        let disk = rng.below(self.pool.len() as u64) as usize;
        match rng.below(1000) {
            0..12 => Step::Mode(
                volume,
                [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough][rng.below(3) as usize],
            ),
            12..24 => Step::Unplug(disk),
            24..40 => Step::Plug(disk),
            40..60 => Step::Pause(Nanos(rng.below(3_000_000))),
            60..85 => Step::Flush(volume),
            85..100 => Step::Zero(volume, self.place(rng, volume)),
            100..110 => Step::Discard(volume, self.place(rng, volume)),
            n if n - 110 < write_share * 9 => {
                Step::Write(volume, self.place(rng, volume), rng.chance(0.05))
            }
            _ => Step::Read(volume, self.place(rng, volume)),
        }
    }

    /// Small places, most of them in the hot quarter of a window, on the logical
    /// blocks.
    fn place(&self, rng: &mut Rng, volume: usize) -> Range<u64> {
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

    /// A step of a script takes about four disk steps; a cut beyond the end of a
    /// life finds it closed.
    fn draw_cuts(&mut self, rng: &mut Rng, comings: Comings) {
        let lives = match comings {
            Comings::Common => rng.between(1, 3),
            Comings::Roaming | Comings::Backup => rng.between(2, 4),
        };
        let each = self.steps.len() as u64 * 4 / lives;
        let disks = self.pool.len() as u64;
        for _ in 0..lives {
            let mut cut = |most| Cut {
                after: rng.between(1, most),
                loss: Loss::ALL[rng.below(4) as usize],
                disks: match comings {
                    Comings::Common if rng.chance(0.4) => Disks::Same,
                    Comings::Common | Comings::Backup => Disks::All,
                    Comings::Roaming => Disks::Only(rng.between(1, (1 << disks) - 1) as u8),
                },
                witness_back: comings == Comings::Backup && rng.chance(0.5),
            };
            let main = cut(each.max(2));
            self.cuts.push(main);
            // Again while the next life recovers.
            let recovery = [cut(60), cut(60), cut(30)];
            let times = rng.below(4) as usize;
            self.cuts.extend(&recovery[..times]);
        }
    }

    /// Not here: a pool disk that lies about flushes; see `docs/failure-model.md`.
    fn draw_faults(&mut self, rng: &mut Rng) {
        let media = Effect::Fail(Kind::Media);
        let late = Effect::Delay(Nanos(self.hit_latency_max.0 * rng.between(1, 3)));
        let kinds = [
            (Ops::Reads, media, 0.05),
            (Ops::Writes, media, 0.05),
            (Ops::Flushes, media, 0.05),
            (Ops::Reads, Effect::FlipBit, 0.05),
            (Ops::Writes, Effect::FlipBit, 0.05),
            (Ops::Writes, Effect::Drop, 0.03),
            (Ops::Writes, Effect::Misdirect, 0.03),
            (Ops::Writes, Effect::Ruin, 0.01),
            (Ops::All, late, 0.05),
            (Ops::All, Effect::Stick(None), 0.005),
        ];
        for disk in 0..self.pool.len() {
            for (ops, effect, most) in kinds {
                if rng.chance(0.2) {
                    let chance = most * rng.between(1, 100) as f64 / 100.0;
                    self.faults.push(Fault {
                        disk,
                        ops,
                        effect,
                        chance,
                    });
                }
            }
        }
    }

    /// Where a fault strikes. A disk that acknowledges a durable write of marks and has
    /// them nowhere is beyond what is promised; of all else that is found.
    fn struck(&self, fault: &Fault) -> Vec<Option<Extent>> {
        let line_blocks = self.line_bytes / layout::BLOCK_BYTES as u32;
        let len = self.pool[fault.disk];
        match (fault.effect, layout::Plan::new(len, line_blocks)) {
            (Effect::Drop | Effect::Misdirect, Ok(plan)) => {
                let marks = plan.marks.extent(Lba::ZERO);
                let before = Extent::new(Lba::ZERO, Sectors(marks.start.0));
                let after = Extent::new(marks.end(), Sectors(len.0 - marks.end().0));
                vec![Some(before), Some(after)]
            }
            _ => vec![None],
        }
    }

    /// What goes wrong in a life that begins after `steps` disk steps and ends
    /// with `cut`, if it does not end in order.
    pub(super) fn plan(&self, pool: &[TargetId], steps: u64, cut: Option<Cut>) -> Plan {
        let rule = |(fault, within): (&Fault, Option<Extent>)| Rule {
            disk: pool[fault.disk],
            ops: fault.ops,
            within,
            when: When::Chance(fault.chance),
            effect: fault.effect,
        };
        let rules = self.faults.iter().flat_map(|fault| {
            let within = self.struck(fault).into_iter();
            within.map(move |within| (fault, within))
        });
        let cuts = cut.into_iter().flat_map(|cut| {
            let at = Point::Step(steps + cut.after);
            let domains = cut.loss.domains().iter();
            domains.map(move |d| PowerCut {
                domain: Some(*d),
                at,
            })
        });
        Plan {
            rules: rules.map(rule).collect(),
            cuts: cuts.collect(),
            ..Plan::default()
        }
    }
}
