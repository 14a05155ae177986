//! The processors that threads run on: a shard stays on its own, and its memory is near that.
//!
//! A thread inherits the processors of the thread that begins it. So work aside, which takes its
//! time, first returns to those of the process.

use std::cell::Cell;
use std::io;
use std::mem::size_of;
use std::sync::OnceLock;

/// The processors of the process before its first shard stayed on one.
static ALL: OnceLock<libc::cpu_set_t> = OnceLock::new();

thread_local! {
    /// True if this thread uses the processors of the process.
    static FREE: Cell<bool> = const { Cell::new(false) };
}

/// Has the calling thread, that of `shard`, stay on `processor`. Where the kernel refuses, `say`
/// gets a line, and the shard runs on any.
pub(crate) fn stay_on(processor: u32, shard: u32, say: fn(&str)) {
    if let Err(cause) = stay(processor) {
        say(&format!(
            "shard {shard} runs on any processor: processor {processor} is offline, not there, or \
             not for this process ({cause}); change `shards` of [daemon]"
        ));
    }
}

fn stay(processor: u32) -> io::Result<()> {
    let all = current()?;
    ALL.get_or_init(|| all);
    let mut one = none();
    let bits = 8 * size_of::<libc::cpu_set_t>();
    if processor as usize >= bits {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the bit is within `one`, as was just checked.
    unsafe { libc::CPU_SET(processor as usize, &mut one) };
    set(&one)
}

/// Has the calling thread use the processors of the process again, if a shard stays on one.
pub(crate) fn use_any() {
    if let Some(all) = ALL.get()
        && !FREE.replace(true)
    {
        // A thread that stays where it is does its work all the same.
        let _ = set(all);
    }
}

fn none() -> libc::cpu_set_t {
    // SAFETY: a set of processors is plain bits, all of which may be zero.
    unsafe { std::mem::zeroed() }
}

fn current() -> io::Result<libc::cpu_set_t> {
    let mut set = none();
    // SAFETY: the kernel fills at most the given size of `set`; 0 is the calling thread.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if got == 0 {
        Ok(set)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set(processors: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the kernel reads the given size of `processors`; 0 is the calling thread.
    let set = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside;

    fn count() -> i32 {
        // SAFETY: `current` gave a whole set.
        unsafe { libc::CPU_COUNT(&current().unwrap()) }
    }

    fn first() -> u32 {
        let set = current().unwrap();
        // SAFETY: each index is within the set.
        let has = |at: &u32| unsafe { libc::CPU_ISSET(*at as usize, &set) };
        (0..1024).find(has).unwrap()
    }

    /// One test, for the process has one set of processors.
    #[test]
    fn a_shard_stays_on_its_processor_and_work_aside_does_not() {
        let all = count();
        let shard = std::thread::spawn(move || {
            stay_on(first(), 0, |line| panic!("{line}"));
            assert_eq!(count(), 1);
            assert!(stay(1023).is_err() && stay(4096).is_err());
            let (sender, receiver) = std::sync::mpsc::channel();
            let work = aside::begin("test", move || sender.send(count()).unwrap());
            let seen = receiver.recv().unwrap();
            drop(work);
            assert_eq!(count(), 1);
            seen
        });
        assert_eq!(shard.join().unwrap(), all);
    }
}
