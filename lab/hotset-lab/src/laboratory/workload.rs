//! `hotset-lab trace workload`.

use super::formats::ALL_FORMATS;
use crate::CommandFailure;
use clap::Args;
use command::convert::{TraceOutput, output_format};
use command::print_line;
use command::table::count;
use command::traces::format;
use experiment::registry::{ALL, named};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use trace::Format;

#[derive(Args)]
pub struct WorkloadCommand {
    /// Name of the workload: an experiment of `hotset-lab list`
    name: String,
    /// The file to write: .hottrace, .parquet, .csv or .csv.zst
    file: PathBuf,
    /// The form to write, if not given by the file's ending
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to_format: Option<Format>,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
    /// Draws files, requests and users
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// A small part, in seconds
    #[arg(long)]
    quick: bool,
}

pub fn run(workload: &WorkloadCommand) -> Result<(), CommandFailure> {
    let Some(experiment) = named(&workload.name) else {
        let known: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
        return Err(CommandFailure::Usage(format!(
            "no workload is called {:?}; choose of {}",
            workload.name,
            known.join(", ")
        )));
    };
    let format = output_format(&workload.file, workload.to_format, &ALL_FORMATS)?;
    let output = TraceOutput::create(&workload.file, format, workload.force, &ALL_FORMATS)?;
    let output = Rc::new(RefCell::new(output));
    let (failed, requests) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0)));
    let sink = {
        let (output, failed, requests) = (output.clone(), failed.clone(), requests.clone());
        Box::new(move |record: &trace::TraceRecord| {
            requests.set(requests.get() + usize::from(!record.is_flush()));
            output.borrow_mut().write(record).map_err(|failure| {
                failed.set(Some(failure));
                "the trace could not be written".to_owned()
            })
        })
    };
    let load = experiment.load.as_ref().expect("the registry has loads");
    let recorded = (load.record)(workload.seed, workload.quick, sink);
    let seconds = match failed.take() {
        Some(failure) => return Err(failure),
        None => recorded.map_err(CommandFailure::Runtime)?,
    };
    let output = Rc::into_inner(output).expect("the recording has ended");
    output.into_inner().finish()?;
    print_line(format!(
        "{}: {} in {seconds:.1} simulated s",
        workload.file.display(),
        count(requests.get(), "request")
    ))
}
