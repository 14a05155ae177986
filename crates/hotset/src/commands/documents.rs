//! Products of the definitions of commands and parameters.

use crate::CommandFailure;
use crate::definition::{COMPLETE, MANUAL};
use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use command::manual::{Manual, RoffPage, write_page};
use command::{EXIT_STATUSES, print};
use control::config;
use control::status::NamedCounters;
use std::path::Path;

/// The reference of the configuration, or of a command, in Markdown.
pub fn reference(words: &[String], mut program: Command) -> Result<(), CommandFailure> {
    program.build();
    match words {
        [] => print(config::reference()),
        [word] if word == "counters" => print(counters()),
        [word] if word == "exit-statuses" => print(exit_statuses()),
        words => {
            let words = words.join(" ");
            let synopses = Manual::synopses(&program, &words);
            print(format!("{synopses}{}", MANUAL.markdown(&program, &words)))
        }
    }
}

fn counters() -> String {
    let mut out = "| Counter | Meaning |\n|---|---|\n".to_owned();
    for (name, help) in NamedCounters::described() {
        out += &format!("| `{name}` | {} |\n", help.replace('|', "\\|"));
    }
    out
}

fn exit_statuses() -> String {
    let mut out = "| Exit status | Meaning |\n|---|---|\n".to_owned();
    for (status, meaning) in EXIT_STATUSES {
        out += &format!("| {status} | {meaning} |\n");
    }
    out
}

pub fn openapi() -> Result<(), CommandFailure> {
    print(web::description())
}

pub fn completions(shell: Shell) -> Result<(), CommandFailure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let name = shell.to_string();
    let shell = shells.completer(&name).expect("a shell that clap knows");
    shell
        .write_registration(COMPLETE, "hotset", "hotset", "hotset", &mut script)
        .map_err(CommandFailure::runtime)?;
    print(script)
}

pub fn manual(directory: Option<&Path>, mut program: Command) -> Result<(), CommandFailure> {
    program.build();
    let Some(directory) = directory else {
        return print(MANUAL.page(&program, "hotset").finish());
    };
    MANUAL.write(&program, directory)?;
    write_page(directory, "hotset.toml.5", &configuration())
}

/// The manual page of the configuration file.
fn configuration() -> String {
    let mut page = RoffPage::new("hotset.toml", 5, "configuration of hotset");
    page.heading("DESCRIPTION");
    page.text(
        "The configuration of `hotset serve` is a file in TOML, /etc/hotset/hotset.toml unless `--config` or the \
         variable `HOTSET_CONFIG` names another. Files of the directory conf.d beside it whose names end in .toml are \
         read after it, in the order of their names.\n\n\
         `hotset init` writes a first configuration, `hotset check` finds every error of one, and `hotset reload` \
         applies it to a running daemon.",
    );
    for section in config::sections() {
        page.heading(section.title);
        page.text(section.about);
        for row in section.rows {
            let default = match row.default_text() {
                text if row.required => text,
                text => format!("default {text}"),
            };
            page.item(row.name, &format!("{} ({}; {default})", row.help, row.form));
        }
    }
    page.heading("EXAMPLES");
    page.code(
        "[[device]]\nname = \"disk\"\npath = \"/dev/disk/by-id/ata-SLOW_DISK\"\n\n\
         [[device]]\nname = \"ssd\"\npath = \"/dev/disk/by-id/nvme-FAST_SSD\"\n\n\
         [[pool]]\nname = \"fast\"\ndevices = [\"ssd\"]\n\n\
         [[volume]]\nname = \"data\"\norigin = \"disk\"\npool = \"fast\"\n\n\
         [[listen]]\nunix = \"/run/hotset/nbd.sock\"",
    );
    page.heading("SEE ALSO");
    page.text("hotset(1), hotset-check(1), hotset-serve(1)");
    page.finish()
}
