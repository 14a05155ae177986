//! `arrays OPS disk|LEVEL read|write [MEMBERS]`: 4 KiB requests to an array whose
//! members complete at once; run under an instruction counter.

use measurements::bench::arrays;
use raid::Level;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|arg| arg.parse().ok());
    let named = |level: &&Level| args.get(1).is_some_and(|name| level.name() == name);
    let level = Level::ALL.iter().find(named).copied();
    let members = level.map(|level| (level, number(3).unwrap_or(4) as u32));
    let write = args.get(2).is_some_and(|verb| verb == "write");
    arrays::requests(number(0).unwrap_or(1_000_000), members, write);
}
