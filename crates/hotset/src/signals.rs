//! The signals of the daemon, as requests to its shard.

use crate::log;
use block::{Driver, ShardId, Signal};
use node::Priority;
use shard::{Local, Mesh};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Requests by signals.
#[derive(Default)]
pub struct SignalRequest {
    end: Cell<bool>,
    reload: Cell<bool>,
    changed: Signal,
}

impl SignalRequest {
    fn ask(&self, what: &Cell<bool>) {
        what.set(true);
        self.changed.notify();
    }

    /// True once the daemon is to end.
    pub fn is_for_end(&self) -> bool {
        self.end.get()
    }

    /// Returns once the daemon is to end.
    pub async fn for_end(&self) {
        self.changed.until(|| self.is_for_end()).await;
    }

    /// Returns when a reload was asked for, once for all requests meanwhile.
    pub async fn for_reload(&self) {
        let reload = || self.reload.replace(false).then_some(());
        self.changed.until_some(reload).await;
    }
}

/// A signal that comes so soon after the first asks for the same.
const SECOND_SIGNAL: Duration = Duration::from_secs(1);

/// Ends the daemon, whose shard is `home`, at the first SIGTERM or SIGINT, and the process at one
/// that comes [`SECOND_SIGNAL`] later or after that. SIGHUP makes the daemon read its configuration
/// again.
pub fn listen<D: Driver>(home: ShardId, mesh: Mesh<D>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let wait = move || {
        let mut asked: Option<Instant> = None;
        for signal in signals.forever() {
            if signal != SIGHUP
                && let Some(first) = asked
            {
                // A service manager and a terminal may both send the first.
                if first.elapsed() < SECOND_SIGNAL {
                    continue;
                }
                log::line(
                    Priority::Warning,
                    "ended by a second signal, with requests in flight",
                );
                log::flush();
                std::process::exit(1);
            }
            if signal != SIGHUP {
                asked = Some(Instant::now());
            }
            mesh.post(home, move |local: &Local<D>| {
                let asked = local.get::<SignalRequest>().expect("put at boot");
                match signal {
                    SIGHUP => asked.ask(&asked.reload),
                    _ => asked.ask(&asked.end),
                }
            });
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map(drop)
}
