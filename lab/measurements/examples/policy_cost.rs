//! `policy_cost accesses|memory POLICY`: the cost of accesses to a full pool, as JSON, to be run
//! under an instruction counter; or the bytes of a line, counted by this program's allocator. Run
//! by `bench`.

use measurements::bench::policy::{PolicySubject, bytes_per_line};
use testbed::counting::{Counting, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Accesses that are counted, and before those as many that are not.
const ACCESSES: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["accesses", policy] => {
            let cost = PolicySubject::new(policy, ACCESSES).access(ACCESSES);
            println!("{}", serde_json::to_string(&cost)?);
        }
        ["memory", policy] => {
            println!("{}", bytes_per_line(policy, live_bytes));
        }
        _ => return Err("usage: policy_cost accesses|memory POLICY".into()),
    }
    Ok(())
}
