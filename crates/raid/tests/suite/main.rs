mod assembly;
mod common;
mod conformance;
mod losses;
