//! What is made from the definitions of commands and parameters.

use crate::Failure;
use crate::cli::Cli;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{Write, stdout};

fn print(bytes: &[u8]) -> Result<(), Failure> {
    stdout().write_all(bytes).map_err(Failure::runtime)
}

pub fn reference() -> Result<(), Failure> {
    print(control::config::reference().as_bytes())
}

pub fn openapi() -> Result<(), Failure> {
    print(web::description().as_bytes())
}

pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hotset", &mut script);
    print(&script)
}

pub fn manual() -> Result<(), Failure> {
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(Cli::command());
    manual.render(&mut page).map_err(Failure::runtime)?;
    print(&page)
}
