//! A load and its node, for two uses: another choice is tried on them ([`crate::choices`]), or the
//! clients' requests are recorded ([`crate::record`]).

use crate::parameters::OnMachine;
use crate::rig::{self, Disks, NodeRig};
use crate::visitors::VisitCurve;
use block::Nanos;
use control::config::Config;
use sim::SimWorld;

/// The place of the observation of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlace {
    /// The volumes that clients ask; the first is observed.
    pub volumes: &'static [&'static str],
    /// Time of the first run at which the size of the pool is asked for.
    pub advised_after: Nanos,
}

/// Requests to volumes, and the disks of the volumes.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Load: OnMachine + Copy + 'static {
    /// Place of the observation.
    fn place(&self) -> LoadPlace;

    /// The published machine, as a configuration.
    const PUBLISHED: &'static str;

    /// The configuration with the cache, if there is one.
    fn topology(&self) -> String;

    /// The same with so much of its flash.
    fn with_flash(self, percent: u64) -> Self;

    /// The disks that differ from the `model` of their device, with their service times in `world`.
    fn below(self, seed: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String>;

    /// Runs `work` on a node with the configuration `text`; returns the result, and the simulated
    /// time.
    fn on_node<T: 'static>(
        mut self,
        seed: u64,
        text: &str,
        work: impl AsyncFnOnce(NodeRig) -> Result<T, String> + 'static,
    ) -> Result<(T, Nanos), String> {
        let config = rig::topology(&self.machine().put(text, Self::PUBLISHED)?)?;
        let mut world = SimWorld::new(seed);
        let mut below = self.below(seed, &config, &mut world)?;
        if self.machine().topology.is_some() {
            // The part of its capacity that flash has in the load stays.
            let published = rig::topology(text)?;
            let scratch = &mut SimWorld::new(seed);
            let sizes = self.below(seed, &published, scratch)?;
            rig::share_flash((&published, &sizes), (&config, &mut below))?;
        }
        rig::run_on(world, config, &below, work)
    }

    /// Runs the load on the content that `seed` has laid out, in the ways that `ways` draws.
    async fn work(self, rig: &mut NodeRig, seed: u64, ways: u64) -> Result<VisitCurve, String>;
}
