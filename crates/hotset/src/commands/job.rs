//! `hotset job`.

use super::table::TextTable;
use crate::CommandFailure;
use crate::commands::daemon::{ChangeOptions, ControlOption, made, waits};
use clap::Subcommand;
use command::{print, print_line};
use control::client::ControlClient;
use control::job::Job as Listed;
use control::protocol::ControlRequest;

#[derive(Subcommand)]
pub enum JobCommand {
    /// List jobs at work, and those that ended last
    List {
        #[command(flatten)]
        control: ControlOption,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Cancel a job
    ///
    /// An exchange leaves the old member, a scrub its repairs so far, a detachment the log. A
    /// rebuild and a resync are not cancelled.
    Cancel {
        #[command(flatten)]
        change: ChangeOptions,
        /// Its name, such as scrub:mirror
        job: String,
    },
    /// Pause a detachment: clients have the origin for themselves
    Pause(PausedOption),
    /// Resume a detachment
    Resume(PausedOption),
    /// Wait for the outcome of a change after its command was left
    Outcome {
        #[command(flatten)]
        control: ControlOption,
        /// The change, as its command named it
        change: String,
    },
}

#[derive(clap::Args)]
pub struct PausedOption {
    #[command(flatten)]
    control: ControlOption,
    /// Its name, such as detach:db
    job: String,
}

pub fn run(command: JobCommand) -> Result<(), CommandFailure> {
    let pause = |command: PausedOption, paused| {
        let job = command.job;
        let request = ControlRequest::PauseJob { job, paused };
        let mut client =
            ControlClient::connect(&command.control.control).map_err(CommandFailure::runtime)?;
        made(&client.ask(&request).map_err(CommandFailure::runtime)?)
    };
    let (control, json) = match command {
        JobCommand::Pause(command) => return pause(command, true),
        JobCommand::Resume(command) => return pause(command, false),
        JobCommand::Cancel { change, job } => {
            return change.carry_out(&ControlRequest::CancelJob { job });
        }
        JobCommand::Outcome { control, change } => {
            let mut client =
                ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
            let ended = client.outcome(&change, Some(waits));
            return made(&ended.map_err(CommandFailure::runtime)?);
        }
        JobCommand::List { control, json } => (control, json),
    };
    let mut client = ControlClient::connect(&control.control).map_err(CommandFailure::runtime)?;
    let jobs = client.status().map_err(CommandFailure::runtime)?.jobs;
    if json {
        let text = serde_json::to_string(&jobs).map_err(CommandFailure::runtime)?;
        return print_line(text);
    }
    match jobs.is_empty() {
        true => print_line("nothing goes on"),
        false => print(table(&jobs).to_string()),
    }
}

/// Jobs in a table.
pub fn table<'a>(jobs: impl IntoIterator<Item = &'a Listed>) -> TextTable {
    let mut table = TextTable::new(&["JOB", "STATE", "DONE", "LEFT", "FOR", "ABOUT"]).text(&[1, 5]);
    let span = advise::page::span;
    for job in jobs {
        let percent = job.percent.map(|percent| format!("{percent:.1}%"));
        table.row([
            job.name.clone(),
            job.state.name().to_owned(),
            percent.unwrap_or_else(|| "-".into()),
            job.left_s.map_or_else(|| "-".into(), span),
            span(job.running_s),
            job.about.clone(),
        ]);
    }
    table
}
