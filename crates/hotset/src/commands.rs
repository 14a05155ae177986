//! What the commands do, beside `serve`.

pub mod check;
pub mod documents;
mod format;
mod inspect;
pub mod lab;
pub mod pool;
pub mod status;
mod table;
mod text;
pub mod volume;
