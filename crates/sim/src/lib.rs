//! The driver in virtual time, and the service-time models of the devices that
//! it pretends to have.

pub mod model;
