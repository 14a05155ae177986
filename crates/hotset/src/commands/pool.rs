//! `hotset pool`.

use super::status::{listed, pools};
use super::text::{Argument, argument, named_or_new};
use crate::CommandFailure;
use crate::commands::daemon::{ChangeOptions, ControlOption};
use crate::configuration::ConfigurationPlace;
use clap::Subcommand;
use control::client::ControlClient;
use control::protocol::{ControlRequest, NamedOrNew};
use control::section::SectionText;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum PoolCommand {
    /// List the pools and their devices
    List {
        #[command(flatten)]
        control: ControlOption,
        /// Print JSON in the form of `hotset status`
        #[arg(long)]
        json: bool,
    },
    /// Make a pool and overwrite its devices
    Add {
        #[command(flatten)]
        change: ChangeOptions,
        /// Its name
        pool: String,
        /// Devices of the configuration, paths of files or block devices, or NBD URIs
        #[arg(value_name = "DEVICE")]
        devices: Vec<String>,
        /// The replacement policy; see docs/policies.md
        #[arg(long)]
        policy: Option<String>,
        /// The unit of replacement, such as 64KiB
        #[arg(long)]
        line_size: Option<String>,
    },
    /// Remove a pool that no volume uses, and forget its lines
    Remove {
        #[command(flatten)]
        change: ChangeOptions,
        /// The pool
        pool: String,
    },
    /// Add a device to a pool and overwrite the device
    AddDevice {
        #[command(flatten)]
        change: ChangeOptions,
        /// The pool
        pool: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        device: String,
        /// Its name in reports; made from its path unless given
        #[arg(long)]
        name: Option<String>,
        /// Its failure domain
        #[arg(long)]
        controller: Option<String>,
    },
    /// Inspect the contents of a pool device, or of a pool's witness, and their damage
    ///
    /// Reads only, and only while no daemon uses the device. Exits with status 1 if there is
    /// damage.
    Inspect {
        /// The path of the file or block device
        device: PathBuf,
        /// Read every line and verify its checksums
        #[arg(long)]
        lines: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Blank a device, so that a pool takes it; all data of the device is lost
    Format {
        /// The path of the file or block device
        device: PathBuf,
        /// A configuration: a device that it uses for anything but a pool is refused
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Blank the device although it holds data
        #[arg(long)]
        yes: bool,
        /// Blank the device although it may hold dirty data of a volume; the origin then stays as
        /// it is
        #[arg(long)]
        discard: bool,
        #[arg(long, hide = true)]
        rewind: bool,
    },
    /// Show the dirty data of a write-back volume that its log cannot serve, while no daemon runs;
    /// write it back, or discard it
    Recover {
        #[command(flatten)]
        config: ConfigurationPlace,
        /// The volume
        volume: String,
        #[command(flatten)]
        options: super::recover::Options,
    },
    /// Take back a device that was ejected or absent: with its lines if it was only too slow
    Readmit {
        #[command(flatten)]
        control: ControlOption,
        /// The pool
        pool: String,
        /// The device's name
        device: String,
    },
    /// Take a device out of a pool
    RemoveDevice {
        #[command(flatten)]
        change: ChangeOptions,
        /// The pool
        pool: String,
        /// The device's name
        device: String,
    },
}

pub fn run(command: PoolCommand) -> Result<(), CommandFailure> {
    let (change, request) = match command {
        PoolCommand::Inspect {
            device,
            lines,
            json,
        } => return super::inspect::run(&device, lines, json),
        PoolCommand::Format { rewind: true, .. } => {
            return Err(super::elsewhere::renamed("--rewind", "--discard"));
        }
        PoolCommand::Format {
            device,
            config,
            yes,
            discard,
            rewind: _,
        } => return super::format::run(&device, config.as_deref(), yes, discard),
        PoolCommand::Recover {
            config,
            volume,
            options,
        } => return super::recover::run(&config.file, &volume, options),
        PoolCommand::List { control, json } => {
            let mut client =
                ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
            let status = client.status().map_err(CommandFailure::runtime)?;
            return listed(json, &status.pools, &pools(&status));
        }
        PoolCommand::Add {
            change,
            pool,
            devices,
            policy,
            line_size,
        } => {
            let section = SectionText::default().text("name", &pool);
            let (section, devices) = with_devices(section, &devices);
            let section = section
                .optional("policy", policy.as_deref())
                .optional("line_size", line_size.as_deref());
            let pool = section.finish();
            (change, ControlRequest::AddPool { pool, devices })
        }
        PoolCommand::Remove { change, pool } => (change, ControlRequest::RemovePool { pool }),
        PoolCommand::AddDevice {
            change,
            pool,
            device,
            name,
            controller,
        } => {
            let device = added(&device, name.as_deref(), controller.as_deref())?;
            (change, ControlRequest::AddDevice { pool, device })
        }
        PoolCommand::Readmit {
            control,
            pool,
            device,
        } => (
            control.once(),
            ControlRequest::ReadmitDevice { pool, device },
        ),
        PoolCommand::RemoveDevice {
            change,
            pool,
            device,
        } => (change, ControlRequest::RemoveDevice { pool, device }),
    };
    change.carry_out(&request)
}

/// Lists `devices` in the section of a pool. Returns the sections of those that are new.
fn with_devices(pool: SectionText, devices: &[String]) -> (SectionText, Vec<String>) {
    let (mut names, mut new) = (Vec::new(), Vec::new());
    for device in devices {
        match argument(device, None) {
            Argument::Named(name) => names.push(name),
            Argument::New(name, section) => {
                new.push(section.text("name", &name).finish());
                names.push(name);
            }
        }
    }
    (pool.list("devices", &names), new)
}

/// The device of a pool that is given by its name, or with a name and a controller of its own.
fn added(
    device: &str,
    name: Option<&str>,
    controller: Option<&str>,
) -> Result<NamedOrNew, CommandFailure> {
    match named_or_new(device, name, || controller.map(String::from)) {
        NamedOrNew::Named(device) if name.is_some() || controller.is_some() => {
            Err(CommandFailure::Usage(format!(
                "hotset: {device} is a device of the configuration, which has its name and \
                 controller; leave --name and --controller out"
            )))
        }
        device => Ok(device),
    }
}
