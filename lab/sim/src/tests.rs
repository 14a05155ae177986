//! The simulated world.

mod chaos;
mod conformance;
mod durability;
mod faults;
mod hand;
mod losses;
mod plan;
mod ports;
mod streams;
mod world;
