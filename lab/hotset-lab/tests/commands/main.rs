//! The laboratory's commands, in their quick forms.

mod bounded_memory;
mod common;
mod drill;
mod experiments;
mod live;
mod manual;
mod sim;
mod stack;
mod storm;
mod trace;
