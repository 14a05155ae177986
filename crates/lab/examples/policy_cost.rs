//! `policy_cost accesses|memory POLICY`: what accesses to a full pool took, as
//! JSON, to be run under an instruction counter; or the bytes of a line, counted
//! by this program's allocator. Run by `bench`.

use lab::bench::policy::{Subject, bytes_per_line};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: forwards every call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above; `at` came from `System.alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Accesses that are counted, and before those as many that are not.
const ACCESSES: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["accesses", policy] => {
            let cost = Subject::new(policy, ACCESSES).access(ACCESSES);
            println!("{}", serde_json::to_string(&cost)?);
        }
        ["memory", policy] => {
            println!("{}", bytes_per_line(policy, || LIVE_BYTES.load(Relaxed)));
        }
        _ => return Err("usage: policy_cost accesses|memory POLICY".into()),
    }
    Ok(())
}
