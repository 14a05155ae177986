//! What the commands do, beside `serve`.

pub mod advise;
pub mod array;
pub mod attach;
pub mod check;
pub mod daemon;
pub mod documents;
pub mod drill;
pub mod explain;
mod format;
mod inspect;
pub mod job;
pub mod lab;
pub mod pool;
mod recover;
pub mod reload;
pub mod sim;
mod size;
pub mod status;
pub mod table;
mod text;
pub mod top;
pub mod trace;
mod traces;
pub mod volume;
pub mod web;
