//! Connections of commands to a running daemon, and changes of the daemon and its configuration
//! file.

use crate::CommandFailure;
use clap::Args;
use command::print_line;
use control::client::ControlClient;
use control::protocol::{ControlRequest, Reply};
use std::io::Write;
use std::path::PathBuf;

/// The control socket of a daemon, where nothing else is given.
pub const CONTROL: &str = "/run/hotset/control.sock";
/// The variable of the environment that names another socket.
pub const CONTROL_VARIABLE: &str = "HOTSET_CONTROL";

#[derive(Args)]
pub struct ControlOption {
    /// The daemon's control socket
    #[arg(
        long,
        value_name = "PATH",
        env = CONTROL_VARIABLE,
        default_value = CONTROL
    )]
    pub control: PathBuf,
}

/// A change of the daemon, and of its configuration file unless temporary.
#[derive(Args)]
pub struct ChangeOptions {
    #[command(flatten)]
    pub control: ControlOption,
    /// Leave the configuration file as it is: the change holds until the daemon ends
    #[arg(long)]
    pub temporary: bool,
}

impl ControlOption {
    /// A change of this daemon that the file keeps.
    pub fn lasting(self) -> ChangeOptions {
        ChangeOptions {
            control: self,
            temporary: false,
        }
    }

    /// A temporary change of this daemon.
    pub fn once(self) -> ChangeOptions {
        ChangeOptions {
            control: self,
            temporary: true,
        }
    }
}

impl ChangeOptions {
    /// Carries out `request`, in the configuration file too unless temporary.
    pub fn carry_out(&self, request: &ControlRequest) -> Result<(), CommandFailure> {
        let mut client =
            ControlClient::connect(&self.control.control).map_err(CommandFailure::runtime)?;
        let done = client.change(request, self.temporary, waits);
        made(&done.map_err(CommandFailure::runtime)?)
    }
}

/// Prints the outcome of a change.
pub fn made(reply: &Reply) -> Result<(), CommandFailure> {
    match reply {
        Reply::Made(line) => print_line(line),
        _ => Ok(()),
    }
}

/// Reports that a change takes a while.
pub fn waits(change: &str, before: usize) {
    // Less than a second says nothing to a script or a person.
    let before = match before {
        0 => "the daemon works on it".to_owned(),
        1 => "another change comes first".to_owned(),
        more => format!("{more} other changes come first"),
    };
    let mut stderr = std::io::stderr();
    let _ = writeln!(
        stderr,
        "hotset: {before}; it goes on though you leave, and `hotset job outcome {change}` says what \
         came of it"
    );
}

/// Reads an interval in seconds, from 0.05 to a day.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("choose from 0.05 to 86400".into())
    }
}
