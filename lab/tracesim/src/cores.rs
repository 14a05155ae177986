//! Independent pieces of work over all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `work` for `0 .. count` in order, `threads` at a time; the
/// first failure that was seen if there is one. `done` is called after each,
/// from any thread.
pub(crate) fn spread<T: Send, E: Send>(
    count: usize,
    threads: usize,
    done: &(dyn Fn() + Sync),
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((0..count).map(|_| None).collect::<Vec<_>>());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    match work(at) {
                        Ok(row) => results.lock().expect("no panic holds it")[at] = Some(row),
                        Err(e) => {
                            // The results of further work would not be used.
                            next.store(count, Ordering::Relaxed);
                            *failure.lock().expect("no panic holds it") = Some(e);
                        }
                    }
                    done();
                }
            });
        }
    });
    if let Some(e) = failure.into_inner().expect("no thread is left") {
        return Err(e);
    }
    let results = results.into_inner().expect("no thread is left");
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_a_failure_is_reported() {
        let squares = spread(100, 4, &|| (), |i| Ok::<_, ()>(i * i)).unwrap();
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
        let failed = spread(100, 4, &|| (), |i| if i == 50 { Err(i) } else { Ok(i) });
        assert_eq!(failed, Err(50));
        assert_eq!(spread(0, 4, &|| (), Ok::<_, ()>), Ok(vec![]));
    }
}
