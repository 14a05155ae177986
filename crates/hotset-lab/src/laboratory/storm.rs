//! `hotset-lab storm`.

use crate::Failure;
use crate::program::hotset;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use storm::{Report, Request};

#[derive(Args)]
pub struct Storm {
    /// The first storm's seed; the next have the numbers after it
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Begin no storm after this time; one takes a minute or so
    #[arg(long, value_name = "M", default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// At most so many storms
    #[arg(long, value_name = "N", default_value_t = u64::MAX)]
    storms: u64,
    /// Where files go, 200 MB; made if missing
    #[arg(long, value_name = "DIRECTORY", default_value = "var/storm")]
    directory: PathBuf,
    /// Have an origin lose writes that it acknowledges, which must be found
    #[arg(long, hide = true)]
    canary: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("give a number of minutes".into()),
    }
}

pub fn run(command: &Storm) -> Result<(), Failure> {
    let request = Request {
        seed: command.seed,
        time: Duration::from_secs_f64(command.minutes * 60.0),
        storms: command.storms,
        folder: command.directory.clone(),
        program: hotset()?,
        canary: command.canary,
    };
    let done = |seed: u64, about: &str| eprintln!("storm {seed}: {about}");
    let report = storm::run(&request, &done).map_err(Failure::Runtime)?;
    if command.json {
        let text = serde_json::to_string_pretty(&report).map_err(Failure::runtime)?;
        println!("{text}");
    } else {
        show(&report);
    }
    match report.violations.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Runtime(format!(
            "{}; again with `{}`",
            first.what, first.replay
        ))),
    }
}

fn show(report: &Report) {
    println!(
        "{} storms, {} lives, {} requests, the longest {:.1} s; reports within {:.2} s; load up to {:.1}",
        report.storms,
        report.lives,
        report.requests,
        report.longest_request_s,
        report.longest_status_s,
        report.load_max
    );
    for (what, times) in &report.met {
        println!("{times:>8}  {what}");
    }
    for violation in &report.violations {
        println!("life {}: {}", violation.life, violation.what);
        violation
            .before
            .iter()
            .for_each(|what| println!("    {what}"));
    }
}
