//! The state that all handlers share.

use crate::daemon::DaemonLink;
use crate::gate::ClientGate;
use crate::tokens::Tokens;
use advise::sizing::PriceBook;
use std::ops::Deref;
use std::sync::Arc;

/// The daemon, the rights of clients, and the prices.
pub struct AppShared {
    pub daemon: DaemonLink,
    pub gate: ClientGate,
    pub(crate) secure: bool,
    /// The costs of pools, if known.
    pub(crate) prices: Option<PriceBook>,
}

/// A handle of the shared state.
#[derive(Clone)]
pub struct App(Arc<AppShared>);

impl Deref for App {
    type Target = AppShared;
    fn deref(&self) -> &AppShared {
        &self.0
    }
}

impl App {
    pub fn new(daemon: DaemonLink, tokens: Tokens, secure: bool, prices: Option<PriceBook>) -> App {
        let gate = ClientGate::new(tokens, secure);
        App(Arc::new(AppShared {
            daemon,
            gate,
            secure,
            prices,
        }))
    }
}
