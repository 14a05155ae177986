//! `hotset reload`.

use super::table::count;
use crate::CommandFailure;
use command::print_line;
use control::client::ControlClient;
use serde_json::json;
use std::path::Path;

/// Has the daemon read its configuration again, and prints the result.
pub fn run(control: &Path, json: bool) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(control).map_err(CommandFailure::runtime)?;
    let steps = client.reload().map_err(CommandFailure::runtime)?;
    if json {
        return print_line(json!({ "changes": steps }));
    }
    for step in &steps {
        print_line(step)?;
    }
    print_line(format!("{} made", count(steps.len(), "change")))
}
