//! Frontends of a volume that come and go while a node runs: every change from one set to another,
//! with an opening that fails, on a node in virtual time.

use block::{Env, Gate, Geometry, IoError, IoErrorKind, IoResult, Nanos, Sectors};
use control::config::{Config, parse};
use control::protocol::{ControlRequest, Reply};
use control::status::Status;
use node::{Frontend, Later, ServedVolume, VolumeAbout};
use sim::{DiskSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{RunningNode, SimMachine, SimPlatform, run_alone};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const CONFIG: &str = r#"
[[device]]
name = "disk"
path = "/disk"
[[pool]]
name = "fast"
devices = []
[[volume]]
name = "data"
origin = "disk"
pool = "fast"
"#;

/// The open frontends, and the number of the opening that is to fail.
#[derive(Default)]
struct Board {
    open: RefCell<BTreeSet<String>>,
    openings: Cell<usize>,
    fails: Cell<Option<usize>>,
    shared: Cell<bool>,
}

impl Board {
    fn open(&self, frontend: String) -> IoResult {
        let number = self.openings.get();
        self.openings.set(number + 1);
        if self.fails.get() == Some(number) {
            return Err(IoError::new(IoErrorKind::Busy, "it shall fail"));
        }
        let mut open = self.open.borrow_mut();
        assert!(
            open.is_empty() || self.shared.get(),
            "{frontend} beside {open:?}"
        );
        assert!(open.insert(frontend.clone()), "{frontend} is open");
        Ok(())
    }
}

/// The kind of a frontend.
#[derive(Clone, Copy)]
enum Which {
    Nbd,
    Ublk,
    Guests,
}

/// A frontend that records its openings and closings, and takes its time.
struct Recorder {
    which: Which,
    board: Rc<Board>,
    env: Env,
}

impl Recorder {
    fn frontends(&self, about: &VolumeAbout) -> BTreeSet<String> {
        let frontends = &about.frontends;
        match self.which {
            Which::Nbd => frontends
                .nbd
                .then(|| "nbd".to_owned())
                .into_iter()
                .collect(),
            Which::Ublk => frontends
                .ublk
                .map(|_| "ublk".to_owned())
                .into_iter()
                .collect(),
            Which::Guests => {
                let sockets = frontends.guests.iter().map(|guest| &guest.socket);
                sockets.map(|socket| socket.display().to_string()).collect()
            }
        }
    }

    fn mine(&self) -> BTreeSet<String> {
        let open = self.board.open.borrow();
        let is_mine = |frontend: &&String| match self.which {
            Which::Nbd => *frontend == "nbd",
            Which::Ublk => *frontend == "ublk",
            Which::Guests => frontend.starts_with('/'),
        };
        open.iter().filter(is_mine).cloned().collect()
    }

    async fn close(&self, frontends: &BTreeSet<String>) {
        self.env.timer.sleep(Nanos::from_millis(20)).await;
        let mut open = self.board.open.borrow_mut();
        frontends
            .iter()
            .for_each(|frontend| assert!(open.remove(frontend)));
    }
}

impl Frontend<ServedVolume<SimDriver>> for Recorder {
    fn add(&self, _: &str, _: Gate<ServedVolume<SimDriver>>, about: &VolumeAbout) -> IoResult {
        let mut frontends = self.frontends(about).into_iter();
        frontends.try_for_each(|frontend| self.board.open(frontend))
    }

    fn change<'a>(
        &'a self,
        _: &'a str,
        _: &'a Gate<ServedVolume<SimDriver>>,
        about: &'a VolumeAbout,
        _: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            let (mine, wanted) = (self.mine(), self.frontends(about));
            self.close(&(&mine - &wanted)).await;
            self.env.timer.sleep(Nanos::from_millis(20)).await;
            let mut new = (&wanted - &mine).into_iter();
            new.try_for_each(|frontend| self.board.open(frontend))
        })
    }

    fn withdraw<'a>(&'a self, _: &'a str, _: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            self.close(&self.mine()).await;
            Ok(())
        })
    }

    fn shut_down(&self, _: Nanos) -> Later<'_, ()> {
        Box::pin(async move { self.close(&self.mine()).await })
    }

    fn stats(&self, _: &mut Status) {}
}

/// A configuration of a volume with these frontends of its own, or none.
fn config(shared: bool, ublk: bool, guests: &[&str]) -> Config {
    let mut text = CONFIG.to_owned() + &format!("shared = {shared}\n[[listen]]\nunix = \"/nbd\"\n");
    if ublk {
        text += "[[attach]]\nublk = \"data\"\n";
    }
    for guest in guests {
        text += &format!("[[listen]]\nvhost_user = \"{guest}\"\nvolume = \"data\"\n");
    }
    let mut problems = Vec::new();
    let config = parse(&text, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    config
}

/// All configurations of a volume's frontends.
fn all(shared: bool) -> Vec<Config> {
    let sockets = ["/a", "/b"];
    let mut all = Vec::new();
    for ublk in [false, true] {
        for guests in [&sockets[..0], &sockets[..1], &sockets[1..], &sockets[..]] {
            if shared || usize::from(ublk) + guests.len() <= 1 {
                all.push(config(shared, ublk, guests));
            }
        }
    }
    all
}

/// The frontends of a configuration, as text.
fn frontends_of(config: &Config) -> BTreeSet<String> {
    let frontends = config.frontends_of("data");
    let guests = frontends
        .guests
        .iter()
        .map(|guest| guest.socket.display().to_string());
    let ublk = frontends.ublk.map(|_| "ublk".to_owned());
    let nbd = frontends.nbd.then(|| "nbd".to_owned());
    guests.chain(ublk).chain(nbd).collect()
}

/// Changes one configuration to another while the node runs, with one opening that fails. Returns
/// the number of openings.
async fn change(
    machine: &Rc<SimMachine>,
    platform: SimPlatform,
    env: Env,
    (from, to): (&Config, &Config),
    fails: Option<usize>,
) -> usize {
    let board = Rc::<Board>::default();
    board.shared.set(from.volumes[0].shared.value);
    let recorder = |which| {
        let (board, env) = (board.clone(), env.clone());
        let recorder: Rc<dyn Frontend<_>> = Rc::new(Recorder { which, board, env });
        recorder
    };
    let frontends = [Which::Nbd, Which::Ublk, Which::Guests].map(recorder);
    let node = RunningNode::start_with(from, platform, frontends.into()).await;
    let node = node.expect("it starts");
    assert_eq!(*board.open.borrow(), frontends_of(from));
    board.openings.set(0);
    board.fails.set(fails);
    machine.write_configuration(to.clone());
    let done = node.ask(ControlRequest::Reload).await;
    let openings = board.openings.get();
    let met = fails.is_some_and(|number| number < openings);
    assert_eq!(done.is_err(), met, "{done:?}");
    // The running configuration names the frontends that are open.
    let says = node.ask(ControlRequest::Configuration).await;
    let Ok(Reply::Configuration(says)) = says else {
        panic!("no configuration: {says:?}");
    };
    let running = frontends_of(&parse(&says.text, &mut Vec::new()));
    assert_eq!(*board.open.borrow(), running, "{done:?}");
    if !met {
        assert_eq!(running, frontends_of(to));
    }
    // The reload goes on from there once no opening fails.
    board.fails.set(None);
    node.ask(ControlRequest::Reload)
        .await
        .expect("nothing is in the way");
    assert_eq!(*board.open.borrow(), frontends_of(to));
    // A block device keeps a volume from growing, also one that came later, and none that is gone.
    let grow = ControlRequest::GrowVolume {
        volume: "data".into(),
    };
    let why = node.ask(grow).await.expect_err("its origin has its size");
    let is_block_device = to.frontends_of("data").ublk.is_some();
    assert_eq!(why.contains("is a block device"), is_block_device, "{why}");
    node.stop().await.expect("it stops");
    assert!(board.open.borrow().is_empty());
    openings
}

#[test]
fn frontends_come_and_go_one_after_the_other_and_a_failure_leaves_those_before() {
    for shared in [false, true] {
        let all = all(shared);
        assert_eq!(all.len(), if shared { 8 } else { 4 });
        for (from, to) in all
            .iter()
            .flat_map(|from| all.iter().map(move |to| (from, to)))
        {
            let mut openings = 1;
            let mut number = 0_usize;
            while number < openings {
                let fails = number.checked_sub(1);
                let pair = (from.clone(), to.clone());
                openings = 1 + on_a_node(pair, fails);
                number += 1;
            }
        }
    }
}

fn on_a_node((from, to): (Config, Config), fails: Option<usize>) -> usize {
    let mut world = SimWorld::new(1);
    let machine = SimMachine::new(&mut world, &from, |device| {
        let name = device.name.value.as_str();
        Ok(DiskSpec::new(Geometry::new(
            name,
            Sectors::from_mib(16),
            Sectors(1),
        )))
    });
    let machine = machine.expect("sound disks");
    let mut sim = SimHost::new(world).pool_bytes(64 << 20);
    let (outcome, openings) = run_alone(&mut sim, async move |local| {
        let platform = SimPlatform::new(machine.clone(), local.clone());
        change(&machine, platform, local.env(), (&from, &to), fails).await
    });
    assert_eq!(outcome, RunOutcome::Done);
    openings.expect("it came to its end")
}
