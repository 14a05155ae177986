//! `memory LINE_BYTES [--quick]`: what a pool costs in memory, as JSON, counted
//! by this program's allocator; run by `bench`.

use block::Sectors;
use lab::bench::memory::{Plan, measure};
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let line = arguments
        .next()
        .ok_or("usage: memory LINE_BYTES [--quick]")?;
    let quick = arguments.next().is_some_and(|a| a == "--quick");
    let plan = Plan {
        line_bytes: line.parse()?,
        pool: Sectors::from_mib(if quick { 256 } else { 16 << 10 }),
        warming: if quick { 100_000 } else { 12_000_000 },
        counted: if quick { 50_000 } else { 2_000_000 },
    };
    let measured = measure(plan, || LIVE_BYTES.load(Relaxed));
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}
