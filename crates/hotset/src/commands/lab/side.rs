//! Work that runs side by side, one thread a processor.

use crate::Failure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does all `jobs`, each begun in order; nothing more is begun after a failure.
pub fn by_side<T: Sync>(
    jobs: &[T],
    work: impl Fn(&T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
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
