//! Who an origin is, and that it is not another's.

mod file_systems;
mod guard;
