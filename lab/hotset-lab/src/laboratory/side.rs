//! Work that runs side by side, one thread a processor.

use crate::CommandFailure;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` for each of so many variants with each of so many seeds; returns the results by
/// variant.
pub fn each<T: Send>(
    variants: usize,
    seeds: u64,
    work: impl Fn(usize, u64) -> Result<T, CommandFailure> + Sync,
) -> Result<Vec<Vec<T>>, CommandFailure> {
    let jobs = (0..variants).flat_map(|variant| (0..seeds).map(move |n| (variant, n)));
    let jobs: Vec<(usize, u64)> = jobs.collect();
    let came = Mutex::new(BTreeMap::new());
    by_side(&jobs, |(variant, n)| {
        let ended = work(*variant, *n)?;
        let mut came = came.lock().expect("nobody panics");
        came.insert((*variant, *n), ended);
        Ok(())
    })?;
    let mut by_variant: Vec<Vec<T>> = (0..variants).map(|_| Vec::new()).collect();
    for ((variant, _), ended) in came.into_inner().expect("nobody panics") {
        by_variant[variant].push(ended);
    }
    Ok(by_variant)
}

/// Does all `jobs`, each begun in order; nothing more is begun after a failure.
pub fn by_side<T: Sync>(
    jobs: &[T],
    work: impl Fn(&T) -> Result<(), CommandFailure> + Sync,
) -> Result<(), CommandFailure> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = work(job) {
                        next.store(jobs.len(), Ordering::Relaxed);
                        let mut failed = failed.lock().expect("nobody panics");
                        failed.get_or_insert(failure);
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("nobody panics") {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}
