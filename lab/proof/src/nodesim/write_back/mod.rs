//! A write-back volume in whole nodes, life after life: killed, cut from the power, paused, with
//! devices that are away, damaged, restored from images or exchanged, and metadata that cannot be
//! written. After each life all but its origin, and its journal, counts as destroyed.
//!
//! A case passes if
//!
//! - every byte that is read is allowed by a model that knows no log;
//! - the origin alone is an earlier state, or, with a log without order, each of its sectors is;
//! - one fault at a time costs no service and no request;
//! - two faults at a time are loud: the volume is refused, or reads of lost sectors fail;
//! - a refused attempt has written nothing, and once the fault is mended all is there.
//!
//! The campaign of `writeback` tests the engine at each of its steps. This one adds the engine's
//! superblocks, its witness and the cache behind the log.

mod client;
mod harm;
mod life;
mod outside;
mod report;

use crate::campaign::Campaign;
pub use report::{Class, Report};
use sim::SimRng;
use writelog::Cleaning;

const LIVES: u64 = 6;

fn lives(seed: u64) -> Report {
    let rng = &mut SimRng::fork(seed, 1);
    let cleaning = Cleaning::ALL[rng.below(3) as usize];
    let (outside, mut sim) = outside::new(seed, cleaning);
    let mut harms = harm::Harms::new(outside.clone(), SimRng::fork(seed, 2));
    for number in 0..LIVES {
        let damage = harms.befall(&mut sim, number);
        if outside.has_failed() {
            break;
        }
        let last = number == LIVES - 1;
        life::one(&outside, &mut sim, number, last, damage.as_ref());
        harms.mend(damage);
        if outside.has_failed() {
            break;
        }
    }
    outside.report.take()
}

/// The campaign of write-back volumes in whole nodes.
pub struct LivesCampaign;

impl Campaign for LivesCampaign {
    type Class = Class;

    fn case(&self, seed: u64) -> Report {
        lives(seed)
    }

    fn replay(&self, seed: u64) -> String {
        format!("cargo run -p proof --example node -- --write-back --seeds 1 --start {seed}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }
}
