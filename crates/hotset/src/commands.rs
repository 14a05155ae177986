//! What the commands do, beside `serve`.

pub mod advise;
pub mod check;
pub mod documents;
pub mod explain;
mod format;
mod inspect;
pub mod lab;
pub mod pool;
pub mod status;
mod table;
mod text;
pub mod volume;
