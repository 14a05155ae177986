//! One life of a daemon. The daemon starts, and all data is read; clients write while devices fail
//! and the daemon is paused; then the daemon is killed or ended.

use crate::bytes::ClientPart;
use crate::canary::StormCanary;
use crate::client::StormClient;
use crate::devil::{DevilEffect, DevilRule, DevilVerb};
use crate::fault::{FaultTarget, StormFault};
use crate::kind::OperatorKind;
use crate::machine::{DaemonProcess, Voice};
use crate::operator::{give, member, operate};
use crate::plan::{LOGS, VISITOR, one};
use crate::standing::list;
use crate::visitor::visit;
use crate::watch::watch;
use crate::weather::While;
use crate::world::StormWorld;
use fastrand::Rng;
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// Time limits for the daemon to serve all of its volumes, to have its arrays whole, and to end in
/// order.
const START: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(90);
const STOP: Duration = Duration::from_secs(60);
/// Time for the daemon to report a loss, on a busy machine.
const SAID: Duration = Duration::from_secs(5);
/// Interval of checks for an event.
const LOOK: Duration = Duration::from_millis(20);
/// Threads that operate the daemon.
const OPERATORS: usize = 2;

/// Classes of events of a daemon.
pub const CLASSES: [&str; 19] = [
    "a kill",
    "a kill loses what a device has in flight",
    "a kill within a change",
    "an end in order",
    "a pause",
    "a daemon killed within its start",
    "a daemon ended within its start",
    "a daemon paused within its start",
    "a device at fault within a start",
    "an array is started degraded by hand",
    "an array is whole again",
    "a loss of a device",
    "a request fails rightly",
    "standard error: Heard",
    "standard error: Closed",
    "standard error: Full",
    "standard error: Unread",
    "the configuration is checked",
    "copies are compared",
];

/// The parts of each volume.
pub type Parts = Vec<Vec<ClientPart>>;

impl StormWorld<'_> {
    fn client<'a>(&'a self, socket: &'a std::path::Path, volume: usize) -> StormClient<'a> {
        StormClient {
            socket,
            volume: self.plan.volumes[volume].name,
            number: volume,
            weather: self.weather,
            found: self.found,
        }
    }

    /// Counts the volumes in the configuration.
    fn configured(&self) -> Result<usize, String> {
        let mut number = 0;
        for volume in &self.plan.volumes {
            let is_there = self.machine.has_volume(volume.name);
            number += usize::from(is_there.map_err(|error| error.to_string())?);
        }
        Ok(number)
    }

    /// Fails if `hotset check` objects to the configuration.
    fn check(&self) -> Result<(), String> {
        self.found.met("the configuration is checked");
        match self.machine.command(&["check"])? {
            (0, _) => Ok(()),
            (status, said) => Err(format!("`hotset check` ends with {status}: {said}")),
        }
    }

    /// Draws the standard error of a daemon, and a fault during its start.
    fn draw_start(&self, rng: &mut Rng) -> (Voice, Option<StormFault>) {
        let voice = match rng.bool() {
            true => Voice::Heard,
            false => one(rng, &Voice::ALL),
        };
        let fault = rng.u8(..5) == 0;
        let fault = fault.then(|| StormFault::draw_at_start(rng, self.plan, self.standing));
        (voice, fault)
    }

    /// Starts a daemon that serves all of its volumes, which are read and compared. Without `rng`
    /// no fault is in its way.
    pub fn start(&self, parts: &mut Parts, rng: Option<&mut Rng>) -> Result<DaemonProcess, String> {
        self.weather.ending.store(false, SeqCst);
        self.weather.over.store(false, SeqCst);
        let volumes = self.configured()?;
        let (voice, fault) = rng.map_or((Voice::Heard, None), |rng| self.draw_start(rng));
        self.found.met(&format!("standard error: {voice:?}"));
        self.found.hear(voice == Voice::Heard);
        let mut process = loop {
            let mut process = self.machine.start(voice).map_err(|e| e.to_string())?;
            let served = thread::scope(|scope| {
                if let Some(fault) = &fault {
                    self.found.met("a device at fault within a start");
                    scope.spawn(move || drop(self.fault(fault)));
                }
                self.serves(&mut process, volumes)
            });
            match served {
                Ok(None) => break process,
                Ok(Some(array)) => self.start_degraded(process, &array)?,
                Err(what) => {
                    self.repeat_aloud(process, voice)?;
                    return Err(format!("{what}\n{}", self.machine.last_said()));
                }
            }
        };
        if let Some(status) = process.ended()? {
            return Err(format!("the daemon has ended by itself: {status}"));
        }
        let socket = self.machine.socket();
        thread::scope(|scope| {
            for (volume, parts) in parts.iter_mut().enumerate() {
                let client = self.client(&socket, volume);
                if volume != VISITOR || volumes > VISITOR {
                    scope.spawn(move || parts.iter_mut().for_each(|part| client.pin(part)));
                }
            }
        });
        Ok(process)
    }

    /// Starts a daemon that ended in silence once more, with a log that keeps the reason.
    fn repeat_aloud(&self, mut process: DaemonProcess, voice: Voice) -> Result<(), String> {
        if voice == Voice::Heard || process.ended()?.is_none() {
            return Ok(());
        }
        let mut process = self
            .machine
            .start(Voice::Heard)
            .map_err(|e| e.to_string())?;
        let begun = Instant::now();
        while process.ended()?.is_none() && begun.elapsed() < crate::TURN {
            thread::sleep(LOOK);
        }
        self.end(&mut process)
    }

    /// Waits until the daemon serves `volumes` volumes; fails if the daemon ends, or takes too
    /// long. Returns the name of an array that has to be started degraded by hand.
    fn serves(
        &self,
        process: &mut DaemonProcess,
        volumes: usize,
    ) -> Result<Option<String>, String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = process.ended()? {
                return Err(format!("the daemon does not start: it ends with {status}"));
            }
            let status = self.machine.status(self.weather).unwrap_or_default();
            let waits = |array: &&serde_json::Value| {
                let why = array["inactive"].as_str().unwrap_or_default();
                let name = array["name"].as_str().unwrap_or_default();
                why.contains("start it degraded") && self.standing.is_treated(name)
            };
            // The volumes may be served without a nested array that waits so. An array waits for one
            // among its members too.
            let waiting = list(&status, "arrays").iter().filter(waits);
            let waiting: Vec<&str> = waiting.filter_map(|array| array["name"].as_str()).collect();
            let is_inmost = |name: &&&str| {
                let array = self.plan.array(name);
                let mut members = array.iter().flat_map(|array| &array.members);
                !members.any(|member| waiting.contains(&member.as_str()))
            };
            if let Some(array) = waiting.iter().find(is_inmost) {
                return Ok(Some((*array).to_owned()));
            }
            if list(&status, "volumes").len() == volumes {
                return Ok(None);
            }
            if let Some(waited) = self.weather.overdue(begun, START) {
                return Err(format!(
                    "not all volumes are served after {} s: waiting {}, arrays {}",
                    waited.as_secs(),
                    status["waiting"],
                    status["arrays"]
                ));
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends the daemon, and starts an array without its missing members.
    fn start_degraded(&self, mut process: DaemonProcess, array: &str) -> Result<(), String> {
        self.found.met("an array is started degraded by hand");
        self.found.happens(format!("{array} is started degraded"));
        self.end(&mut process)?;
        let arguments = ["array", "assemble", array, "--degraded", "--config"];
        let done = self.machine.command(&arguments)?;
        self.weather.ending.store(false, SeqCst);
        match done {
            (0, _) => Ok(()),
            (status, said) => Err(format!("{array} --degraded: status {status}: {said}")),
        }
    }

    /// Starts a daemon, and kills or ends it before it serves. At times the daemon is paused
    /// before.
    fn start_in_vain(&self, rng: &mut Rng) -> Result<(), String> {
        let voice = one(rng, &Voice::ALL);
        let mut process = self.machine.start(voice).map_err(|e| e.to_string())?;
        let wait = rng.u64(..1500);
        thread::sleep(Duration::from_millis(wait));
        if rng.bool() {
            self.found.met("a daemon paused within its start");
            process.signal(libc::SIGSTOP);
            thread::sleep(Duration::from_millis(rng.u64(..2000)));
            process.signal(libc::SIGCONT);
            thread::sleep(Duration::from_millis(rng.u64(..500)));
        }
        let (signal, name) = match rng.bool() {
            true => (libc::SIGKILL, "killed"),
            false => (libc::SIGTERM, "ended"),
        };
        self.found
            .happens(format!("{name} {wait} ms after its start"));
        self.found.met(&format!("a daemon {name} within its start"));
        process.signal(signal);
        process.wait(self.weather, STOP).map(drop)
    }

    /// Gives missing devices back to arrays until all arrays are whole.
    pub fn make_whole(&self) -> Result<(), String> {
        self.restore_sizes().map_err(|error| error.to_string())?;
        let begun = Instant::now();
        loop {
            let status = self.machine.status(self.weather);
            let status = status.map_err(|error| format!("no report: {error}"))?;
            let arrays = list(&status, "arrays").iter();
            let mut ailing = arrays
                .filter(|array| array["state"] != "healthy")
                .peekable();
            if ailing.peek().is_none() {
                self.standing.look(&status);
                return Ok(());
            }
            for array in ailing {
                self.give_all_back(array);
            }
            if self.weather.overdue(begun, WHOLE).is_some() {
                return Err(format!("arrays are not whole: {}", status["arrays"]));
            }
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Gives an array a missing device, if no rebuild runs already.
    fn give_all_back(&self, array: &serde_json::Value) {
        let known = self.plan.array(array["name"].as_str().unwrap_or_default());
        let Some(known) = known.filter(|_| array["state"] == "degraded") else {
            return;
        };
        let members = list(array, "members").iter();
        let sound = members.filter(|member| member["state"] == "in sync");
        let mut has: Vec<&str> = sound
            .filter_map(|member| member["device"].as_str())
            .collect();
        has.extend(
            list(array, "spares")
                .iter()
                .filter_map(|spare| spare.as_str()),
        );
        for device in known.members.iter().chain(&known.spares) {
            let add = member(known, device, true);
            if !has.contains(&device.as_str()) && give(self, &add, OperatorKind::Socket) {
                self.found.met("an array is whole again");
                return;
            }
        }
    }

    /// Runs one life; fails if the storm cannot go on.
    pub fn live(&self, parts: &mut Parts, rng: &mut Rng) -> Result<(), String> {
        self.found.next_life();
        self.weather.load();
        self.machine.mark();
        self.fates(rng).map_err(|error| error.to_string())?;
        self.check()?;
        while rng.u8(..4) == 0 {
            self.start_in_vain(rng)?;
        }
        let mut process = self.start(parts, Some(rng))?;
        if self.found.is_wrong() {
            return Ok(());
        }
        if rng.u8(..3) > 0 {
            self.make_whole()?;
        }
        let status = self.machine.status(self.weather);
        let status = status.map_err(|error| format!("no report: {error}"))?;
        self.standing.settle(&status, self.plan, rng);
        self.canary(&process);
        let killed = rng.bool();
        let out_of_service = self.use_and_strike(&mut process, parts, killed, rng);
        if self.found.is_wrong() {
            self.give_up(&process);
            return Ok(());
        }
        if !killed {
            self.end(&mut process)?;
        }
        drop(out_of_service);
        self.judge_end(killed)
    }

    /// Runs clients and operators, while the daemon and its devices are struck. A fault of a device
    /// lasts as long as its value in the result.
    fn use_and_strike(
        &self,
        process: &mut DaemonProcess,
        parts: &mut Parts,
        killed: bool,
        rng: &mut Rng,
    ) -> Vec<While<'_>> {
        let socket = self.machine.socket();
        let mut seeds = || Rng::with_seed(rng.u64(..));
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (volume, parts) in parts.iter_mut().enumerate() {
                for part in parts {
                    let (client, mut rng) = (self.client(&socket, volume), seeds());
                    workers.push(scope.spawn(move || match volume {
                        VISITOR => visit(self, &client, part, &mut rng),
                        _ => client.run(part, &mut rng),
                    }));
                }
            }
            for _ in 0..OPERATORS {
                let mut rng = seeds();
                workers.push(scope.spawn(move || operate(self, &mut rng)));
            }
            workers.push(scope.spawn(|| watch(self)));
            let mut rng = seeds();
            let out_of_service = self.happen(process, &mut rng);
            if killed && !self.found.is_wrong() {
                self.kill(process, &mut rng);
            }
            self.weather.over.store(true, SeqCst);
            while workers.iter().any(|worker| !worker.is_finished()) {
                if self.found.is_wrong() {
                    self.give_up(process);
                }
                thread::sleep(LOOK);
            }
            out_of_service
        })
    }

    /// Kills the daemon after a violation; clients no longer wait for it.
    fn give_up(&self, process: &DaemonProcess) {
        self.weather.ending.store(true, SeqCst);
        process.signal(libc::SIGKILL);
        // The kernel waits for a ring's operations in flight.
        self.devil.clear();
    }

    /// Strikes the daemon and its devices by chance. A fault of a device lasts as long as its value
    /// in the result.
    fn happen(&self, process: &DaemonProcess, rng: &mut Rng) -> Vec<While<'_>> {
        let mut out_of_service = Vec::new();
        for _ in 0..rng.usize(1..=4) {
            thread::sleep(Duration::from_millis(rng.u64(50..800)));
            match rng.u8(..4) {
                0 => self.pause(process, rng),
                1 => self.strike_export(rng),
                _ => {
                    let fault = StormFault::draw(rng, self.plan, self.standing);
                    out_of_service.extend(self.fault(&fault));
                }
            }
            if self.found.is_wrong() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(rng.u64(50..800)));
        out_of_service
    }

    fn pause(&self, process: &DaemonProcess, rng: &mut Rng) {
        let time = match rng.u8(..6) {
            0 => rng.u64(5000..13_000),
            _ => rng.u64(20..1500),
        };
        self.found.happens(format!("paused for {time} ms"));
        self.found.met("a pause");
        let paused = self.weather.paused.begin();
        process.signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(time));
        process.signal(libc::SIGCONT);
        drop(paused);
    }

    /// Applies a fault. Failures go on until the result is dropped.
    fn fault(&self, fault: &StormFault) -> Option<While<'_>> {
        let (name, rule) = (&fault.name, &fault.rule);
        self.found.happens(format!(
            "{name}: {rule:?} for {} ms",
            fault.time.as_millis()
        ));
        self.found.met(&fault.class());
        self.found.blame(name);
        self.standing.strike(name);
        let skies = self.weather.volumes.iter().enumerate();
        let volume = fault.volume(self.plan);
        let concerned = skies.filter(|(number, _)| match fault.target {
            FaultTarget::State => true,
            _ => volume == Some(*number),
        });
        let held: Vec<While> = concerned.map(|(_, sky)| sky.held.begin()).collect();
        let folder = fault.target == FaultTarget::Configuration;
        let commands = folder.then(|| self.weather.commands.begin());
        let failing = volume.map(|volume| self.weather.volumes[volume].failing.begin());
        if let (FaultTarget::Origin, Some(volume)) = (fault.target, volume) {
            self.found.fail_origin(volume);
        }
        self.devil.set(name, Some(rule.clone()));
        let begun = Instant::now();
        while begun.elapsed() < fault.time && !self.found.is_wrong() {
            thread::sleep(Duration::from_millis(20));
        }
        self.devil.set(name, None);
        drop((held, commands));
        failing.filter(|_| fault.lasts())
    }

    /// Kills the daemon, at times within a change that was just requested.
    fn kill(&self, process: &mut DaemonProcess, rng: &mut Rng) {
        self.weather.ending.store(true, SeqCst);
        if rng.bool() {
            let mode = one(rng, &["write-through", "pass-through"]);
            let change = json!({"request": "set-mode", "volume": self.plan.volumes[0].name,
                "mode": mode});
            let request = json!({"request": "change", "change": change, "temporary": false});
            // The daemon may be ending already.
            let _ = self.machine.send(&request);
            thread::sleep(Duration::from_millis(rng.u64(..20)));
            self.found.met("a kill within a change");
        }
        let held = rng.bool().then(|| self.hold_writes(rng));
        self.found.happens("killed".into());
        self.found.met("a kill");
        process.signal(libc::SIGKILL);
        if let Some(name) = held.filter(|name| self.devil.lose(name)) {
            self.found
                .happens(format!("{name} has lost what was in flight"));
            self.found.met("a kill loses what a device has in flight");
        }
        // The kernel waits for a ring's operations in flight.
        self.devil.clear();
        if let Err(what) = process.wait(self.weather, STOP) {
            self.found.violation(format!("after a kill: {what}"));
        }
    }

    /// Holds up writes to a device for a moment. Returns the device's name.
    fn hold_writes(&self, rng: &mut Rng) -> String {
        let volumes = self.plan.volumes[..VISITOR].iter();
        let mut names: Vec<String> = volumes.map(|volume| volume.origin.to_owned()).collect();
        names.retain(|name| self.plan.array(name).is_none());
        let arrays = self.plan.arrays.iter();
        names.extend(arrays.filter_map(|array| self.standing.victim(array.name)));
        let others = self.plan.pool_devices().into_iter().chain(LOGS);
        names.extend(others.map(str::to_owned));
        let name = names.swap_remove(rng.usize(..names.len()));
        let verbs = vec![DevilVerb::Write, DevilVerb::Flush];
        let effect = DevilEffect::Hang;
        self.devil.set(&name, Some(DevilRule { verbs, effect }));
        thread::sleep(Duration::from_millis(rng.u64(5..200)));
        name
    }

    /// Ends the daemon in order.
    pub fn end(&self, process: &mut DaemonProcess) -> Result<(), String> {
        self.found.happens("ended".into());
        self.found.met("an end in order");
        self.weather.ending.store(true, SeqCst);
        if let Some(status) = process.ended()? {
            return Err(format!(
                "the daemon has ended by itself: {status}\n{}",
                self.machine.last_said()
            ));
        }
        process.signal(libc::SIGTERM);
        // An origin that may have lost writes is reported by the status too.
        let mut volumes = 0..self.plan.volumes.len();
        let may_fail = volumes.any(|volume| self.found.origin_failed(volume));
        match process.wait(self.weather, STOP)?.as_str() {
            "status 0" => Ok(()),
            "status 1" if may_fail => Ok(()),
            other => Err(format!(
                "an end in order: {other}\n{}",
                self.machine.last_said()
            )),
        }
    }

    /// Checks that each loss was an event, and of a device at fault, and that nothing else was
    /// written.
    fn judge_end(&self, killed: bool) -> Result<(), String> {
        let said = match self.canary {
            Some(StormCanary::Unsaid) => String::new(),
            _ => self.machine.said(),
        };
        if said.contains("panicked") {
            return Err(format!(
                "the daemon has panicked\n{}",
                self.machine.last_said()
            ));
        }
        for (device, loss) in self.found.lost() {
            self.found.met("a loss of a device");
            let is_said = loss.texts.iter().any(|text| said.contains(text));
            // A killed daemon may have had no time to report the loss.
            let had_time = !killed || loss.seen.elapsed() > SAID;
            if self.found.is_heard() && !is_said && had_time {
                self.found
                    .violation(format!("{device} is lost, and no event says so"));
            }
            let mut names = LOGS.iter().filter(|_| device == "log").copied();
            if !names.any(|name| self.found.is_blamed(name)) && !self.found.is_blamed(&device) {
                self.found
                    .violation(format!("{device} is lost, and nothing was wrong with it"));
            }
        }
        self.site.check()?;
        self.bystanders
            .iter()
            .try_for_each(|bystander| bystander.check(&self.machine.back()))
    }
}
