//! `hotset web`.

use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct WebCommand {
    #[command(flatten)]
    control: ControlOption,
    /// The address to listen on; other than on this machine only with TLS
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// A directory for the hashes of the tokens, for events and the history; made if missing
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/hotset/web")]
    state: PathBuf,
    /// A certificate chain in PEM: use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// A price book, for the costs of pools in advice; `hotset advise --example-prices` prints one
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Post each trouble that begins or ends to this URL, as JSON
    #[arg(
        long,
        value_name = "URL",
        env = "HOTSET_WEBHOOK",
        hide_env_values = true
    )]
    webhook: Option<String>,
    /// Certificates of the authorities to trust in place of this machine's, for a webhook of https
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_ca: Option<PathBuf>,
    /// Mail each trouble that begins or ends to this address
    #[arg(long, value_name = "ADDRESS", env = "HOTSET_MAIL_TO")]
    mail_to: Option<String>,
    /// The program that sends mail
    #[arg(long, value_name = "PROGRAM", default_value = "/usr/sbin/sendmail")]
    sendmail: PathBuf,
}

pub fn run(command: WebCommand) -> Result<(), CommandFailure> {
    let prices = command.prices.as_deref();
    let options = web::Options {
        listen: command.listen,
        control: command.control.control,
        state: command.state,
        tls: command.tls_certificate.zip(command.tls_key),
        prices: prices.map(super::advise::price_book).transpose()?,
        webhook: command.webhook,
        webhook_ca: command.webhook_ca,
        mail: command.mail_to.map(|to| (to, command.sendmail)),
    };
    web::run(options).map_err(CommandFailure::Runtime)
}
