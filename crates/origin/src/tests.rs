//! The identity of origins, and changes by others.

mod file_systems;
mod guard;
