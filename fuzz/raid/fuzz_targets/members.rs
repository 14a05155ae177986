#![no_main]
//! Arrays with patched superblocks, maps and journals of their members, with right checksums:
//! assembled and used.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../crates/raid/tests/suite/common.rs"]
mod common;
#[path = "../../../crates/raid/tests/suite/patched.rs"]
mod patched;

use libfuzzer_sys::fuzz_target;
use patched::{Patch, survivors};
use raid::Level;

fn patch(bytes: &[u8; 13]) -> Patch {
    let [member, block, a, b, bytes, value @ ..] = *bytes;
    Patch {
        member,
        block,
        at: u16::from_le_bytes([a, b]),
        bytes: bytes % 8 + 1,
        value: u64::from_le_bytes(value),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let level = Level::ALL[usize::from(kind >> 1) % Level::ALL.len()];
    let patches = data.as_chunks().0.iter().map(patch).collect();
    survivors(level, vec![(patches, kind & 1 == 1)]);
});
