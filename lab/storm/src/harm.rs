//! Applies a canary to a life.

use crate::canary::StormCanary;
use crate::devil::{DevilEffect, DevilRule, DevilVerb};
use crate::machine::DaemonProcess;
use crate::plan::BYSTANDERS;
use crate::world::StormWorld;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

impl StormWorld<'_> {
    /// Applies the canary to a life that begins.
    pub fn canary(&self, process: &DaemonProcess) {
        let Some(canary) = self.canary else {
            return;
        };
        self.found.met("Canary");
        let origin = self.plan.volumes[0].origin;
        let devices = self.plan.below(origin);
        let all = |verbs: &[DevilVerb], effect| {
            devices
                .iter()
                .for_each(|device| self.rule(device, verbs, effect))
        };
        match canary {
            StormCanary::LostWrite => all(&[DevilVerb::Write], DevilEffect::Forget),
            StormCanary::Silence => all(&[DevilVerb::Read, DevilVerb::Write], DevilEffect::Hang),
            StormCanary::Death => process.signal(libc::SIGABRT),
            StormCanary::LateReport => process.signal(libc::SIGSTOP),
            StormCanary::Bystander => self.spoil(BYSTANDERS[2]),
            StormCanary::Rot => devices.iter().for_each(|device| self.spoil(device)),
            StormCanary::Configuration => {
                for (text, path) in self.machine.texts().into_iter().flatten() {
                    // The check of the configuration follows.
                    let _ = fs::write(path, text + "\n[[volum]]\n");
                }
            }
            StormCanary::Unsaid => {
                let log = self.standing.log();
                self.standing.strike(&log);
                self.found.blame(&log);
                self.rule(&log, &[DevilVerb::Write], DevilEffect::Fail(libc::EIO));
            }
        }
    }

    fn rule(&self, name: &str, verbs: &[DevilVerb], effect: DevilEffect) {
        let verbs = verbs.to_vec();
        self.devil.set(name, Some(DevilRule { verbs, effect }));
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
