//! `hotset array`.

mod offline;

use super::table::{Table, bytes};
use super::text::{Argument, argument};
use crate::Failure;
use crate::cli::Control;
use clap::Subcommand;
use control::client::Client;
use control::protocol::{NamedOrNew, Request};
use control::status::{Array as Status, Scrub};
use std::path::PathBuf;
use std::time::Duration;

/// How often a scrub that goes on is asked about.
const PERIOD: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub enum Array {
    /// Create an array of the configuration, while no daemon runs it; what its members hold is lost
    Create {
        /// The configuration
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The array; those within it come first
        array: String,
        /// Do so although members hold something
        #[arg(long)]
        yes: bool,
    },
    /// Assemble arrays of the configuration once, while no daemon runs them, and show them
    Assemble {
        /// The configuration
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The array; all unless given
        array: Option<String>,
        /// Start it although members are missing that may hold newer data, which is lost then
        #[arg(long, requires = "array")]
        degraded: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the arrays of a running daemon
    Status {
        #[command(flatten)]
        control: Control,
        /// The array; all unless given
        array: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a member from an array
    Fail {
        #[command(flatten)]
        control: Control,
        /// The array
        array: String,
        /// The member's name, or the number of its role
        member: String,
    },
    /// Add a device to an array: a member that was lost, or a spare
    Add {
        #[command(flatten)]
        control: Control,
        /// The array
        array: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        device: String,
        /// Do so although the device holds something, which is lost then
        #[arg(long)]
        yes: bool,
    },
    /// Replace a member by a device, and rebuild it
    Replace {
        #[command(flatten)]
        control: Control,
        /// The array
        array: String,
        /// The member's name, or the number of its role
        member: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        device: String,
        /// Do so although the device holds something, which is lost then
        #[arg(long)]
        yes: bool,
    },
    /// Scrub an array: compare copies and parity, and wait for the result
    ///
    /// Exits with status 1 if something differs that was not repaired.
    Scrub {
        #[command(flatten)]
        control: Control,
        /// The array
        array: String,
        /// Repair what differs
        #[arg(long)]
        repair: bool,
    },
}

pub fn run(command: Array) -> Result<(), Failure> {
    let (control, request) = match command {
        Array::Create { config, array, yes } => return offline::create(&config, &array, yes),
        Array::Assemble {
            config,
            array,
            degraded,
            json,
        } => return offline::assemble(&config, array.as_deref(), degraded, json),
        Array::Status {
            control,
            array,
            json,
        } => return status(&control, array.as_deref(), json),
        Array::Fail {
            control,
            array,
            member,
        } => (control, Request::FailMember { array, member }),
        Array::Add {
            control,
            array,
            device,
            yes: overwrite,
        } => {
            let device = named_or_new(&device);
            let request = Request::AddMember {
                array,
                device,
                overwrite,
            };
            (control, request)
        }
        Array::Replace {
            control,
            array,
            member,
            device,
            yes: overwrite,
        } => {
            let device = named_or_new(&device);
            let request = Request::ReplaceMember {
                array,
                member,
                device,
                overwrite,
            };
            (control, request)
        }
        Array::Scrub {
            control,
            array,
            repair,
        } => return scrub(&control, array, repair),
    };
    let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
    client.command(&request).map_err(Failure::runtime)
}

fn named_or_new(device: &str) -> NamedOrNew {
    match argument(device, None) {
        Argument::Named(name) => NamedOrNew::Named(name),
        Argument::New(name, section) => NamedOrNew::New(section.text("name", &name).finish()),
    }
}

/// The arrays of a daemon, or one of them.
fn ask(client: &mut Client, array: Option<&str>) -> Result<Vec<Status>, Failure> {
    let mut arrays = client.status().map_err(Failure::runtime)?.arrays;
    arrays.retain(|found| array.is_none_or(|wanted| found.name == wanted));
    match (arrays.is_empty(), array) {
        (true, Some(array)) => Err(Failure::Runtime(format!(
            "no array {array} runs; see `hotset array status`"
        ))),
        _ => Ok(arrays),
    }
}

fn status(control: &Control, array: Option<&str>, json: bool) -> Result<(), Failure> {
    let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
    print(&ask(&mut client, array)?, json)
}

fn print(arrays: &[Status], json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string(arrays).map_err(Failure::runtime)?;
        println!("{text}");
        return Ok(());
    }
    if arrays.is_empty() {
        println!("no array runs");
    }
    let texts: Vec<String> = arrays.iter().map(text).collect();
    print!("{}", texts.join("\n"));
    Ok(())
}

fn scrub(control: &Control, array: String, repair: bool) -> Result<(), Failure> {
    let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
    let name = array.clone();
    let begun = client.command(&Request::Scrub { array, repair });
    begun.map_err(Failure::runtime)?;
    loop {
        let found = ask(&mut client, Some(&name))?;
        let scrub = found.into_iter().find_map(|array| array.scrub);
        let Some(scrub) = scrub.filter(|scrub| !scrub.running) else {
            std::thread::sleep(PERIOD);
            continue;
        };
        let message = scrubbed(&scrub);
        if scrub.error.is_some() || scrub.mismatches > scrub.repaired {
            return Err(Failure::Runtime(format!("array {name}: {message}")));
        }
        println!("array {name}: {message}");
        return Ok(());
    }
}

/// What a scrub found, in one line.
fn scrubbed(scrub: &Scrub) -> String {
    match &scrub.error {
        Some(error) => format!("the scrub stopped: {error}"),
        None if scrub.running => "a scrub runs".into(),
        None => format!(
            "scrubbed: {} places differed, {} of them made to agree, {} could not be read on one member",
            scrub.mismatches, scrub.repaired, scrub.unreadable
        ),
    }
}

/// How an array is, first in one line, then member by member.
pub fn text(array: &Status) -> String {
    if let Some(why) = &array.inactive {
        let (name, level) = (&array.name, &array.level);
        return format!(
            "{name}: INACTIVE, {level}\n  it cannot start, and is tried again: {why}\n"
        );
    }
    let mut text = format!(
        "{}: {}, {} of {}",
        array.name,
        array.state.to_uppercase(),
        array.level,
        bytes(array.size_bytes)
    );
    if let Some(progress) = &array.progress {
        text += &match progress.role {
            Some(role) => format!("; member {role} is filled to {:.1}%", progress.percent),
            None => format!("; copies compared to {:.1}%", progress.percent),
        };
        if let Some(left) = progress.left_s {
            text += &format!(", about {} left", advise::page::span(left));
        }
    }
    text += "\n";
    if let Some(why) = &array.down {
        text += &format!("  writes are refused: {why}; bring them back\n");
    }
    if array.lost_bytes > 0 {
        let lost = bytes(array.lost_bytes);
        text += &format!("  the data of {lost} is lost; reads of it fail until it is written\n");
    }
    for warning in &array.warnings {
        text += &format!("  {warning}\n");
    }
    if let Some(scrub) = &array.scrub {
        text += &format!("  {}\n", scrubbed(scrub));
    }
    let span = |seconds: u64| advise::page::span(seconds as f64);
    let last = match array.scrubbed_s {
        Some(ago) => format!("the last scrub ended {} ago", span(ago)),
        None => "no scrub has ended".into(),
    };
    if let Some(due) = array.scrub_due_s {
        text += &format!("  {last}; the next is due in {}\n", span(due));
    } else if array.scrubbed_s.is_some() {
        text += &format!("  {last}\n");
    }
    let mut table = Table::new(&[
        "  MEMBER",
        "CONTROLLER",
        "ROLE",
        "STATE",
        "READS",
        "WRITES",
        "ERRORS",
        "REPAIRED",
    ]);
    for member in &array.members {
        table.row([
            format!("  {}", member.device.as_deref().unwrap_or("-")),
            member.controller.clone().unwrap_or_else(|| "-".into()),
            member.role.to_string(),
            member.state.clone(),
            member.reads.to_string(),
            member.writes.to_string(),
            (member.read_errors + member.write_errors).to_string(),
            member.repaired.to_string(),
        ]);
    }
    for spare in &array.spares {
        let cells = ["-", "-", "spare"].map(str::to_owned);
        table.row([format!("  {spare}")].into_iter().chain(cells));
    }
    text + &table.to_string()
}
