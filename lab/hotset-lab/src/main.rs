//! The laboratory of hotset: proofs, measurements and demonstrations, on simulated machines and on
//! real daemons.
//!
//! The daemon and its command line are another program, `hotset`, which is looked for beside this
//! one. Without the feature `laboratory` there is only the demonstration, which is quick to build.
//!
//! Exit status: as of `hotset`.

#![deny(clippy::print_stdout)]

mod demo;
#[cfg(feature = "laboratory")]
mod laboratory;
mod program;
mod web;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, Parser, Subcommand};
use command::CommandFailure;
use command::manual::Manual;
use policy::registry::POLICIES;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Manual pages of the laboratory.
const MANUAL: Manual = Manual {
    groups: &[],
    examples: &[],
    see_also: &["hotset(1)"],
};

/// Proves, measures and shows hotset.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Run a web server on slow disks, without and with the cache
    ///
    /// Needs root, nginx, nbdfuse, FUSE and loop devices; takes about two
    /// minutes. The disks are simulated in real time; everything else is real.
    Demo {
        /// Directory of the files; made if missing
        #[arg(long, value_name = "DIRECTORY", default_value = "var/demo")]
        directory: PathBuf,
        /// Pages that each of the two runs loads
        #[arg(long, value_name = "N", default_value_t = 4500,
              value_parser = clap::value_parser!(u32).range(20..))]
        pages: u32,
        /// The policy of the pool
        #[arg(long, value_name = "NAME", default_value = "auto",
              value_parser = PossibleValuesParser::new(POLICIES))]
        policy: String,
    },
    /// Write the manual page of each command into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        #[arg(long, value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    #[cfg(feature = "laboratory")]
    #[command(flatten)]
    Laboratory(laboratory::Laboratory),
}

fn main() -> ExitCode {
    // Clap ends the process with status 2 for a wrong command line.
    let ended = match LabCli::parse().command {
        LabCommand::Demo {
            directory,
            pages,
            policy,
        } => demo::run(&directory, pages as usize, &policy),
        LabCommand::Man { directory } => manual(&directory),
        #[cfg(feature = "laboratory")]
        LabCommand::Laboratory(command) => laboratory::run(command),
    };
    command::exit("hotset-lab", ended)
}

fn manual(directory: &Path) -> Result<(), CommandFailure> {
    let mut program = LabCli::command();
    program.build();
    MANUAL.write(&program, directory)
}
