//! Applies a canary to a life.

use crate::canary::Canary;
use crate::devil::{Effect, Rule, Verb};
use crate::machine::Process;
use crate::plan::BYSTANDERS;
use crate::world::World;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

impl World<'_> {
    /// Applies the canary to a life that begins.
    pub fn canary(&self, process: &Process) {
        let Some(canary) = self.canary else {
            return;
        };
        self.found.met("Canary");
        let origin = self.plan.volumes[0].origin;
        let devices = self.plan.below(origin);
        let all = |verbs: &[Verb], effect| {
            devices
                .iter()
                .for_each(|device| self.rule(device, verbs, effect))
        };
        match canary {
            Canary::LostWrite => all(&[Verb::Write], Effect::Forget),
            Canary::Silence => all(&[Verb::Read, Verb::Write], Effect::Hang),
            Canary::Death => process.signal(libc::SIGABRT),
            Canary::LateReport => process.signal(libc::SIGSTOP),
            Canary::Bystander => self.spoil(BYSTANDERS[2]),
            Canary::Rot => devices.iter().for_each(|device| self.spoil(device)),
            Canary::Configuration => {
                for (text, path) in self.machine.texts().into_iter().flatten() {
                    // The check of the configuration follows.
                    let _ = fs::write(path, text + "\n[[volum]]\n");
                }
            }
            Canary::Unsaid => {
                let log = self.standing.log();
                self.standing.strike(&log);
                self.found.blame(&log);
                self.rule(&log, &[Verb::Write], Effect::Fail(libc::EIO));
            }
        }
    }

    fn rule(&self, name: &str, verbs: &[Verb], effect: Effect) {
        let verbs = verbs.to_vec();
        self.devil.set(name, Some(Rule { verbs, effect }));
    }

    /// Overwrites the middle of a device.
    fn spoil(&self, name: &str) {
        let file = File::options()
            .write(true)
            .open(self.machine.back().join(name));
        if let Ok(file) = file {
            // A failed write leaves nothing to find, and so fails the canary.
            let _ = file.write_all_at(&vec![0x5a; 6 << 20], 4 << 20);
        }
    }
}
