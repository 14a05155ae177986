//! `memory LINE_BYTES [--quick]`: memory of a pool, as JSON, counted by this program's allocator;
//! run by `bench`.

use block::Sectors;
use measurements::bench::memory::{MemoryPlan, measure};
use testbed::counting::{Counting, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let line = arguments
        .next()
        .ok_or("usage: memory LINE_BYTES [--quick]")?;
    let quick = arguments.next().is_some_and(|a| a == "--quick");
    let plan = MemoryPlan {
        line_bytes: line.parse()?,
        pool: Sectors::from_mib(if quick { 256 } else { 16 << 10 }),
        warming: if quick { 100_000 } else { 12_000_000 },
        counted: if quick { 50_000 } else { 2_000_000 },
    };
    let measured = measure(plan, live_bytes);
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}
