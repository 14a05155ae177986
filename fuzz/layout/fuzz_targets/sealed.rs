#![no_main]
//! Every decoder of the write-back log, its journal and arrays, on blocks that claim to be of its
//! kind.

#[path = "../../../crates/layout/tests/suite/sealed/decoders.rs"]
mod decoders;

use decoders::{Kind, is_taken, seal};
use layout::BLOCK_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let kind = Kind::ALL[usize::from(*kind) % Kind::ALL.len()];
    let mut block = data.to_vec();
    block.resize(BLOCK_BYTES, 0);
    is_taken(kind, &block);
    seal(kind, &mut block);
    is_taken(kind, &block);
});
