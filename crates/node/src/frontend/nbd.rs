//! NBD: every volume is an export that has no door of its own, or is shared.

use super::{About, Frontend, frontend_memory};
use crate::Later;
use crate::event::Event;
use crate::platform::Platform;
use block::{Device, Gate, IoResult, Nanos};
use control::config::Config;
use control::status::{Nbd, Status};
use nbd::serve::{CONNECTIONS_MAX, ExportOptions, Limits, Server, connections_for};
use std::collections::HashSet;
use std::rc::Rc;

/// A server; where it listens is its owner's.
pub struct NbdFrontend<D: Device> {
    /// Serves what its listeners accept.
    pub server: Rc<Server<D>>,
    /// Volumes that have a door of their own.
    elsewhere: HashSet<String>,
}

impl<D: Device> NbdFrontend<D> {
    /// A server within the limits of `config`.
    pub fn new<P: Platform>(config: &Config, platform: &P) -> IoResult<NbdFrontend<D>> {
        let env = platform.local().env();
        let memory = frontend_memory(config, &env);
        let connections = config.daemon.connections.as_ref();
        let connections = connections.map(|number| number.value);
        let connections =
            connections.unwrap_or_else(|| CONNECTIONS_MAX.min(connections_for(memory as u64)));
        let limits = Limits {
            connections_max: connections,
            handshakes_max: connections,
            requests_max: config.daemon.requests.value,
            memory_bytes_max: memory,
            ..Limits::default()
        };
        let events = platform.clone();
        let log = Rc::new(move |line: &str| {
            let what = line.to_owned();
            events.event(Event::Frontend { what });
        });
        let server = Server::new(env, limits, None, log)?;
        Ok(NbdFrontend {
            server,
            elsewhere: config.behind_other_doors().collect(),
        })
    }
}

impl<D: Device> Frontend<D> for NbdFrontend<D> {
    fn add(&self, name: &str, gate: Gate<D>, about: &About) -> IoResult {
        if self.elsewhere.contains(name) && !about.shared {
            return Ok(());
        }
        let options = ExportOptions {
            description: about.description.clone(),
            read_only: about.read_only,
        };
        self.server.add(name, gate, &options)
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        if self.elsewhere.contains(name) && !self.server.offers(name) {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.server.remove(name, grace))
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(self.server.shut_down(grace))
    }

    fn stats(&self, status: &mut Status) {
        let stats = self.server.stats();
        status.nbd = Nbd {
            listeners: Vec::new(),
            connections: stats.connections,
            handshakes: stats.handshakes,
            connections_failed: stats.failed,
            connections_refused: stats.refused,
            requests: stats.reads + stats.writes + stats.flushes + stats.others,
            errors: stats.errors,
        };
    }
}
