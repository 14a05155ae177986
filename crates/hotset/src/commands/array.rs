//! `hotset array`.

mod offline;
mod show;

pub use offline::alone;
pub use show::text;

use super::text::named_or_new;
use crate::CommandFailure;
use crate::commands::daemon::{ChangeOptions, ControlOption, waits};
use crate::configuration::ConfigurationPlace;
use clap::Subcommand;
use control::client::ControlClient;
use control::meant;
use control::protocol::ControlRequest;
use control::status::ArrayReport as Status;
use std::time::Duration;

/// Interval of questions about a scrub at work.
const PERIOD: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub enum ArrayCommand {
    /// Create an array of the configuration, while no daemon runs it; all data of its members is
    /// lost
    Create {
        #[command(flatten)]
        config: ConfigurationPlace,
        /// The array; those within it come first
        array: String,
        /// Create the array although members hold data
        #[arg(long)]
        yes: bool,
    },
    /// Assemble arrays of the configuration once, while no daemon runs them, and show them
    Assemble {
        #[command(flatten)]
        config: ConfigurationPlace,
        /// The array; all unless given
        array: Option<String>,
        /// Start the array although members are missing that may hold newer data, which is lost
        /// then
        #[arg(long, requires = "array")]
        degraded: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the arrays of a running daemon
    Status {
        #[command(flatten)]
        control: ControlOption,
        /// The array; all unless given
        array: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a member from an array
    Fail {
        #[command(flatten)]
        control: ControlOption,
        /// The array
        array: String,
        /// The member's name, or the number of its role
        member: String,
    },
    /// Add a device to an array: a member that was lost, or a spare
    Add {
        #[command(flatten)]
        change: ChangeOptions,
        /// The array
        array: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        device: String,
        /// Add the device although it holds data, which is lost then
        #[arg(long)]
        yes: bool,
    },
    /// Replace a member by a device, and rebuild it
    Replace {
        #[command(flatten)]
        change: ChangeOptions,
        /// The array
        array: String,
        /// The member's name, or the number of its role
        member: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        device: String,
        /// Use the device although it holds data, which is lost then
        #[arg(long)]
        yes: bool,
    },
    /// Scrub an array: compare copies and parity, and wait for the result
    ///
    /// Exits with status 1 if a difference was found and not repaired.
    Scrub {
        #[command(flatten)]
        control: ControlOption,
        /// The array
        array: String,
        /// Repair differences
        #[arg(long)]
        repair: bool,
    },
}

pub fn run(command: ArrayCommand) -> Result<(), CommandFailure> {
    let (change, request) = match command {
        ArrayCommand::Create { config, array, yes } => {
            return offline::create(&config.file, &array, yes);
        }
        ArrayCommand::Assemble {
            config,
            array,
            degraded,
            json,
        } => return offline::assemble(&config.file, array.as_deref(), degraded, json),
        ArrayCommand::Status {
            control,
            array,
            json,
        } => return status(&control, array.as_deref(), json),
        ArrayCommand::Fail {
            control,
            array,
            member,
        } => (control.once(), ControlRequest::FailMember { array, member }),
        ArrayCommand::Add {
            change,
            array,
            device,
            yes: overwrite,
        } => {
            let device = named_or_new(&device, None, || None);
            let request = ControlRequest::AddMember {
                array,
                device,
                overwrite,
            };
            (change, request)
        }
        ArrayCommand::Replace {
            change,
            array,
            member,
            device,
            yes: overwrite,
        } => {
            let device = named_or_new(&device, None, || None);
            let request = ControlRequest::ReplaceMember {
                array,
                member,
                device,
                overwrite,
            };
            (change, request)
        }
        ArrayCommand::Scrub {
            control,
            array,
            repair,
        } => return scrub(&control, array, repair),
    };
    change.carry_out(&request)
}

/// The arrays of a daemon, or one of them.
fn ask(client: &mut ControlClient, array: Option<&str>) -> Result<Vec<Status>, CommandFailure> {
    let mut arrays = client.status().map_err(CommandFailure::runtime)?.arrays;
    let Some(wanted) = array else {
        return Ok(arrays);
    };
    let meant = meant(wanted, arrays.iter().map(|found| found.name.as_str()));
    arrays.retain(|found| found.name == wanted);
    match arrays.is_empty() {
        true => Err(CommandFailure::Runtime(format!(
            "no array {wanted} runs{meant}; see `hotset array status`"
        ))),
        false => Ok(arrays),
    }
}

fn status(control: &ControlOption, array: Option<&str>, json: bool) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    show::print(&ask(&mut client, array)?, json)
}

fn scrub(control: &ControlOption, array: String, repair: bool) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    let name = array.clone();
    let begun = client.change(&ControlRequest::Scrub { array, repair }, true, waits);
    begun.map_err(CommandFailure::runtime)?;
    loop {
        let found = ask(&mut client, Some(&name))?;
        let scrub = found.into_iter().find_map(|array| array.scrub);
        let Some(scrub) = scrub.filter(|scrub| !scrub.running) else {
            std::thread::sleep(PERIOD);
            continue;
        };
        let message = show::scrubbed(&scrub);
        if scrub.error.is_some() || scrub.mismatches > scrub.repaired {
            return Err(CommandFailure::Runtime(format!("array {name}: {message}")));
        }
        return command::print_line(format!("array {name}: {message}"));
    }
}
