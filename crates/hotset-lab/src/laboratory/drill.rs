//! `hotset-lab drill`.

use crate::Failure;
use clap::Args;
use command::drill::Asked;

#[derive(Args)]
pub struct Drill {
    #[command(flatten)]
    asked: Asked,
    /// Seed of the simulator's choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub fn run(command: &Drill) -> Result<(), Failure> {
    let setup = command.asked.setup()?;
    let report = |row: &drill::Row| command.asked.report(row);
    let rows = drill::simulated(&setup, command.seed, &report);
    command.asked.end(&setup, &rows.map_err(Failure::Runtime)?)
}
