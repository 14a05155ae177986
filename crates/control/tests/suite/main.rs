//! The control socket's limits.

#[path = "../common/drive.rs"]
mod drive;
mod limits;
mod nonsense;
