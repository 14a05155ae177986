//! `hotset job`.

use super::table::Table;
use crate::Failure;
use crate::commands::daemon::{Change, Control, made, waits};
use clap::Subcommand;
use control::client::Client;
use control::job::Job as Listed;
use control::protocol::Request;

#[derive(Subcommand)]
pub enum Job {
    /// List jobs at work, and those that ended last
    List {
        #[command(flatten)]
        control: Control,
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
        change: Change,
        /// Its name, such as scrub:mirror
        job: String,
    },
    /// Pause a detachment: clients have the origin for themselves
    Pause(Paused),
    /// Resume a detachment
    Resume(Paused),
    /// Wait for the outcome of a change after its command was left
    Outcome {
        #[command(flatten)]
        control: Control,
        /// The change, as its command named it
        change: String,
    },
}

#[derive(clap::Args)]
pub struct Paused {
    #[command(flatten)]
    control: Control,
    /// Its name, such as detach:db
    job: String,
}

pub fn run(command: Job) -> Result<(), Failure> {
    let pause = |command: Paused, paused| {
        let job = command.job;
        let request = Request::PauseJob { job, paused };
        let mut client = Client::connect(&command.control.control).map_err(Failure::runtime)?;
        made(&client.ask(&request).map_err(Failure::runtime)?)
    };
    let (control, json) = match command {
        Job::Pause(command) => return pause(command, true),
        Job::Resume(command) => return pause(command, false),
        Job::Cancel { change, job } => return change.carry_out(&Request::CancelJob { job }),
        Job::Outcome { control, change } => {
            let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
            let ended = client.outcome(&change, Some(waits));
            return made(&ended.map_err(Failure::runtime)?);
        }
        Job::List { control, json } => (control, json),
    };
    let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
    let jobs = client.status().map_err(Failure::runtime)?.jobs;
    if json {
        let text = serde_json::to_string(&jobs).map_err(Failure::runtime)?;
        println!("{text}");
        return Ok(());
    }
    match jobs.is_empty() {
        true => println!("nothing goes on"),
        false => print!("{}", table(&jobs)),
    }
    Ok(())
}

/// Jobs in a table.
pub fn table<'a>(jobs: impl IntoIterator<Item = &'a Listed>) -> Table {
    let mut table = Table::new(&["JOB", "STATE", "DONE", "LEFT", "FOR", "ABOUT"]).text(&[1, 5]);
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
