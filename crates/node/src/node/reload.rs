//! Switching to a changed configuration.
//!
//! Invariants:
//!     a step cannot be done while the node runs ⟹ no step is done
//!     each step is done or changes nothing; the first that fails is the last
//!     all are done ⟹ the node runs the configuration, and knows its files as they were read

use super::Node;
use super::refusal::Refusal;
use crate::event::NodeEvent;
use crate::platform::Platform;
use block::Nanos;
use control::config::Config;
use control::plan::{Change, PlanStep, PlanVerdict, plan, verdict};

/// Time limit of reading the files.
const READ_MAX: Nanos = Nanos::from_secs(30);

impl<P: Platform> Node<P> {
    /// Reads the configuration and switches to it. Returns a line for each change.
    pub(super) async fn reload(&self) -> Result<Vec<String>, Refusal> {
        let reading = self.platform.configuration();
        let wanted = self.env().timer.timeout(READ_MAX, reading).await;
        let wanted = wanted.ok_or_else(|| {
            format!(
                "the files of the configuration cannot be read within {READ_MAX}, and nothing was \
                 changed; see to their file system"
            )
        })??;
        let steps = plan(&self.devices.config(), &wanted);
        let lines = |of: &[PlanStep]| {
            let lines = of.iter().map(|step| step.show(&wanted.files));
            lines.collect::<Vec<_>>()
        };
        if let PlanVerdict::NeedsRestart(_) = verdict(&steps) {
            let refused: Vec<_> = steps.into_iter().filter(|s| s.change.is_err()).collect();
            return Err(format!(
                "{}; nothing was changed",
                lines(&refused).join("\n")
            ));
        }
        let renewed = self.renew(&wanted, &steps)?;
        for (done, step) in steps.iter().enumerate() {
            let Ok(change) = &step.change else { continue };
            if let Err(why) = self.apply(change).await {
                let before = [renewed.clone(), lines(&steps[..done])].concat();
                let before = match before.is_empty() {
                    true => "nothing was changed".to_owned(),
                    false => format!("changed before it: {}", before.join("; ")),
                };
                return Err(format!("{}: {why}; {before}", step.show(&wanted.files)));
            }
            let what = step.show(&wanted.files);
            self.platform.event(NodeEvent::Reloaded { what });
        }
        let done = [renewed, lines(&steps)].concat();
        self.devices.adopt(wanted);
        Ok(done)
    }

    /// Makes listeners without changes show the present content of their files, such as a renewed
    /// certificate. Returns a line for each listener that shows new content.
    fn renew(&self, wanted: &Config, steps: &[PlanStep]) -> Result<Vec<String>, Refusal> {
        let is_opened = |place: &str| {
            let opens = |step: &PlanStep| match &step.change {
                Ok(Change::OpenListener(listen) | Change::RenewListener(listen)) => {
                    listen.place() == place
                }
                _ => false,
            };
            steps.iter().any(opens)
        };
        let mut renewed = Vec::new();
        for listen in wanted
            .listeners
            .iter()
            .filter(|listen| !is_opened(&listen.place()))
        {
            let place = wanted.files.place(listen.line);
            for frontend in &self.frontends {
                let shows = frontend.renew(listen);
                let shows = shows.map_err(|error| {
                    let done = match renewed.is_empty() {
                        true => "nothing was changed".to_owned(),
                        false => format!("changed before it: {}", renewed.join("; ")),
                    };
                    format!("{place}: {error}; {done}")
                })?;
                if shows {
                    let what = format!(
                        "{place}: listener {} shows what its files have now",
                        listen.place()
                    );
                    self.platform
                        .event(NodeEvent::Reloaded { what: what.clone() });
                    renewed.push(what);
                }
            }
        }
        Ok(renewed)
    }
}
