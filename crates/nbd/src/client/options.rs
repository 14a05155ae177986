//! Options of a client: its server, its timeouts.

use crate::tls::Dialer;
use block::{Address, BoxDevice, IoResult, Nanos};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Reason for which an export is another than before. `None` if there is no sign of that, `Err` if
/// the check fails.
pub type Recognised = Pin<Box<dyn Future<Output = IoResult<Option<String>>>>>;
/// Looks at the export behind a device.
pub type Recognise = Rc<dyn Fn(BoxDevice) -> Recognised>;

/// The server of a client, and its timeouts.
#[derive(Clone)]
pub struct Options {
    /// The server.
    pub address: Address,
    /// The export; empty for the server's default.
    pub export: String,
    /// The authority to trust. When set, a server without TLS is refused.
    pub tls: Option<Dialer>,
    /// Requests in flight; more wait.
    pub requests_max: u32,
    /// Time to connect and negotiate.
    pub connect_timeout: Nanos,
    /// A server that has a reply pending and sends nothing for this time counts as lost, at the
    /// latest after twice this time.
    pub reply_timeout: Nanos,
    /// The first pause before connecting again; each is twice the last.
    pub retry_pause: Nanos,
    /// The longest pause before connecting again.
    pub retry_pause_max: Nanos,
    /// Longest wait of a request for a lost connection. The client keeps connecting, and later
    /// requests succeed once the connection is back.
    pub give_up_after: Nanos,
    /// Number of times that one request is sent before it fails.
    pub attempts_max: u32,
    /// Ask again for a write that forces unit access when its connection was lost. The
    /// server may still carry out the first, and undo a later write to the same place.
    pub repeat_durable_writes: bool,
    /// Check of each connection but the first, before any other request goes by that connection.
    pub recognise: Option<Recognise>,
}

impl Options {
    /// The default timeout: 30 s in all.
    pub fn new(address: Address, export: impl Into<String>) -> Options {
        Options {
            address,
            export: export.into(),
            tls: None,
            requests_max: 64,
            connect_timeout: Nanos::from_secs(10),
            reply_timeout: Nanos::from_secs(15),
            retry_pause: Nanos::from_millis(100),
            retry_pause_max: Nanos::from_secs(5),
            give_up_after: Nanos::from_secs(30),
            attempts_max: 5,
            repeat_durable_writes: true,
            recognise: None,
        }
    }

    /// Name of the device in errors and reports.
    pub(super) fn name(&self) -> String {
        match &self.address {
            Address::Unix(path) => format!("nbd+unix:{path}/{}", self.export),
            Address::Tcp(host) => format!("nbd:{host}/{}", self.export),
        }
    }
}
