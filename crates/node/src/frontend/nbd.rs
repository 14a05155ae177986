//! NBD: a volume is an export.

use super::{Frontend, VolumeAbout, nbd_memory};
use crate::Later;
use crate::event::NodeEvent;
use crate::platform::Platform;
use block::{Device, Gate, IoResult, Nanos};
use control::config::Config;
use control::status::{Nbd, Status};
use nbd::serve::{CONNECTIONS_MAX, ExportOptions, NbdServer, ServerLimits, connections_for};
use std::rc::Rc;

/// An NBD server; its owner has the listeners.
pub struct NbdFrontend<D: Device> {
    /// The server of all accepted connections.
    pub server: Rc<NbdServer<D>>,
}

impl<D: Device> NbdFrontend<D> {
    /// Makes a server within the limits of `config`.
    pub fn new<P: Platform>(config: &Config, platform: &P) -> IoResult<NbdFrontend<D>> {
        let env = platform.local().env();
        let memory = nbd_memory(config, &env);
        let connections = config.daemon.connections.as_ref();
        let connections = connections.map(|number| number.value);
        let connections =
            connections.unwrap_or_else(|| CONNECTIONS_MAX.min(connections_for(memory as u64)));
        let limits = ServerLimits {
            connections_max: connections,
            handshakes_max: connections,
            requests_max: config.daemon.requests.value,
            memory_bytes_max: memory,
            ..ServerLimits::default()
        };
        let events = platform.clone();
        let log = Rc::new(move |line: &str| {
            let what = line.to_owned();
            events.event(NodeEvent::Frontend { what });
        });
        let server = NbdServer::new(env, limits, None, log)?;
        Ok(NbdFrontend { server })
    }
}

impl<D: Device> Frontend<D> for NbdFrontend<D> {
    fn add(&self, name: &str, gate: Gate<D>, about: &VolumeAbout) -> IoResult {
        if !about.frontends.nbd {
            return Ok(());
        }
        let options = ExportOptions {
            description: about.description.clone(),
            read_only: about.read_only,
        };
        self.server.add(name, gate, &options)
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<D>,
        about: &'a VolumeAbout,
        grace: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            match about.frontends.nbd {
                true if self.server.offers(name) => Ok(()),
                true => self.add(name, gate.clone(), about),
                false => self.withdraw(name, grace).await,
            }
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            match self.server.offers(name) {
                true => self.server.remove(name, grace).await,
                false => Ok(()),
            }
        })
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
