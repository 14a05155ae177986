//! The promises of the default beyond the invariants: scans do not flush the hot set, a working set
//! that moves is followed, and lines have the time to fill.

use crate::{Instruction, LineKey, LineParts, Policy, PolicyRequest, Unpinned, registry};

const POOL: u32 = 4000;

struct Load {
    policy: Box<dyn Policy>,
    state: u64,
}

impl Load {
    fn new(name: &str) -> Load {
        Load {
            policy: registry::build(name, POOL, 1).expect("registered"),
            state: 9,
        }
    }

    fn access(&mut self, key: u64) -> bool {
        let answer = self
            .policy
            .access(LineKey(key), &PolicyRequest::default(), &Unpinned);
        matches!(answer, Instruction::Hit(_))
    }

    /// One access to a random line of `from .. from + len`.
    fn random(&mut self, from: u64, len: u64) -> bool {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.access(from + (self.state >> 33) % len)
    }
}

/// The hit ratio that a hot set of half the pool loses while a scan of ten pools
/// passes, one line of the scan for each hot access.
fn lost_to_a_scan(name: &str) -> f64 {
    let mut load = Load::new(name);
    let hot = u64::from(POOL / 2);
    for _ in 0..hot * 20 {
        load.random(0, hot);
    }
    let scan = u64::from(POOL) * 10;
    let mut hits = 0;
    for i in 0..scan {
        load.access(1_000_000 + i);
        hits += u64::from(load.random(0, hot));
    }
    1.0 - hits as f64 / scan as f64
}

#[test]
fn a_scan_does_not_flush_the_hot_set() {
    let lost = lost_to_a_scan("auto");
    println!("auto loses {lost:.4}, lru {:.4}", lost_to_a_scan("lru"));
    assert!(lost < 0.02, "{lost}");
}

#[test]
fn a_working_set_that_moves_is_followed() {
    let mut load = Load::new("auto");
    let len = u64::from(POOL / 2);
    for _ in 0..len * 40 {
        load.random(0, len);
    }
    for i in 0..u64::from(POOL) {
        load.access(500_000 + i);
    }
    let mut accesses = 0u64;
    let mut recent = 0.0f64;
    while recent < 0.9 && accesses < len * 100 {
        let hit = load.random(1_000_000, len);
        recent += (f64::from(u8::from(hit)) - recent) / 500.0;
        accesses += 1;
    }
    println!(
        "90% after {:.1} accesses a line of the new set",
        accesses as f64 / len as f64
    );
    assert!(accesses < len * 10, "{accesses}");
}

/// A pool that gets its devices after its creation, as the engine's does, is no worse than one made
/// at its size; nor is a pool that was larger and shrank.
#[test]
fn a_pool_may_grow_and_shrink() {
    let hit_ratio = |mut load: Load| {
        let mut hits = 0;
        for i in 0..120_000u64 {
            let hit = if i % 3 == 0 {
                load.access(1_000_000 + i)
            } else {
                load.random(0, 3 * u64::from(POOL) / 2)
            };
            hits += u64::from(hit && i >= 60_000);
        }
        hits as f64 / 60_000.0
    };
    let resized = |from: u32, to: u32| {
        let mut load = Load::new("auto");
        load.policy = registry::build("auto", from, 1).expect("registered");
        if from < to {
            load.policy.grow(to);
        } else {
            for i in 0..u64::from(from) {
                load.access(2_000_000 + i);
            }
            load.policy.retire(to..from);
        }
        load.policy.check();
        hit_ratio(load)
    };
    let built = hit_ratio(Load::new("auto"));
    let (grown, shrunk) = (resized(0, POOL), resized(10 * POOL, POOL));
    println!("built {built:.3}, grown {grown:.3}, shrunk {shrunk:.3}");
    assert!(grown > built - 0.02 && shrunk > built - 0.02);
}

/// A pool of lines that reads fill, in eighths.
struct Filled {
    load: Load,
    /// Parts of its line in each slot.
    held: Vec<LineParts>,
    /// True if the policy hears of the parts that a read touches; otherwise each read counts for
    /// the whole line.
    in_parts: bool,
}

impl Filled {
    fn new(in_parts: bool) -> Filled {
        Filled {
            load: Load::new("auto"),
            held: vec![LineParts::NONE; POOL as usize],
            in_parts,
        }
    }

    /// Reads a random eighth of a random line of `from .. from + len`. Returns true if the part was
    /// there.
    fn read(&mut self, from: u64, len: u64) -> bool {
        let state = self.load.state.wrapping_mul(6_364_136_223_846_793_005);
        self.load.state = state.wrapping_add(1);
        let drawn = self.load.state >> 33;
        let touched = LineParts::of((drawn % 8) as u32, 1, 3);
        let request = PolicyRequest {
            parts: if self.in_parts {
                touched
            } else {
                LineParts::WHOLE
            },
            ..PolicyRequest::default()
        };
        let key = LineKey(from + drawn / 8 % len);
        match self.load.policy.access(key, &request, &Unpinned) {
            Instruction::Hit(slot) => {
                let held = &mut self.held[slot.0 as usize];
                let found = held.cover(touched);
                *held = held.with(touched);
                found
            }
            Instruction::Admit(slot) | Instruction::Replace { slot, .. } => {
                self.held[slot.0 as usize] = touched;
                false
            }
            Instruction::Bypass(_) => false,
        }
    }
}

/// Of the lines of three pools, each read as often as the others, the pool can hold a third, if its
/// lines are left to fill.
#[test]
fn lines_that_fill_stay() {
    let found = |in_parts| {
        let mut pool = Filled::new(in_parts);
        let lines = 3 * u64::from(POOL);
        let reads = |count, pool: &mut Filled| (0..count).filter(|_| pool.read(0, lines)).count();
        reads(30 * lines, &mut pool);
        reads(5 * lines, &mut pool) as f64 / (5 * lines) as f64
    };
    let (in_parts, whole) = (found(true), found(false));
    println!("{in_parts:.3} of the reads found, {whole:.3} by who takes lines for full");
    assert!(in_parts > 0.28 && whole < 0.2, "{in_parts} {whole}");
}

/// Full lines without use make room for empty ones in use.
#[test]
fn full_lines_out_of_use_make_room() {
    let mut pool = Filled::new(true);
    let len = u64::from(POOL / 2);
    for from in [0, 500_000] {
        for _ in 0..len * 100 {
            pool.read(from, len);
        }
    }
    let (mut accesses, mut recent) = (0u64, 0.0f64);
    while recent < 0.9 && accesses < len * 1000 {
        let found = pool.read(1_000_000, len);
        recent += (f64::from(u8::from(found)) - recent) / 500.0;
        accesses += 1;
    }
    let reads = accesses as f64 / len as f64;
    println!("90% after {reads:.1} reads a line of eight parts");
    assert!(reads < 60.0, "{reads}");
}

/// An access to a resident line is the same, with its place or without.
#[test]
fn a_line_is_touched_the_same_where_its_place_is_known() {
    for name in registry::POLICIES {
        let (mut placed, mut asked) = (Load::new(name), Load::new(name));
        for i in 0..200_000u64 {
            let key = LineKey(crate::mix(i) % u64::from(POOL) * (1 + i % 3));
            let request = PolicyRequest::default();
            let answer = asked.policy.access(key, &request, &Unpinned);
            match placed.policy.peek(key) {
                Some(slot) => {
                    placed.policy.touch_resident(slot, key, &request);
                    assert_eq!(answer, Instruction::Hit(slot), "{name}, access {i}");
                }
                None => assert_eq!(placed.policy.access(key, &request, &Unpinned), answer),
            }
        }
    }
}
