//! `hotset reload`.

use super::table::count;
use crate::Failure;
use control::client::Client;
use std::path::Path;

/// Has the daemon read its configuration again, and prints the result.
pub fn run(control: &Path) -> Result<(), Failure> {
    let mut client = Client::connect(control).map_err(Failure::runtime)?;
    let steps = client.reload().map_err(Failure::runtime)?;
    for step in &steps {
        println!("{step}");
    }
    println!("{} made", count(steps.len(), "change"));
    Ok(())
}
