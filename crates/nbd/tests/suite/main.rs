//! The protocol's two ends, with each other and with others' programs.

mod conversation;
#[path = "../common/drive.rs"]
mod drive;
mod hostile;
mod lost_writes;
mod nonsense;
mod quota;
#[path = "../common/real.rs"]
mod real;
mod real_clients;
mod real_servers;
mod simulated;
