//! The devices that come with hotset: one definition each, every number labelled
//! with its basis and its source.

pub mod hdd;
