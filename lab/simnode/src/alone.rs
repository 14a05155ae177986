//! One shard in a simulated world.

use block::ShardId;
use shard::{Config, Local, Mesh, Shard};
use sim::{RunOutcome, SimDriver, SimHost};
use std::cell::RefCell;
use std::rc::Rc;

/// Runs `work` on the only shard of `sim`. Returns the end of the run, and the result of `work`
/// unless the run ended first.
pub fn run_alone<T, F>(
    sim: &mut SimHost,
    work: impl FnOnce(Local<SimDriver>) -> F + 'static,
) -> (RunOutcome, Option<T>)
where
    T: 'static,
    F: Future<Output = T> + 'static,
{
    let work = RefCell::new(Some(work));
    let result = Rc::new(RefCell::new(None));
    let outcome = sim.drive(1, |_, driver| {
        let outcome = result.clone();
        let work = work.take().expect("one shard, booted once");
        let mesh = Mesh::new(1);
        Shard::boot(ShardId(0), driver, mesh, Config::default(), |local| {
            let working = work(local);
            async move { *outcome.borrow_mut() = Some(working.await) }
        })
    });
    let came = result.take();
    (outcome, came)
}
