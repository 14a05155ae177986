//! Running a changed configuration.
//!
//! Invariants:
//!     a step that cannot be done while the node runs ⟹ none is done
//!     each step is done or leaves everything as it is; the first that fails is the last
//!     all are done ⟹ the node runs the configuration, and knows its files as they were read

use super::Node;
use super::refusal::Refusal;
use crate::event::Event;
use crate::platform::Platform;
use control::plan::{Verdict, plan, verdict};

impl<P: Platform> Node<P> {
    /// Reads the configuration and runs it; what has changed, in a line each.
    pub(super) async fn reload(&self) -> Result<Vec<String>, Refusal> {
        let wanted = self.platform.configuration().await?;
        let steps = plan(&self.devices.config(), &wanted);
        let lines = |of: &[control::plan::Step]| {
            let lines = of.iter().map(|step| step.show(&wanted.files));
            lines.collect::<Vec<_>>()
        };
        if let Verdict::NeedsRestart(_) = verdict(&steps) {
            let refused: Vec<_> = steps.into_iter().filter(|s| s.change.is_err()).collect();
            return Err(format!(
                "{}; nothing was changed",
                lines(&refused).join("\n")
            ));
        }
        for (done, step) in steps.iter().enumerate() {
            let Ok(change) = &step.change else { continue };
            if let Err(why) = self.apply(change).await {
                let before = match done {
                    0 => "nothing was changed".to_owned(),
                    _ => format!("changed before it: {}", lines(&steps[..done]).join("; ")),
                };
                return Err(format!("{}: {why}; {before}", step.show(&wanted.files)));
            }
            let what = step.show(&wanted.files);
            self.platform.event(Event::Reloaded { what });
        }
        let done = lines(&steps);
        self.devices.adopt(wanted);
        Ok(done)
    }
}
