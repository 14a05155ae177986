//! The commands, beside `serve`.

pub mod advise;
pub mod array;
pub mod attach;
pub mod check;
pub mod daemon;
pub mod documents;
pub mod drill;
pub mod elsewhere;
pub mod explain;
mod format;
pub mod init;
mod inspect;
pub mod job;
pub mod pool;
mod recover;
pub mod reload;
pub mod status;
pub mod support;
mod text;
pub mod top;
pub mod trace;
pub mod trial;
pub mod volume;
pub mod web;

pub use command::{table, traces};
