//! `hotset top`: the status of a daemon, live in a terminal.

mod shown;
mod view;

use crate::CommandFailure;
use crate::commands::daemon::{ControlOption, interval};
use control::client::ControlClient;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use shown::TopShown;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Top {
    #[command(flatten)]
    control: ControlOption,
    /// The interval, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
}

pub fn run(command: &Top) -> Result<(), CommandFailure> {
    if !std::io::stdout().is_terminal() {
        let what = "`hotset top` needs a terminal; use `hotset status --watch`";
        return Err(CommandFailure::Runtime(what.into()));
    }
    // A missing daemon is reported as by any command.
    let client =
        ControlClient::connect(&command.control.control).map_err(CommandFailure::runtime)?;
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    let ended = live(command, client, &mut terminal);
    ratatui::restore();
    ended.map_err(unusable)
}

fn unusable(cause: std::io::Error) -> CommandFailure {
    let what = "the terminal cannot be used; use `hotset status --watch`";
    CommandFailure::of(what, cause)
}

fn live(
    command: &Top,
    client: ControlClient,
    terminal: &mut ratatui::DefaultTerminal,
) -> std::io::Result<()> {
    let mut client = Some(client);
    let mut shown = TopShown::new();
    let interval = Duration::from_secs_f64(command.interval);
    let mut due = Instant::now();
    loop {
        if due <= Instant::now() {
            let asked = match client.take() {
                Some(client) => Ok(client),
                None => ControlClient::connect(&command.control.control),
            };
            match asked.and_then(|mut client| Ok((client.status()?, client))) {
                Ok((status, connected)) => {
                    shown.take(status);
                    client = Some(connected);
                }
                Err(error) => shown.away = Some(error.to_string()),
            }
            due = Instant::now() + interval;
        }
        terminal.draw(|frame| view::draw(frame, &shown))?;
        if event::poll(due.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !shown.press(key)
        {
            return Ok(());
        }
    }
}
