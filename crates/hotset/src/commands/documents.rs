//! What is made from the definitions of commands and parameters.

use crate::Failure;
use clap::Command;
use clap_complete::Shell;
use command::print;
use std::path::Path;

pub fn reference() -> Result<(), Failure> {
    print(control::config::reference())
}

pub fn openapi() -> Result<(), Failure> {
    print(web::description())
}

pub fn completions(shell: Shell, mut of: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut of, "hotset", &mut script);
    print(script)
}

pub fn manual(of: Command, directory: Option<&Path>) -> Result<(), Failure> {
    if let Some(directory) = directory {
        return clap_mangen::generate_to(of, directory).map_err(|cause| {
            Failure::Runtime(format!(
                "{}: {cause}; name a directory",
                directory.display()
            ))
        });
    }
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(of);
    manual.render(&mut page).map_err(Failure::runtime)?;
    print(page)
}
