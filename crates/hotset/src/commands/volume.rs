//! `hotset volume`.

use super::daemon::{ChangeOptions, ControlOption};
use super::status::{listed, volumes};
use super::table::bytes;
use super::text::{Argument, argument, named_or_new};
use crate::CommandFailure;
use clap::{Args, Subcommand};
use control::client::ControlClient;
use control::config::VolumeMode;
use control::protocol::ControlRequest;
use control::section::SectionText;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;

#[derive(Subcommand)]
pub enum VolumeCommand {
    /// List the volumes
    List {
        #[command(flatten)]
        control: ControlOption,
        /// Print JSON in the form of `hotset status`
        #[arg(long)]
        json: bool,
    },
    /// Set the caching mode of a volume
    SetMode {
        #[command(flatten)]
        change: ChangeOptions,
        /// The volume
        volume: String,
        /// The mode
        #[arg(value_parser = VolumeMode::ALL.map(VolumeMode::name))]
        mode: String,
        /// Of write-back: the two devices of its log, of the configuration or by their paths; those
        /// of the volume in the configuration unless given
        #[arg(long, value_delimiter = ',', value_name = "DEVICE,DEVICE")]
        log: Vec<String>,
        /// Its journal, likewise: the volume becomes journaled
        #[arg(long, value_name = "DEVICE")]
        journal: Option<String>,
        /// The failure domains of the new devices among them, in their order
        #[arg(long, value_delimiter = ',', value_name = "CONTROLLER,...")]
        controllers: Vec<String>,
    },
    /// Use the origin alone until the volume is on again; its mode stays in the configuration
    ///
    /// A write-back volume has its log drained first.
    Off {
        #[command(flatten)]
        change: ChangeOptions,
        /// The volume
        volume: String,
    },
    /// Use the pool again, by the mode that the volume had, write-back with its log too
    On {
        #[command(flatten)]
        change: ChangeOptions,
        /// The volume
        volume: String,
    },
    /// Replace a device of the log of a write-back volume, or its journal
    ///
    /// The log is drained first, with clients served, and begun with the new device.
    ReplaceLog {
        #[command(flatten)]
        control: ControlOption,
        /// The volume
        volume: String,
        /// The device that leaves
        device: String,
        /// The new device, of the configuration or by its path, which has to be blank
        by: String,
        /// The failure domain of a new device
        #[arg(long)]
        controller: Option<String>,
    },
    /// Hold writes and flush the origin, for a snapshot of it
    ///
    /// Reads go on. Clients' writes wait until the volume is resumed.
    Quiesce {
        #[command(flatten)]
        control: ControlOption,
        /// The volume
        volume: String,
    },
    /// Resume the writes of a quiesced volume
    Resume {
        #[command(flatten)]
        control: ControlOption,
        /// The volume
        volume: String,
    },
    /// Serve a volume at the present size of its origin; clients connect again
    ///
    /// The cached lines of the volume stay if its origin proves to be the same.
    Grow {
        #[command(flatten)]
        control: ControlOption,
        /// The volume
        volume: String,
    },
    /// Take over the origin of a volume that another host has reserved, and serve the volume
    ///
    /// The other host can write there no more. Dirty data of its write-back volume is missing.
    Takeover(VolumeTakeover),
    /// Invalidate the cached lines of a volume after others have changed its origin
    Invalidate {
        #[command(flatten)]
        control: ControlOption,
        /// The volume
        volume: String,
    },
    /// Run COMMAND while the volume is quiesced, which takes a snapshot of its origin
    ///
    /// The volume goes on when COMMAND has ended, whatever that or this command dies of. The exit
    /// status is that of COMMAND.
    Snapshot {
        #[command(flatten)]
        control: ControlOption,
        /// COMMAND restores a snapshot: forget the cached lines before the volume goes on
        #[arg(long)]
        restore: bool,
        /// The volume
        volume: String,
        /// The command that takes or restores the snapshot
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Add a volume and offer it to clients
    Add {
        #[command(flatten)]
        change: ChangeOptions,
        /// Its name
        volume: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        #[arg(long)]
        origin: String,
        /// The pool for its lines
        #[arg(long)]
        pool: String,
        /// write-through, write-around or pass-through
        #[arg(long)]
        mode: Option<String>,
        /// Its size, such as 10GiB; all of the origin unless given
        #[arg(long)]
        size: Option<String>,
        /// Refuse every write of clients
        #[arg(long)]
        read_only: bool,
        /// Reserve the origin for this host
        #[arg(long)]
        reserve: bool,
    },
    /// Remove a volume once its requests in flight have ended; its data stay on the origin
    Remove {
        #[command(flatten)]
        change: ChangeOptions,
        /// The volume
        volume: String,
    },
}

#[derive(Args)]
pub struct VolumeTakeover {
    #[command(flatten)]
    control: ControlOption,
    /// The volume
    volume: String,
    /// Confirm that the other host may lose the origin
    #[arg(long)]
    yes: bool,
}

impl VolumeTakeover {
    fn confirmed(self) -> Result<(ChangeOptions, ControlRequest), CommandFailure> {
        let volume = self.volume;
        match self.yes {
            true => Ok((self.control.once(), ControlRequest::TakeOver { volume })),
            false => Err(CommandFailure::Usage(format!(
                "the host that has reserved the origin of {volume} can write there no more; end \
                 hotset there if you can, or give --yes"
            ))),
        }
    }
}

pub fn run(command: VolumeCommand) -> Result<(), CommandFailure> {
    use ControlRequest::*;
    let (change, request) = match command {
        VolumeCommand::List { control, json } => return list(&control, json),
        VolumeCommand::SetMode {
            change,
            volume,
            mode,
            log,
            journal,
            controllers,
        } => {
            if mode != VolumeMode::WriteBack.name() {
                announce(&change.control, &volume)?;
            }
            (change, mode_set(volume, mode, &log, journal, controllers)?)
        }
        VolumeCommand::Off { change, volume } => {
            gives_up_log(change, SetOff { volume, off: true })?
        }
        VolumeCommand::On { change, volume } => (change, SetOff { volume, off: false }),
        VolumeCommand::ReplaceLog {
            control,
            volume,
            device,
            by,
            controller,
        } => {
            let by = named_or_new(&by, None, || controller);
            gives_up_log(control.lasting(), ReplaceLog { volume, device, by })?
        }
        VolumeCommand::Quiesce { control, volume } => (control.once(), Quiesce { volume }),
        VolumeCommand::Resume { control, volume } => (control.once(), Resume { volume }),
        VolumeCommand::Grow { control, volume } => (control.once(), GrowVolume { volume }),
        VolumeCommand::Takeover(takeover) => takeover.confirmed()?,
        VolumeCommand::Invalidate { control, volume } => (control.once(), Invalidate { volume }),
        VolumeCommand::Snapshot {
            control,
            restore,
            volume,
            command,
        } => return snapshot(&control, volume, restore, &command),
        VolumeCommand::Add {
            change,
            volume,
            origin,
            pool,
            mode,
            size,
            read_only,
            reserve,
        } => {
            let (origin, device) = origin_of(&origin, read_only);
            let volume = SectionText::default()
                .text("name", &volume)
                .text("origin", &origin)
                .text("pool", &pool)
                .optional("mode", mode.as_deref())
                .optional("size", size.as_deref())
                .flag("read_only", read_only)
                .flag("reserve", reserve)
                .finish();
            (change, AddVolume { volume, device })
        }
        VolumeCommand::Remove { change, volume } => gives_up_log(change, RemoveVolume { volume })?,
    };
    change.carry_out(&request)
}

fn list(control: &ControlOption, json: bool) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    let status = client.status().map_err(CommandFailure::runtime)?;
    listed(json, &status.volumes, &volumes(&status))
}

/// The name of an origin, and the section of a new one.
fn origin_of(text: &str, read_only: bool) -> (String, Option<String>) {
    match argument(text, None) {
        Argument::Named(name) => (name, None),
        Argument::New(name, section) => {
            let section = section.flag("read_only", read_only).text("name", &name);
            (name, Some(section.finish()))
        }
    }
}

/// A change for which a volume gives up its log, once its dirty data is printed.
fn gives_up_log(
    change: ChangeOptions,
    request: ControlRequest,
) -> Result<(ChangeOptions, ControlRequest), CommandFailure> {
    if let Some(volume) = request.volume() {
        announce(&change.control, volume)?;
    }
    Ok((change, request))
}

/// A change of mode, with the devices of a log.
fn mode_set(
    volume: String,
    mode: String,
    log: &[String],
    journal: Option<String>,
    controllers: Vec<String>,
) -> Result<ControlRequest, CommandFailure> {
    let mut controllers = controllers.into_iter();
    let devices = log.iter().chain(&journal);
    // A new device takes the next of the controllers.
    let mut log: Vec<_> = devices
        .map(|device| named_or_new(device, None, || controllers.next()))
        .collect();
    if let Some(controller) = controllers.next() {
        return Err(CommandFailure::Usage(format!(
            "no new device is left for --controllers {controller}; leave it out"
        )));
    }
    let journal = journal.and_then(|_| log.pop());
    Ok(ControlRequest::SetMode {
        volume,
        mode,
        log,
        journal,
    })
}

/// Runs `command` while the daemon holds `volume`. The hold lasts as long as a connection, which
/// the command inherits: if this process is killed, the volume is held until the command has ended.
fn snapshot(
    control: &ControlOption,
    volume: String,
    forget: bool,
    command: &[OsString],
) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    client
        .command(&ControlRequest::Hold { volume, forget })
        .map_err(CommandFailure::runtime)?;
    // SAFETY: the descriptor is open, and no memory is involved.
    let inherited = unsafe { libc::fcntl(client.connection().as_raw_fd(), libc::F_SETFD, 0) };
    if inherited < 0 {
        let cause = std::io::Error::last_os_error();
        let what = "the connection to the daemon cannot be passed to COMMAND";
        return Err(CommandFailure::of(what, cause));
    }
    let (program, arguments) = command.split_first().expect("clap requires one");
    let ran = std::process::Command::new(program).args(arguments).status();
    client
        .command(&ControlRequest::Release)
        .map_err(CommandFailure::runtime)?;
    let ran = ran.map_err(|error| {
        let program = program.display();
        CommandFailure::Runtime(format!(
            "{program} cannot be run ({error}); correct COMMAND"
        ))
    })?;
    let killed = |signal: Option<i32>| signal.map_or(1, |signal| 128 + signal);
    match ran.code().unwrap_or_else(|| killed(ran.signal())) {
        0 => Ok(()),
        status => Err(CommandFailure::Answered(u8::try_from(status).unwrap_or(1))),
    }
}

/// Prints the dirty data of a volume that is to give up its log. The write-back may take hours.
fn announce(control: &ControlOption, volume: &str) -> Result<(), CommandFailure> {
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    let status = client.status().map_err(CommandFailure::runtime)?;
    let mut volumes = status.volumes.iter();
    let log = volumes
        .find(|found| found.name == volume)
        .and_then(|found| found.write_back.as_ref());
    if let Some(log) = log.filter(|log| log.dirty_bytes > 0) {
        eprintln!(
            "hotset: {} of dirty data of {volume} is written back first; `hotset job list` shows \
             how far that is, and `hotset job cancel detach:{volume}` keeps the log",
            bytes(log.dirty_bytes)
        );
    }
    Ok(())
}
