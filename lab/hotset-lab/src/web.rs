//! A web server on real files, and its clients: parts of the demonstration and of live runs.

pub mod fetch;
pub mod server;
pub mod site;
pub mod threads;
pub mod visits;
