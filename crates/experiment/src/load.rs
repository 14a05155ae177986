//! A load and the node that it runs on, for whatever is done with both: another choice is
//! tried on them ([`crate::choices`]), or what clients ask is recorded ([`crate::record`]).

use crate::rig::{self, Disks, Rig};
use crate::visitors::Curve;
use block::Nanos;
use control::config::Config;
use sim::World;

/// Where a load is to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The volumes that clients ask; the first is observed.
    pub volumes: &'static [&'static str],
    /// When it is asked what the size of the pool should be, of the first time.
    pub advised_after: Nanos,
}

/// What is asked of volumes, and what they lie on.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Load: Copy + 'static {
    /// Where to look.
    fn place(&self) -> Place;

    /// The configuration with the cache, if it has one.
    fn topology(&self) -> String;

    /// The same with so much of its flash.
    fn with_flash(self, percent: u64) -> Self;

    /// The disks that are not what the `model` of their device alone says, and what paces them
    /// in `world`.
    fn below(self, seed: u64, config: &Config, world: &mut World) -> Result<Disks, String>;

    /// Runs `work` on a node as `text` has it: what it came to, and the simulated time.
    fn on_node<T: 'static>(
        self,
        seed: u64,
        text: &str,
        work: impl AsyncFnOnce(Rig) -> Result<T, String> + 'static,
    ) -> Result<(T, Nanos), String> {
        let config = rig::topology(text)?;
        let mut world = World::new(seed);
        let below = self.below(seed, &config, &mut world)?;
        rig::run_on(world, config, &below, work)
    }

    /// Lets it run on what `seed` has laid out, in the ways that `ways` draws.
    async fn work(self, rig: &mut Rig, seed: u64, ways: u64) -> Result<Curve, String>;
}
