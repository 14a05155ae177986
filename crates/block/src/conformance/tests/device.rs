//! The device suite and its canaries.

use super::caught;
use super::clock::block_on;
use super::memory::{Flaw, Memory};
use crate::BoxDevice;
use crate::conformance::device;

const POOL: usize = 16 << 20;

fn run(block: u64, flaw: Flaw, seed: u64) {
    block_on(POOL, async |env| {
        let memory = Memory::new(&env, 8, block, flaw);
        device(&memory, &env, seed).await;
    });
}

#[test]
fn a_sound_device_passes() {
    for seed in 0..4 {
        run(1, Flaw::None, seed);
        run(8, Flaw::None, seed);
    }
}

#[test]
fn it_passes_boxed_and_with_the_least_pool_and_size() {
    block_on(4 << 20, async |env| {
        let memory = Memory::new(&env, 2, 8, Flaw::None);
        device(&BoxDevice::new(memory), &env, 9).await;
    });
}

#[test]
fn every_flaw_is_caught() {
    for (flaw, message) in [
        (Flaw::LosesAWrite, "must hold"),
        (Flaw::MisplacesByOneSector, "must hold"),
        (Flaw::LeaksABuffer, "never came back to the pool"),
        (Flaw::GapInExtents, "extents of"),
        (Flaw::CallsDataAHole, "holds data"),
        (Flaw::ClearsBeforeWriting, "neither version"),
        (Flaw::IgnoresBounds, "succeeds"),
        (Flaw::IgnoresAlignment, "succeeds"),
        (Flaw::ZeroesTooLittle, "must hold zeroes"),
        (Flaw::ZeroesAfterAnswering, "must hold"),
        (Flaw::ReturnsAnotherBuffer, "another buffer"),
        (Flaw::KeepsWrittenData, "keeps its data"),
        (Flaw::LandsTwice, "must hold"),
        (Flaw::StartsUnpolled, "futures never polled"),
    ] {
        for seed in 0..2 {
            caught(message, || run(8, flaw, seed));
        }
    }
}
