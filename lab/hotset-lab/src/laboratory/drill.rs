//! `hotset-lab drill`.

use crate::CommandFailure;
use clap::Args;
use command::drill::DrillRequest;

#[derive(Args)]
pub struct SimulatedDrill {
    #[command(flatten)]
    asked: DrillRequest,
    /// Seed of the simulator's choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub fn run(command: &SimulatedDrill) -> Result<(), CommandFailure> {
    let setup = command.asked.setup()?;
    let report = |row: &drill::DrillRow| command.asked.report(row);
    let rows = drill::simulated(&setup, command.seed, &report);
    command
        .asked
        .end(&setup, &rows.map_err(CommandFailure::Runtime)?)
}
