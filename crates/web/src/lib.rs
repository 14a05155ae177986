//! The web server beside the daemon: metrics, an API and a page.
//!
//! Invariants:
//!     the daemon is reached by its control socket alone, over few connections
//!     whatever clients do here: clients share one report a second
//!     without a token a client gets nothing but the page's own files, the sign-in and the
//!     daemon's health
//!     a change needs the role of an operator, and of a browser a token against forgery
//!
//! - [`api`]: resources, and their description.
//! - [`serve`]: connections, TLS and limits.
//! - [`gate`] and [`tokens`]: the rights of clients.
//! - [`daemon`]: the other end of the control socket, and [`report`] its reports.
//! - [`events`]: the differences from one report to the next.
//! - [`history`]: the daemon's figures over time.
//! - [`notify`]: troubles announced by webhook and mail.
//! - [`page`]: the files of the page.
//! - [`metrics`]: the daemon's status for Prometheus.
//!
//! Not here: anything that a daemon does by itself, and the page's source (`web/`).

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod api;
mod app;
mod daemon;
mod events;
mod gate;
mod history;
#[cfg(any(test, feature = "fuzzing"))]
mod hostile;
mod metrics;
mod notify;
mod page;
mod problem;
mod report;
mod routes;
#[cfg(test)]
mod sample;
mod serve;
mod tokens;

pub use api::description;
pub use api::{BlockDevice, block_devices};
#[cfg(feature = "fuzzing")]
pub use hostile::hostile;

use advise::sizing::PriceBook;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Threads that wait for the daemon: for questions and changes, for the report, for recordings,
/// and one for lines on standard error.
const BLOCKING_MAX: usize = daemon::CONNECTIONS_MAX + 1 + daemon::RECORDINGS_MAX + 1;

/// Options of the server.
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The daemon's control socket.
    pub control: PathBuf,
    /// A directory for the hashes of the tokens, the events and the history; made if missing.
    pub state: PathBuf,
    /// A certificate chain and its key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The costs of pools.
    pub prices: Option<PriceBook>,
    /// A URL of http or https that troubles are posted to.
    pub webhook: Option<String>,
    /// The certificates of the only authorities of that URL's server to trust, in PEM.
    pub webhook_ca: Option<PathBuf>,
    /// The address for mail on troubles, and the program that sends it.
    pub mail: Option<(String, PathBuf)>,
}

/// Serves until SIGINT or SIGTERM. An error is the problem with its remedy.
pub fn run(options: Options) -> Result<(), String> {
    if options.tls.is_none() && !options.listen.ip().is_loopback() {
        return Err(format!(
            "{} can be reached by other machines, which needs TLS; give --tls-certificate and \
             --tls-key, or listen on 127.0.0.1",
            options.listen
        ));
    }
    let tls = options.tls.as_ref().map(serve::Tls::of).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()
        .map_err(|error| format!("no event loop can be had: {error}"))?;
    runtime.block_on(async {
        let listener = serve::listen(options.listen).await?;
        let (tokens, fresh) = tokens::Tokens::load_or_make(&options.state.join("tokens"))?;
        let events = events::EventHistory::load(&options.state.join("events"));
        let (history, wrong) = history::DaemonHistory::load(&options.state.join("history"));
        wrong.iter().for_each(|why| serve::warn(why));
        let notifier = notify::Notifier::default();
        if let Some(url) = &options.webhook {
            let webhook = notify::Webhook::new(url, options.webhook_ca.as_deref())?;
            notifier.begin(webhook, &options.state)?;
        }
        if let Some((to, program)) = options.mail {
            notifier.begin(notify::Mail::new(&to, program)?, &options.state)?;
        }
        let daemon = daemon::DaemonLink::new(options.control, events, history, notifier);
        let app = app::App::new(daemon, tokens, tls.is_some(), options.prices);
        tokio::spawn(routes::watch(app.clone()));
        for line in fresh {
            // A closed standard output keeps nothing from being served.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        serve::serve(listener, tls, routes::router(app)).await
    })
}
