//! Changes of a running daemon, and of its configuration file.

use crate::Failure;
use crate::cli::{Change, Control};
use control::client::Client;
use control::protocol::Request;

impl Control {
    /// A change that no file says.
    pub fn once(self) -> Change {
        Change {
            control: self,
            temporary: true,
        }
    }
}

impl Change {
    /// Has `request` carried out, and the file say the same unless it is temporary.
    pub fn carry_out(&self, request: &Request) -> Result<(), Failure> {
        let mut client = Client::connect(&self.control.control).map_err(Failure::runtime)?;
        amend::change(&mut client, request, self.temporary).map_err(Failure::runtime)
    }
}
