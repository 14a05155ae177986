//! `hotset-lab live`: the loads of published evaluations on real files, through real servers.

mod access_log;
mod database;
mod device;
mod dss;
mod log;
mod mail;
mod mail_store;
mod oltp;
mod options;
pub mod report;
mod rounds;
mod stage;
mod stress;
mod tpch;
mod web;

use crate::CommandFailure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum LiveCommand {
    /// Send the requests of an access log to nginx or Apache, each once the one before is answered
    ///
    /// The server has a file for each address of the log, as large as the log says, on PATH. The page
    /// cache is dropped before each list. Figures of a published evaluation are printed beside.
    Log(log::LiveLog),
    /// Have users load the pages of a web site from nginx or Apache, think, and load more
    ///
    /// The server has HTML pages with 11 or 12 images each, on PATH. Several numbers of users are a
    /// sweep. Figures of a published evaluation are printed beside.
    Web(web::LiveWeb),
    /// Sweep a file by fio: random and sequential requests, more and more at a time
    ///
    /// A file of SIZE on PATH is read by direct requests of 4 KiB and 256 KiB. With --yes the file is
    /// written too. Two devices are compared by reads alone. Needs fio.
    Stress(stress::LiveStress),
    /// Commit transactions of pgbench to a PostgreSQL on PATH
    ///
    /// The server stops before each phase, so that its memory is empty. Needs root and PostgreSQL.
    Oltp(oltp::LiveOltp),
    /// Ask a PostgreSQL on PATH the 22 queries of TPC-H, one after the other
    ///
    /// The server stops before each phase. Figures of a published evaluation are printed beside.
    /// Needs root and PostgreSQL.
    Dss(dss::LiveDss),
    /// Read and change pages of a mail store, and say whether its limits are kept
    ///
    /// Five databases with their logs are files on PATH; direct requests read and write them.
    Mail(mail::LiveMail),
}

pub fn run(command: &LiveCommand) -> Result<(), CommandFailure> {
    match command {
        LiveCommand::Log(command) => log::run(command),
        LiveCommand::Web(command) => web::run(command),
        LiveCommand::Stress(command) => stress::run(command),
        LiveCommand::Oltp(command) => oltp::run(command),
        LiveCommand::Dss(command) => dss::run(command),
        LiveCommand::Mail(command) => mail::run(command),
    }
}
