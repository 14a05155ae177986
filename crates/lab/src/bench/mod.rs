//! Measurements beside peers, paired and repeated.

pub mod nop;
