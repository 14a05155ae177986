//! Writes that last, and the write-intent log.

mod durable;
mod intent;
