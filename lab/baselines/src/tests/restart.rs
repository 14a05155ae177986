//! The loss by a restart: under three points of hit ratio, if lines and learned state are carried
//! over. A pool that starts empty shows that the load can distinguish them.

use crate::registry;
use policy::{
    Heat, Instruction, LineKey, LineParts, Policy, PolicyOp, PolicyRequest, SlotNumber, Unpinned,
};

const POOL: u32 = 3000;

/// A skewed load over 12,000 lines mixed with a scan, from a fixed seed.
fn run(policy: &mut dyn Policy, state: &mut u64, accesses: u64) -> f64 {
    let mut hits = 0;
    for i in 0..accesses {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let r = *state >> 33;
        let unit = (r % 10_000) as f64 / 10_000.0;
        let key = match r % 4 {
            0 => 1_000_000 + *state % 1_000_000,
            _ => (unit.powi(4) * 12_000.0) as u64,
        };
        let request = PolicyRequest {
            op: if i % 5 == 0 {
                PolicyOp::Write
            } else {
                PolicyOp::Read
            },
            len_bytes: if r.is_multiple_of(4) { 65_536 } else { 4096 },
            ..PolicyRequest::default()
        };
        let answer = policy.access(LineKey(key), &request, &Unpinned);
        hits += u64::from(matches!(answer, Instruction::Hit(_)));
    }
    hits as f64 / accesses as f64
}

#[test]
fn a_restart_forgets_next_to_nothing() {
    for name in registry::POLICIES {
        let build = || registry::build(name, POOL, 1).expect("registered");
        let mut old = build();
        let mut state = 5;
        run(&mut *old, &mut state, 60_000);
        let mut new = build();
        assert!(new.restore(&old.save()));
        let mut lines = Vec::new();
        old.export(&mut |key, slot, heat| lines.push((key, slot, heat)));
        for (key, slot, heat) in &lines {
            assert!(new.adopt(*key, *slot, *heat, LineParts::WHOLE));
        }
        new.check();
        let mut again = Vec::new();
        new.export(&mut |key, slot, heat| again.push((key, slot, heat)));
        if name.starts_with("w-tinylfu") {
            // The sketch only estimates uses.
            for line in lines.iter_mut().chain(&mut again) {
                line.2 = Heat::default();
            }
        }
        assert_eq!(lines, again, "{name} exports what it did not adopt");
        let (mut there, mut here, mut empty) = (state, state, state);
        let kept = run(&mut *old, &mut there, 4000);
        let restarted = run(&mut *new, &mut here, 4000);
        let emptied = run(&mut *build(), &mut empty, 4000);
        println!("{name}: {kept:.3} without, {restarted:.3} after a restart, {emptied:.3} empty");
        assert!(
            restarted > kept - 0.03,
            "{name}: {restarted} after, {kept} before"
        );
        assert!(
            emptied < kept - 0.1,
            "{name}: the load does not distinguish them"
        );
    }
}

#[test]
fn lines_of_one_policy_can_be_adopted_by_another() {
    let mut old = registry::build("auto", POOL, 1).expect("registered");
    run(&mut *old, &mut 5, 60_000);
    let mut lines: Vec<(LineKey, SlotNumber, Heat)> = Vec::new();
    old.export(&mut |key, slot, heat| lines.push((key, slot, heat)));
    for name in registry::POLICIES {
        let mut new = registry::build(name, POOL, 1).expect("registered");
        for (key, slot, heat) in &lines {
            assert!(new.adopt(*key, *slot, *heat, LineParts::WHOLE));
        }
        new.check();
        run(&mut *new, &mut 6, 5000);
        new.check();
    }
}
