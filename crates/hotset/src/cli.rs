//! The command line's shape, from which help, completions and the manual page
//! are made.

use crate::{Failure, commands, demo, serve};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use policy::registry::POLICIES;
use std::path::PathBuf;

/// Keeps the hot set of slow storage on fast storage.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve the volumes of a configuration until SIGTERM or SIGINT
    Serve {
        /// The configuration; docs/configuration.md explains it
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Trust nothing that the pools hold: the origins may have been changed
        #[arg(long)]
        cold: bool,
    },
    /// Validate a configuration
    ///
    /// Changes nothing. Prints FILE:LINE, the error and its remedy for each,
    /// and exits with status 2 if there is one. With --against-running, prints
    /// what `hotset reload` would change, and exits with status 3 if it would
    /// change something, and 4 if that needs a restart.
    Check(commands::check::Check),
    /// Make a running daemon run its changed configuration
    ///
    /// Prints what has changed. If something needs a restart, nothing is changed;
    /// `hotset check --against-running` says so before.
    Reload {
        #[command(flatten)]
        control: Control,
    },
    /// Show the state and rates of a running daemon
    Status {
        #[command(flatten)]
        control: Control,
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
    },
    /// Show a running daemon live in a terminal
    Top(commands::top::Top),
    /// List and change the volumes of a running daemon
    ///
    /// The daemon's configuration file is changed alike, but with --temporary.
    #[command(subcommand)]
    Volume(Volume),
    /// List and change the pools of a running daemon
    ///
    /// The daemon's configuration file is changed alike, but with --temporary.
    #[command(subcommand)]
    Pool(commands::pool::Pool),
    /// Create, manage and inspect arrays
    #[command(subcommand)]
    Array(commands::array::Array),
    /// List long work of a running daemon, and cancel it
    #[command(subcommand)]
    Job(commands::job::Job),
    /// Serve metrics, an API and a page for a running daemon
    ///
    /// Prints the tokens to sign in with when it is first started.
    Web(commands::web::Web),
    /// List the block devices of attached volumes
    ///
    /// Volumes are attached by `[[attach]]` sections of the configuration.
    Attach {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the block device of an attached volume
    ///
    /// The volume is attached again when its daemon starts again.
    Detach {
        /// The volume
        volume: String,
        /// Though it is in use, or has no daemon: its I/O fails
        #[arg(long)]
        force: bool,
    },
    /// Size the pool, from a trace or a running volume
    ///
    /// Miss-ratio curve, working set, what half and twice the size would do,
    /// endurance and cost.
    Advise(Box<commands::advise::Advise>),
    /// Explain why a volume, or a range of it, is cached or not
    Explain(commands::explain::Explain),
    /// Run a web server on slow disks, without and with the cache
    ///
    /// Needs root, nginx, nbdfuse, FUSE and loop devices; takes about two
    /// minutes. The disks are simulated in real time; everything else is real.
    Demo {
        /// Where its files go; made if missing
        #[arg(long, value_name = "DIRECTORY", default_value = "var/demo")]
        directory: PathBuf,
        /// Pages that each of the two runs loads
        #[arg(long, value_name = "N", default_value_t = 4500,
              value_parser = clap::value_parser!(u32).range(20..))]
        pages: u32,
        /// The policy that decides what stays in the pool
        #[arg(long, value_name = "NAME", default_value = "auto",
              value_parser = PossibleValuesParser::new(POLICIES.iter().map(|(name, _)| *name)))]
        policy: String,
    },
    /// Pull parts of a mirrored server, put them back, and check every byte
    Drill(commands::drill::Drill),
    /// Run verification campaigns and experiments
    #[command(subcommand)]
    Lab(Lab),
    /// Import, convert and look at recorded traces
    #[command(subcommand)]
    Trace(commands::trace::Trace),
    /// Simulate policies and pool sizes on recorded traces
    ///
    /// Runs the policies of the engine over each trace, all cells at once on
    /// all processors. The result depends on the trace alone.
    Sim(Box<commands::sim::Sim>),
    /// Print the reference of the configuration file, in Markdown
    #[command(hide = true)]
    Reference,
    /// Print the description of the API, OpenAPI in JSON
    #[command(hide = true)]
    Openapi,
    /// Print a script that completes commands in a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(hide = true)]
    Man,
}

pub fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("choose from 0.05 to 86400".into())
    }
}

#[derive(Args)]
pub struct Control {
    /// The daemon's control socket
    #[arg(
        long,
        value_name = "PATH",
        env = "HOTSET_CONTROL",
        default_value = "/run/hotset/control.sock"
    )]
    pub control: PathBuf,
}

/// A change that the configuration file says too, unless it is temporary.
#[derive(Args)]
pub struct Change {
    #[command(flatten)]
    pub control: Control,
    /// Leave the configuration file as it is: the change holds until the daemon ends
    #[arg(long)]
    pub temporary: bool,
}

#[derive(Subcommand)]
pub enum Volume {
    /// List the volumes
    List {
        #[command(flatten)]
        control: Control,
    },
    /// Set the caching mode of a volume
    SetMode {
        #[command(flatten)]
        change: Change,
        /// The volume
        volume: String,
        /// write-through, write-around or pass-through
        mode: String,
    },
    /// Hold writes and flush the origin, for a snapshot of it
    ///
    /// Reads go on. Clients' writes wait until the volume is resumed.
    Quiesce {
        #[command(flatten)]
        control: Control,
        /// The volume
        volume: String,
    },
    /// Resume the writes of a quiesced volume
    Resume {
        #[command(flatten)]
        control: Control,
        /// The volume
        volume: String,
    },
    /// Invalidate what is cached of a volume whose origin others have changed
    Invalidate {
        #[command(flatten)]
        control: Control,
        /// The volume
        volume: String,
    },
    /// Add a volume and offer it to clients
    Add {
        #[command(flatten)]
        change: Change,
        /// Its name
        volume: String,
        /// A device of the configuration, the path of a file or block device, or an NBD URI
        #[arg(long)]
        origin: String,
        /// The pool it is cached in
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
    },
    /// Remove a volume once its requests in flight have ended; its data stay on the origin
    Remove {
        #[command(flatten)]
        change: Change,
        /// The volume
        volume: String,
    },
}

#[derive(Args)]
pub struct Campaign {
    /// How many cases
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub cases: u64,
    /// The first case's seed; the next have the numbers after it
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Threads
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Lab {
    /// Kill simulated daemons and cut their power, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if the cuts of 1000 cases
    /// or more never landed in one of the situations that are counted.
    Crash {
        /// How many cases; one that fails alone is made smaller and printed
        #[arg(long, value_name = "N", default_value_t = 1000)]
        cases: u64,
        /// The first case's seed; the next have the numbers after it
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
        /// Threads
        #[arg(long, value_name = "T", default_value_t = 1,
              value_parser = clap::value_parser!(u64).range(1..=256))]
        threads: u64,
        /// Short cases that are cut at every boundary of every disk operation instead
        #[arg(long)]
        boundaries: bool,
        /// Also try the mutations of this file on a copy of the source tree that is the
        /// current directory
        #[arg(long, value_name = "FILE")]
        mutations: Option<PathBuf>,
        /// Cases of the log of write-back instead, in this mode
        #[arg(long, value_name = "MODE", value_parser = ["ordered", "journaled", "coalesced"],
              conflicts_with_all = ["boundaries", "mutations"])]
        mode: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change simulated nodes while their disks are lost, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if 1000 cases or more never met
    /// one of the situations that are counted.
    Node(Campaign),
    /// Kill the servers of a simulated kernel's block device, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if 1000 cases or more never met
    /// one of the situations that are counted.
    Port(Campaign),
    /// Flip single bits in images of pools, and check what is served from each
    ///
    /// Exits with status 1 if an answer was wrong.
    Flips {
        /// How many bits, one at a time
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        flips: u64,
        /// The first flip's seed; the next have the numbers after it
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
    },
    /// Cut the power of PostgreSQL on ext4 on a volume, on paper, and recover each image
    ///
    /// Needs root, loop devices, nbdfuse and PostgreSQL. Exits with status 1 if a file
    /// system or a database did not recover.
    Stack {
        /// How many transactions each of three clients commits
        #[arg(long, value_name = "N", default_value_t = 200)]
        transactions: u64,
        /// How many random cuts, beside one after each flush
        #[arg(long, value_name = "N", default_value_t = 200)]
        between: usize,
        /// At most so many of all these cuts, spread over the record
        #[arg(long, value_name = "N", default_value_t = 1000)]
        cuts: usize,
        /// Kill so many daemons under the database instead, and let it recover through the next
        #[arg(long, value_name = "N", conflicts_with_all = ["transactions", "between", "cuts"])]
        kills: Option<u64>,
        /// Draws the cuts, and what each leaves; or when each daemon is killed
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
        /// Where its files go, 500 MB, in a place that the user postgres can reach; made
        /// if missing, and overwritten
        #[arg(
            long,
            value_name = "DIRECTORY",
            default_value = "/var/tmp/hotset-stack"
        )]
        directory: PathBuf,
    },
    /// Kill real daemons of this program under load, and check every answer
    ///
    /// Needs fio. Exits with status 1 if an answer was wrong.
    Kill {
        /// How many daemons
        #[arg(long, value_name = "N", default_value_t = 200)]
        rounds: u64,
        /// Draws the load and the moments
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
        /// Where its files go, 200 MB; made if missing, and overwritten
        #[arg(long, value_name = "DIRECTORY", default_value = "var/kill")]
        directory: PathBuf,
    },
    /// List the published evaluations that can be run again
    List,
    /// Run published evaluations again in virtual time, and compare
    ///
    /// On models of the drives, controllers and links that were evaluated. Prints what was
    /// published beside what came out; a figure that is out of tolerance is printed as such,
    /// and is no failure.
    Run(commands::lab::Run),
    /// Run the load of published evaluations with each choice of today, one at a time
    ///
    /// Policies, admission, half and twice the flash, a flash drive lost, a restart: each
    /// against the default over the same seeds, and the advice of the first minutes against
    /// what was measured. Nothing outside the process is touched but DIRECTORY.
    Choices(commands::lab::Choices),
    /// Run published evaluations without one part of their models at a time, to see what it moves
    Ablate(commands::lab::Ablate),
    /// Write one page, report.html, of what `hotset lab run --out` has kept in a directory
    Report(commands::lab::Report),
}

impl Command {
    /// Carries it out.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Command::Serve { config, cold } => serve::serve(&config, cold),
            Command::Check(command) => commands::check::run(&command),
            Command::Reload { control } => commands::reload::run(&control.control),
            Command::Status {
                control,
                json,
                watch,
                interval,
                count,
            } => {
                let count = if watch { count } else { Some(1) };
                commands::status::run(&control.control, json, interval, count)
            }
            Command::Top(command) => commands::top::run(&command),
            Command::Volume(command) => commands::volume::run(command),
            Command::Pool(command) => commands::pool::run(command),
            Command::Job(command) => commands::job::run(command),
            Command::Array(command) => commands::array::run(command),
            Command::Attach { json } => commands::attach::list(json),
            Command::Detach { volume, force } => commands::attach::detach(&volume, force),
            Command::Drill(command) => commands::drill::run(&command),
            Command::Web(command) => commands::web::run(command),
            Command::Advise(command) => commands::advise::run(&command),
            Command::Explain(command) => commands::explain::run(&command),
            Command::Demo {
                directory,
                pages,
                policy,
            } => demo::run(&directory, pages as usize, &policy),
            Command::Lab(command) => commands::lab::run(command),
            Command::Trace(command) => commands::trace::run(command),
            Command::Sim(command) => commands::sim::run(&command),
            Command::Reference => commands::documents::reference(),
            Command::Openapi => commands::documents::openapi(),
            Command::Completions { shell } => commands::documents::completions(shell),
            Command::Man => commands::documents::manual(),
        }
    }
}
