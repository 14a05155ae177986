//! Hits of a policy as the live engine calls it, for an instruction counter:
//! `policy_hits HITS POLICY`. The difference of two runs, divided by the
//! difference of their hits, is the cost of one hit.

use policy::{Instruction, Key, Policy, Request, Unpinned, registry};

/// Slots of the pool: 26 GiB in lines of 64 KiB.
const SLOTS: u32 = 415_396;
const RESIDENT: u64 = 40_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [hits, name] = args.as_slice() else {
        panic!("usage: policy_hits HITS POLICY");
    };
    let hits: u64 = hits.parse().expect("a number of hits");
    let mut policy: Box<dyn Policy> = registry::build(name, SLOTS, 1).expect("a policy's name");
    let request = Request {
        len_bytes: 4096,
        ..Request::default()
    };
    for line in 0..RESIDENT {
        policy.access(Key(line << 3), &request, &Unpinned);
    }
    let mut x = 1u64;
    for _ in 0..hits {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = Key(((x >> 33) % RESIDENT) << 3);
        let answer = policy.access(key, &request, &Unpinned);
        assert!(matches!(answer, Instruction::Hit(_)), "{key:?} is resident");
    }
}
