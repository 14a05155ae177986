//! Work that threads share.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Has `threads` threads do the numbers below `count`, each number once. A thread begins with a
/// state of its own, and returns the state. The first error ends the work of all.
pub fn share<S: Send>(
    threads: usize,
    count: usize,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> io::Result<()> + Sync,
) -> io::Result<Vec<S>> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let thread = || {
        let mut state = begin();
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= count {
                return state;
            }
            if let Err(error) = work(&mut state, number) {
                next.store(count, Relaxed);
                let mut failed = failed.lock().expect("no panic under this lock");
                failed.get_or_insert(error);
            }
        }
    };
    let states = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let states: Result<Vec<S>, _> = ended.collect();
        states.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    match failed.into_inner().expect("no panic under this lock") {
        Some(error) => Err(error),
        None => Ok(states),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_done_once_until_the_first_error() {
        let all = share(3, 100, Vec::new, |done: &mut Vec<usize>, number| {
            done.push(number);
            Ok(())
        });
        let mut all = all.unwrap().concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let begun = AtomicUsize::new(0);
        let failed = share(
            1,
            100,
            || (),
            |(), number| {
                begun.fetch_add(1, Relaxed);
                match number {
                    7 => Err(io::Error::other("seven")),
                    _ => Ok(()),
                }
            },
        );
        assert_eq!(failed.unwrap_err().to_string(), "seven");
        assert_eq!(begun.into_inner(), 8);
    }
}
