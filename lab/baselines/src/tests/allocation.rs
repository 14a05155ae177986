//! No access allocates once a policy is built.

use crate::registry;
use policy::{LineKey, PolicyOp, PolicyRequest, Unpinned};
use testbed::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_access_allocates() {
    for name in registry::POLICIES.iter().chain(registry::RULES) {
        let mut policy = registry::build(name, 1000, 1).expect("registered");
        let before = allocations();
        let mut x = 1u64;
        for i in 0..100_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = if i % 3 == 0 { i } else { (x >> 40) % 3000 };
            let request = PolicyRequest {
                op: if x & 1 == 0 {
                    PolicyOp::Read
                } else {
                    PolicyOp::Write
                },
                len_bytes: 4096,
                ..PolicyRequest::default()
            };
            policy.access(LineKey(key), &request, &Unpinned);
            if i % 1000 == 0 {
                policy.remove(LineKey(key));
            }
        }
        assert_eq!(allocations(), before, "{name} allocated");
    }
}
