//! The models of drives and of ways to them.

mod common;
mod hdd_model;
mod model_catalogue;
mod model_conformance;
mod path_models;
mod ssd_model;
