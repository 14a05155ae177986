//! The commands that need the laboratory: campaigns, experiments, drills, simulators.

mod ablate;
mod choices;
mod drill;
mod formats;
mod live;
mod origin;
mod perc;
mod run;
mod sensitivity;
mod side;
mod sim;
mod store;
mod storm;
mod terminal;
mod timeline;
mod workload;

use crate::CommandFailure;
use crate::program::hotset;
use clap::{Args, Subcommand};
use command::convert::{self, Convert};
use formats::ALL_FORMATS;
use proof::campaign;
use proof::nodesim::NodeCampaign;
use proof::portsim::PortCampaign;
use proof::writeback::WriteBackCampaign;
use proof::{crash, stack};
use std::path::PathBuf;
use writelog::Cleaning;

use ablate::Ablate;
use choices::ChoicesCommand;
use drill::SimulatedDrill;
use live::LiveCommand;
use run::{ExperimentList, RunCommand, RunReport};
use sim::SimCommand;
use storm::Storm;
use timeline::TimelineCommand;
use workload::WorkloadCommand;

#[derive(Args)]
pub struct CampaignArguments {
    /// Number of cases
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub cases: u64,
    /// The first case's seed; the next cases have the following numbers
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
pub enum Laboratory {
    /// Kill simulated daemons and cut their power, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if the cuts of 1000 cases
    /// or more never landed in one of the situations that are counted.
    ///
    /// A case that fails alone is made smaller and printed.
    Crash {
        #[command(flatten)]
        campaign: CampaignArguments,
        /// Short cases that are cut at every boundary of every disk operation instead
        #[arg(long)]
        boundaries: bool,
        /// Cases of the log of write-back instead, in this mode
        #[arg(long, value_name = "MODE", value_parser = ["ordered", "journaled", "coalesced"],
              conflicts_with = "boundaries")]
        mode: Option<String>,
    },
    /// Change simulated nodes while their disks are lost, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if 1000 cases or more never met
    /// one of the situations that are counted.
    Node(CampaignArguments),
    /// Kill the servers of a simulated kernel's block device, and check every answer
    ///
    /// Exits with status 1 if an answer was wrong, or if 1000 cases or more never met
    /// one of the situations that are counted.
    Port(CampaignArguments),
    /// Flip single bits in images of pools, and check the reads from each
    ///
    /// Exits with status 1 if an answer was wrong.
    Flips {
        /// Number of bits, one at a time
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        flips: u64,
        /// The first flip's seed; the next flips have the following numbers
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
    },
    /// Cut the power of PostgreSQL on ext4 on a volume, on paper, and recover each image
    ///
    /// Needs root, loop devices, nbdfuse and PostgreSQL. Exits with status 1 if a file
    /// system or a database did not recover.
    Stack(StackCommand),
    /// Run real daemons on devices that fail, hang and forget, kill and pause them, and check every
    /// answer
    ///
    /// Needs FUSE. Exits with status 1 if a violation was found.
    Storm(Storm),
    /// Show a write-back volume over time, in virtual time: a burst, the loss of a device of its
    /// log, a detach
    ///
    /// Writes, lag and dirty bytes on models of a disk and SSDs, as a table, a chart or JSON. Exits
    /// with status 1 if a promise of write-back did not hold.
    Timeline(TimelineCommand),
    /// Run the load of a published evaluation on your own storage, without and with the cache
    ///
    /// Real files and servers, in rounds: the volume off, cold and warm in turn. Nothing is changed
    /// but a directory below PATH, and cached lines of the volume.
    #[command(subcommand)]
    Live(LiveCommand),
    /// List the published evaluations that can be run again
    List(ExperimentList),
    /// Run published evaluations again in virtual time, and compare
    ///
    /// On models of the drives, controllers and links that were evaluated. Prints the published
    /// figures beside ours; a figure that is out of tolerance is printed as such, and is no
    /// failure.
    Run(RunCommand),
    /// Run the load of published evaluations with each choice of today, one at a time
    ///
    /// Policies, admission, half and twice the flash, a flash drive lost, a restart: each against
    /// the default over the same seeds, and the advice of the first minutes against the
    /// measurements. Nothing outside the process is touched but DIRECTORY.
    Choices(ChoicesCommand),
    /// Run published evaluations without one part of their models at a time, to see the effect of
    /// each part
    Ablate(Ablate),
    /// Write one page, report.html, of the results that `hotset-lab run --out` has kept in a
    /// directory
    Report(RunReport),
    /// Pull parts of simulated arrays and write-back volumes, put them back, and check every byte
    ///
    /// In virtual time, on models of drives; `hotset drill` does the same on a daemon.
    Drill(SimulatedDrill),
    /// Simulate policies and pool sizes on recorded traces
    ///
    /// Runs the policies of the engine over each trace, all cells at once on
    /// all processors. The result depends on the trace alone.
    Sim(Box<SimCommand>),
    /// Make and convert traces
    #[command(subcommand)]
    Trace(LabTraceCommand),
}

#[derive(Subcommand)]
pub enum LabTraceCommand {
    /// Convert a trace to another form, as `hotset trace convert` does, and from and to Parquet
    Convert(Convert),
    /// Write the workload of a published evaluation as a trace
    ///
    /// In virtual time, with nothing cached: the requests of the models' clients to their volumes.
    /// The volumes of the trace are numbered as documented.
    Workload(WorkloadCommand),
}

#[derive(Args)]
pub struct StackCommand {
    /// Number of transactions that each of three clients commits
    #[arg(long, value_name = "N", default_value_t = 200)]
    transactions: u64,
    /// Number of random cuts, beside one after each flush
    #[arg(long, value_name = "N", default_value_t = 200)]
    between: usize,
    /// Number of these cuts at most, spread over the record
    #[arg(long, value_name = "N", default_value_t = 1000)]
    cuts: usize,
    /// Kill so many daemons under the database instead, and let the database recover through
    /// the next
    #[arg(long, value_name = "N", conflicts_with_all = ["transactions", "between", "cuts"])]
    kills: Option<u64>,
    /// Measure so many rounds of pgbench instead, on an origin as slow as a disk, write-through
    /// and in each mode of write-back
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["transactions", "between", "cuts", "kills"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pgbench: Option<u64>,
    /// With --pgbench: the time of each, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "pgbench",
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// With --pgbench: the drive model of the origin
    #[arg(
        long,
        value_name = "DRIVE",
        default_value = "ST3500320AS",
        requires = "pgbench"
    )]
    model: String,
    /// With --kills: the volume is write-back, in this mode
    #[arg(long, value_name = "MODE", value_parser = ["ordered", "journaled", "coalesced"], requires = "kills")]
    mode: Option<String>,
    /// With --mode: pool, log and state are removed under each daemon, and the database has to
    /// recover on the origin alone
    #[arg(long, requires = "mode")]
    destroy: bool,
    /// Draws the cuts, and the state after each; or the time of each kill
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Directory of its files, 500 MB, in a place that the user postgres can reach; made if
    /// missing, and overwritten
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/var/tmp/hotset-stack"
    )]
    directory: PathBuf,
}

impl StackCommand {
    fn run(self) -> Result<(), CommandFailure> {
        let program = hotset()?;
        let (mode, destroys) = (self.mode.as_deref(), self.destroy);
        if destroys && mode == Some(Cleaning::Coalesced.name()) {
            let what = "hotset: nothing is promised of the origin alone of a coalesced log; leave out --destroy, \
                        or take another --mode";
            return Err(CommandFailure::Usage(what.into()));
        }
        let (seed, directory) = (self.seed, self.directory);
        match (self.pgbench, self.kills) {
            (Some(rounds), _) => bench_stack(&stack::BenchRequest {
                rounds,
                seconds: self.seconds,
                model: self.model,
                directory,
                program,
            }),
            (None, Some(rounds)) => kill_stack(stack::KillRequest {
                rounds,
                seed,
                directory,
                program,
                order: mode.and_then(Cleaning::from_name),
                destroys,
            }),
            (None, None) => cut_stack(stack::StackRequest {
                transactions: self.transactions,
                between: self.between,
                cuts_max: self.cuts,
                seed,
                directory,
                program,
            }),
        }
    }
}

pub fn run(command: Laboratory) -> Result<(), CommandFailure> {
    match command {
        Laboratory::Crash {
            campaign,
            boundaries,
            mode,
        } => {
            let request = request(&campaign);
            let done = match mode.as_deref().and_then(Cleaning::from_name) {
                Some(cleaning) => campaign::command(&WriteBackCampaign(cleaning), &request),
                None if boundaries => crash::boundaries(&request),
                None => crash::command(&request),
            };
            done.map_err(CommandFailure::Runtime)
        }
        Laboratory::Stack(command) => command.run(),
        Laboratory::Node(campaign) => {
            campaign::command(&NodeCampaign, &request(&campaign)).map_err(CommandFailure::Runtime)
        }
        Laboratory::Port(campaign) => {
            campaign::command(&PortCampaign, &request(&campaign)).map_err(CommandFailure::Runtime)
        }
        Laboratory::Flips { flips, seed } => flip(flips, seed),
        Laboratory::Storm(command) => storm::run(&command),
        Laboratory::Timeline(command) => timeline::run(&command),
        Laboratory::Live(command) => live::run(&command),
        Laboratory::List(command) => run::list(&command),
        Laboratory::Run(command) => run::run(&command),
        Laboratory::Choices(command) => choices::run(&command),
        Laboratory::Ablate(command) => ablate::run(&command),
        Laboratory::Report(command) => run::write_report(&command),
        Laboratory::Drill(command) => drill::run(&command),
        Laboratory::Sim(command) => sim::run(&command),
        Laboratory::Trace(LabTraceCommand::Convert(command)) => {
            convert::run(&command, &ALL_FORMATS)
        }
        Laboratory::Trace(LabTraceCommand::Workload(command)) => workload::run(&command),
    }
}

fn request(asked: &CampaignArguments) -> campaign::CampaignRequest {
    campaign::CampaignRequest {
        cases: asked.cases,
        seed: asked.seed,
        threads: asked.threads,
        json: asked.json,
    }
}

fn flip(flips: u64, seed: u64) -> Result<(), CommandFailure> {
    let flips = crash::flips(seed..seed + flips);
    print(&flips, flips.violations.len(), "flips did harm")?;
    match flips.missed() {
        missed if missed.is_empty() => Ok(()),
        missed => Err(CommandFailure::Runtime(format!(
            "no bit was flipped in {missed:?}"
        ))),
    }
}

fn cut_stack(request: stack::StackRequest) -> Result<(), CommandFailure> {
    let stack = stack::run(&request).map_err(CommandFailure::Runtime)?;
    print(&stack, stack.violations.len(), "images did not recover")
}

fn kill_stack(request: stack::KillRequest) -> Result<(), CommandFailure> {
    let kills = stack::kills(&request).map_err(CommandFailure::Runtime)?;
    print(&kills, kills.violations.len(), "kills lost something")
}

fn bench_stack(request: &stack::BenchRequest) -> Result<(), CommandFailure> {
    let bench = stack::pgbench(request, &|line| eprintln!("{line}"));
    print(&bench.map_err(CommandFailure::Runtime)?, 0, "")
}

/// Prints a report; an error if `wrong` is not zero.
fn print(report: &impl serde::Serialize, wrong: usize, what: &str) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(report).expect("plain data");
    command::print_line(text)?;
    match wrong {
        0 => Ok(()),
        _ => Err(CommandFailure::Runtime(format!("{wrong} {what}"))),
    }
}
