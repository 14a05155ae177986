//! The state that all handlers share.

use crate::daemon::Daemon;
use crate::gate::Gate;
use crate::tokens::Tokens;
use advise::sizing::PriceBook;
use std::ops::Deref;
use std::sync::Arc;

/// The daemon, the rights of clients, and the prices.
pub struct Shared {
    pub daemon: Daemon,
    pub gate: Gate,
    pub(crate) secure: bool,
    /// The costs of pools, if known.
    pub(crate) prices: Option<PriceBook>,
}

/// A handle of the shared state.
#[derive(Clone)]
pub struct App(Arc<Shared>);

impl Deref for App {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub fn new(daemon: Daemon, tokens: Tokens, secure: bool, prices: Option<PriceBook>) -> App {
        let gate = Gate::new(tokens, secure);
        App(Arc::new(Shared {
            daemon,
            gate,
            secure,
            prices,
        }))
    }
}
