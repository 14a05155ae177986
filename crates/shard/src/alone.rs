//! A program of one shard.

use crate::{Config, Local, Mesh, Shard};
use block::{Host, IoError, IoErrorKind, IoResult};
use std::sync::{Arc, Mutex};

/// Runs `work` on the only shard of `host`, and returns its result.
///
/// Errors: those of [`Host::run`]; `Gone` if the host ended first.
pub fn run_alone<H, T, F>(
    host: &mut H,
    work: impl FnOnce(Local<H::Driver>) -> F + Send + 'static,
) -> IoResult<T>
where
    H: Host,
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let mesh = Mesh::new(1);
    let work = Mutex::new(Some(work));
    let result = Arc::new(Mutex::new(None));
    let outcome = result.clone();
    host.run(1, move |id, driver| {
        let outcome = outcome.clone();
        let work = work.lock().expect("no panic under this lock").take();
        let work = work.expect("one shard, booted once");
        Shard::boot(id, driver, mesh.clone(), Config::default(), |local| {
            let working = work(local);
            async move {
                let came = working.await;
                *outcome.lock().expect("no panic under this lock") = Some(came);
            }
        })
    })?;
    let result = result.lock().expect("no panic under this lock").take();
    result.ok_or_else(|| IoError::new(IoErrorKind::Gone, "the host ended before its program"))
}
