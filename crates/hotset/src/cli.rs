//! The command line's shape, from which help, completions and the manual page
//! are made.

use crate::commands::daemon::{ControlOption, interval};
use crate::commands::elsewhere::Elsewhere;
use crate::commands::volume::VolumeCommand;
use crate::configuration::ConfigurationPlace;
use crate::log::LogFormat;
use crate::platform::ublk::begin::{self, BEGIN, READY, SCAN};
use crate::{CommandFailure, commands, serve};
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;

/// Caches slow block devices on SSDs, in user space.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: HotsetCommand,
}

#[derive(Subcommand)]
pub enum HotsetCommand {
    /// Write a first configuration, with the disks and SSDs of this machine
    ///
    /// An existing file is left as it is. The first free disk becomes the origin, every blank SSD a
    /// device of the pool. Devices in use are listed as comments.
    Init(commands::init::Init),
    /// Serve two temporary files, to try hotset without root
    ///
    /// One file is as slow as a disk, by a model of a drive; the other is its SSD. Commands to
    /// paste are printed. Both are removed at the end.
    Try(commands::trial::Try),
    /// Serve the volumes of a configuration until SIGTERM or SIGINT
    Serve {
        #[command(flatten)]
        config: ConfigurationPlace,
        /// Trust nothing that the pools hold: the origins may have been changed
        #[arg(long)]
        cold: bool,
        /// Form of the lines on standard error
        #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
        log_format: LogFormat,
    },
    /// Validate a configuration
    ///
    /// Changes nothing. Prints FILE:LINE, the error and its remedy for each, and exits with status
    /// 2 if there is one. With --against-running, prints the changes that `hotset reload` would
    /// make, and exits with status 3 if there are any, and 4 if one needs a restart.
    Check(commands::check::Check),
    /// Make a running daemon run its changed configuration
    ///
    /// Prints the changes. If one needs a restart, nothing is changed;
    /// `hotset check --against-running` reports that before.
    Reload {
        #[command(flatten)]
        control: ControlOption,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the state and rates of a running daemon
    Status {
        #[command(flatten)]
        control: ControlOption,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Repeat, with the rates of each interval
        #[arg(long)]
        watch: bool,
        /// The interval, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0, requires = "watch",
              value_parser = interval)]
        interval: f64,
        /// Stop after this many reports
        #[arg(long, value_name = "N", requires = "watch")]
        count: Option<u64>,
        /// Exit with status 3 if there is a trouble
        #[arg(long, conflicts_with = "watch")]
        exit_code: bool,
    },
    /// Show a running daemon live in a terminal
    Top(commands::top::Top),
    /// List and change the volumes of a running daemon
    ///
    /// The daemon's configuration file is changed alike, but with --temporary.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// List and change the pools of a running daemon
    ///
    /// The daemon's configuration file is changed alike, but with --temporary.
    #[command(subcommand)]
    Pool(commands::pool::PoolCommand),
    /// Create, manage and inspect arrays
    #[command(subcommand)]
    Array(commands::array::ArrayCommand),
    /// List long work of a running daemon, and cancel jobs
    #[command(subcommand)]
    Job(commands::job::JobCommand),
    /// Serve metrics, an API and a page for a running daemon
    ///
    /// Prints the tokens to sign in with when it is first started.
    Web(commands::web::WebCommand),
    /// Make a volume of a running daemon a block device, or list those there are
    ///
    /// With `--guest` the volume becomes the disk of a virtual machine instead, by vhost-user. The
    /// sections `[[attach]]` and `[[listen]]` of the configuration do the same when the daemon
    /// starts.
    Attach(commands::attach::AttachCommand),
    /// Remove the block device of an attached volume
    ///
    /// The volume is attached again when its daemon starts again, or by `hotset attach`. With
    /// `--guest` a socket is closed instead, for good.
    Detach(commands::attach::DetachCommand),
    /// Size the pool, from a trace or a running volume
    ///
    /// Miss-ratio curve, working set, the results of half and twice the size, endurance and cost.
    Advise(Box<commands::advise::Advise>),
    /// Explain why a volume, or a range of it, is cached or not
    Explain(commands::explain::Explain),
    /// Write one archive for a report of a fault: versions, configuration, status, superblocks
    ///
    /// Prints the list of its parts first. No part has data of a volume, or a secret of the
    /// configuration. Without a daemon, or with a device that is missing, the other parts are
    /// written.
    Support(commands::support::Support),
    /// Pull parts of arrays and of write-back volumes, put them back, and check every byte
    Drill(commands::drill::DrillCommand),
    /// Import, convert and look at recorded traces
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// A command of hotset-lab
    #[command(hide = true, disable_help_flag = true)]
    Lab(Elsewhere),
    /// A command of hotset-lab
    #[command(hide = true, disable_help_flag = true)]
    Sim(Elsewhere),
    /// A command of hotset-lab
    #[command(hide = true, disable_help_flag = true)]
    Demo(Elsewhere),
    /// Print the reference of the configuration file, of the counters or of a command, in Markdown
    #[command(hide = true)]
    Reference {
        /// `counters`, or the words of a command
        words: Vec<String>,
    },
    /// Print the description of the API, OpenAPI in JSON
    #[command(hide = true)]
    Openapi,
    /// Print a script that completes commands in a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write that of each command into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
    /// Start a device of ublk, which the daemon then recovers
    #[command(hide = true, name = BEGIN)]
    UblkBegin {
        /// Its number
        id: u32,
    },
    /// Ready the queues of a device of ublk, which the daemon then recovers
    #[command(hide = true, name = READY)]
    UblkReady {
        /// Its number
        id: u32,
    },
    /// Read the partition table of a device of ublk
    #[command(hide = true, name = SCAN)]
    UblkScan {
        /// Its number
        id: u32,
    },
}

impl HotsetCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), CommandFailure> {
        match self {
            HotsetCommand::Init(command) => commands::init::run(command),
            HotsetCommand::Try(command) => commands::trial::run(&command),
            HotsetCommand::Serve {
                config,
                cold,
                log_format,
            } => serve::serve(&config.file, cold, log_format),
            HotsetCommand::Check(command) => commands::check::run(&command),
            HotsetCommand::Reload { control, json } => {
                commands::reload::run(&control.control, json)
            }
            HotsetCommand::Status {
                control,
                json,
                watch,
                interval,
                count,
                exit_code,
            } => {
                let count = if watch { count } else { Some(1) };
                let troubles = commands::status::run(&control.control, json, interval, count)?;
                match troubles > 0 && exit_code {
                    true => Err(CommandFailure::Answered(command::FOUND)),
                    false => Ok(()),
                }
            }
            HotsetCommand::Top(command) => commands::top::run(&command),
            HotsetCommand::Volume(command) => commands::volume::run(command),
            HotsetCommand::Pool(command) => commands::pool::run(command),
            HotsetCommand::Job(command) => commands::job::run(command),
            HotsetCommand::Array(command) => commands::array::run(command),
            HotsetCommand::Attach(command) => commands::attach::attach(&command),
            HotsetCommand::Detach(command) => commands::attach::detach(&command),
            HotsetCommand::UblkBegin { id } => begin::begin(id),
            HotsetCommand::UblkReady { id } => begin::ready(id),
            HotsetCommand::UblkScan { id } => begin::scan(id),
            HotsetCommand::Drill(command) => commands::drill::run(&command),
            HotsetCommand::Web(command) => commands::web::run(command),
            HotsetCommand::Advise(command) => commands::advise::run(&command),
            HotsetCommand::Explain(command) => commands::explain::run(&command),
            HotsetCommand::Support(command) => commands::support::run(&command),
            HotsetCommand::Lab(words) => Err(words.refused("hotset lab", "hotset-lab")),
            HotsetCommand::Sim(words) => Err(words.refused("hotset sim", "hotset-lab sim")),
            HotsetCommand::Demo(words) => Err(words.refused("hotset demo", "hotset-lab demo")),
            HotsetCommand::Trace(command) => commands::trace::run(command),
            HotsetCommand::Reference { words } => {
                commands::documents::reference(&words, Cli::command())
            }
            HotsetCommand::Openapi => commands::documents::openapi(),
            HotsetCommand::Completions { shell } => commands::documents::completions(shell),
            HotsetCommand::Man { directory } => {
                commands::documents::manual(directory.as_deref(), Cli::command())
            }
        }
    }
}
