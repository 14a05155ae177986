//! A machine without a daemon, on which a volume has dirty data.

pub(super) use crate::nodesim::logged::recovered;
use crate::nodesim::logged::{BUFFER_BYTES, LOG_MIB, configuration, disk};
use block::{Boundary, Device, Fua, IoResult, Lba, Nanos, Pool, SECTOR_BYTES};
use control::check::check_alone;
use control::config::Config;
use node::{Platform, RecoverAction};
use sim::{RunBudget, RunOutcome, SimHost, SimWorld};
use simnode::{Direct, RunningNode, SimMachine, SimPlatform, run_alone};
use std::path::Path;
use std::rc::Rc;
use writelog::Cleaning;

/// The configuration, with a lag that is longer than a test.
pub(super) fn text_of(cleaning: Cleaning) -> String {
    configuration("archive", cleaning, "max_lag = \"10min\"")
}

/// Devices of the machine that the volume does not use.
const SPARES: [&str; 3] = ["/spare", "/small", "/other"];
pub(super) const ALL: [&str; 8] = [
    "/archive", "/ssd", "/log0", "/log1", "/journal", "/spare", "/small", "/other",
];
/// The size of the volume: the record of its origin covers next to nothing.
const MIB: usize = 32;
pub(super) const SIZE: usize = MIB << 20;
/// Bytes of the first write, which are cached.
pub(super) const BYTES: usize = 1 << 20;
/// The dirty bytes of the volume.
pub(super) const DIRTY: std::ops::Range<usize> = 256 << 10..512 << 10;

/// Bytes of one read of a whole device.
const PIECE_BYTES: usize = 1 << 20;

/// A machine, and the bytes that its volume has to hold.
pub(super) struct RecoverRig {
    sim: SimHost,
    pub(super) machine: Rc<SimMachine>,
    pub(super) config: Rc<Config>,
    pub(super) holds: Vec<u8>,
}

pub(super) fn noise(seed: u8, bytes: usize) -> Vec<u8> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let states = std::iter::successors(Some(u32::from(seed)), next).skip(1);
    states
        .map(|state| (state >> 24) as u8)
        .take(bytes)
        .collect()
}

pub(super) fn configured(text: &str) -> Rc<Config> {
    Rc::new(check_alone(text, &[]).expect("a sound configuration"))
}

/// All bytes of a device.
async fn whole(device: &impl Device, pool: &Pool) -> Vec<u8> {
    let bytes = device.geometry().sectors.bytes() as usize;
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let buf = pool.get(PIECE_BYTES.min(bytes - all.len())).await;
        let at = Lba(all.len() as u64 / SECTOR_BYTES);
        let (buf, read) = device.read(at, buf).await;
        read.expect("it can be read");
        all.extend_from_slice(&buf);
    }
    all
}

impl RecoverRig {
    pub(super) fn new(cleaning: Cleaning) -> RecoverRig {
        let text = text_of(cleaning);
        let config = configured(&text);
        let spare = |path: &str| {
            let name = path.trim_start_matches('/');
            format!("[[device]]\nname = \"{name}\"\npath = \"{path}\"\n")
        };
        let spares: String = SPARES.into_iter().map(spare).collect();
        let all = configured(&(text + &spares));
        let mut world = SimWorld::new(7);
        let machine = SimMachine::new(&mut world, &all, |device| {
            let (mib, micros) = match device.name.as_str() {
                "archive" | "other" => (MIB as u64, 3000),
                "spare" => (MIB as u64 + 1, 100),
                "small" => (MIB as u64 - 1, 100),
                "ssd" => (4, 100),
                _ => (LOG_MIB, 100),
            };
            Ok(disk(device.name.as_str(), mib, micros))
        });
        let mut holds = noise(1, BYTES);
        holds.resize(SIZE, 0);
        let mut rig = RecoverRig {
            machine: machine.expect("a sound world"),
            sim: SimHost::new(world).pool_bytes(BUFFER_BYTES),
            config,
            holds,
        };
        rig.live();
        rig
    }

    /// Runs `work` on the machine, until `work` ends or the power is cut.
    pub(super) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        work: impl FnOnce(SimPlatform) -> F + 'static,
    ) -> Option<T> {
        let now = self.sim.world().now();
        self.sim
            .set_budget(RunBudget::until(now + Nanos::from_secs(600)));
        let machine = self.machine.clone();
        let (outcome, came) = run_alone(&mut self.sim, move |local| {
            work(SimPlatform::new(machine, local))
        });
        assert!(
            matches!(outcome, RunOutcome::Done | RunOutcome::PowerCut),
            "{outcome:?}"
        );
        drop(self.sim.driver());
        came
    }

    /// Runs a daemon that is killed while `DIRTY` is dirty. The earlier bytes of `DIRTY` are all
    /// cached.
    fn live(&mut self) {
        let (config, first) = (self.config.clone(), self.holds[..BYTES].to_vec());
        let later = noise(2, DIRTY.len());
        self.holds[DIRTY].copy_from_slice(&later);
        let lived = self.run(async move |platform| {
            let env = platform.local().env();
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let node = node.await.expect("it starts");
            let client = frontend.client("db").expect("it is served");
            let dirty = async || {
                let status = node.status().await.expect("a status");
                status.volumes[0]
                    .write_back
                    .as_ref()
                    .expect("its log")
                    .dirty_bytes
            };
            let write = async |at: usize, bytes: &[u8]| {
                for (n, piece) in bytes.chunks(64 << 10).enumerate() {
                    let mut buf = env.pool.get(piece.len()).await;
                    buf.copy_from_slice(piece);
                    let at = (at + (n * (64 << 10))) as u64;
                    let written = client.gate().write(at, buf.share(), Fua::No).await;
                    written.expect("a write");
                }
            };
            write(0, &first).await;
            while dirty().await > 0 {
                env.timer.sleep(Nanos::from_millis(100)).await;
            }
            for _ in 0..3 {
                for at in (0..BYTES as u64).step_by(64 << 10) {
                    client.gate().read(at, 64 << 10).await.expect("a read");
                }
                // The region is written no more, and cached lines survive a kill.
                env.timer.sleep(Nanos::from_secs(15)).await;
            }
            write(DIRTY.start, &later).await;
            client.gate().flush().await.expect("a flush");
            assert_eq!(dirty().await, DIRTY.len() as u64);
        });
        lived.expect("nothing cuts its power");
        assert!(self.bytes("/archive") != self.holds, "nothing is dirty");
    }

    pub(super) fn medium(&self, path: &str, durable: bool) -> Vec<u8> {
        let target = self.machine.target(path);
        let medium = self.sim.world().medium(target).expect("it keeps its bytes");
        let bytes = match path {
            "/archive" | "/other" => SIZE,
            "/spare" => (MIB + 1) << 20,
            "/small" => (MIB - 1) << 20,
            "/ssd" => 4 << 20,
            _ => (LOG_MIB as usize) << 20,
        };
        let mut all = vec![0; bytes];
        match durable {
            true => medium.durable(Lba::ZERO, &mut all),
            false => medium.latest(Lba::ZERO, &mut all),
        }
        all
    }

    pub(super) fn bytes(&self, path: &str) -> Vec<u8> {
        self.medium(path, false)
    }

    /// The bytes of all devices that are there, and of the files beside.
    pub(super) fn everything(&mut self) -> Vec<Vec<u8>> {
        let mut all: Vec<_> = ALL.iter().map(|path| self.bytes(path)).collect();
        let beside = self.run(async |platform| {
            let volume = control::config::Name::new("db").unwrap();
            let pool = control::config::Name::new("fast").unwrap();
            let (log, _held) = platform.log_witness(&volume).await.unwrap();
            let (pool, _held_too) = platform.witness(&pool).await.unwrap();
            let mut all = Vec::new();
            for device in [log, pool] {
                all.push(whole(&device, &platform.local().env().pool).await);
            }
            all
        });
        all.extend(beside.expect("nothing cuts its power"));
        all
    }

    /// Runs `pool recover`. Returns its output.
    pub(super) fn recover(
        &mut self,
        action: RecoverAction,
        to: Option<&'static str>,
    ) -> Result<String, String> {
        let work = recovered(self.config.clone(), action, to);
        self.run(work).expect("nothing cuts its power")
    }

    #[track_caller]
    pub(super) fn refused(
        &mut self,
        action: RecoverAction,
        to: Option<&'static str>,
        why: &[&str],
    ) {
        let before = self.everything();
        let refusal = self.recover(action, to).expect_err("it is refused");
        let named = |text: &&str| refusal.contains(text);
        assert!(why.iter().all(named), "{refusal}");
        assert!(
            self.everything() == before,
            "{refusal}: it changed something"
        );
    }

    #[track_caller]
    pub(super) fn looks(&mut self, expected: &[&str]) {
        let before = self.everything();
        let said = self
            .recover(RecoverAction::Inspect, None)
            .expect("it is looked at");
        let named = |text: &&str| said.contains(text);
        assert!(expected.iter().all(named), "{said}");
        assert!(self.everything() == before, "{said}: it changed something");
    }

    /// Writes `bytes` to a disk, as a foreign writer.
    pub(super) fn overwrite(&mut self, path: &'static str, bytes: Vec<u8>) {
        let work = async move |platform: SimPlatform| -> IoResult {
            let device = control::config::Device::parse("name = \"a\"\npath = \"/a\"").unwrap();
            let (disk, _hold) = platform.open_disk(&device, Path::new(path)).await?;
            for (n, piece) in bytes.chunks(64 << 10).enumerate() {
                let mut buf = platform.local().env().pool.get(piece.len()).await;
                buf.copy_from_slice(piece);
                let at = Lba((n * (64 << 10)) as u64 / SECTOR_BYTES);
                disk.write(at, buf.share(), Fua::Yes).await?;
            }
            Ok(())
        };
        self.run(work).expect("nothing cuts its power").unwrap();
    }

    /// The witness of the log is lost.
    pub(super) fn lose_witness(&mut self) {
        let work = async |platform: SimPlatform| {
            let volume = control::config::Name::new("db").unwrap();
            let (witness, _hold) = platform.log_witness(&volume).await.unwrap();
            let mut buf = platform.local().env().pool.get(8192).await;
            buf.fill(0);
            witness
                .write(Lba::ZERO, buf.share(), Fua::Yes)
                .await
                .unwrap();
        };
        self.run(work).expect("nothing cuts its power");
    }

    /// Starts a daemon. Returns the first bytes of the volume and the number of copies, or the
    /// reason why the volume is not served.
    pub(super) fn serve(&mut self) -> Result<(Vec<u8>, u32), String> {
        let config = self.config.clone();
        let served = self.run(async move |platform| {
            let env = platform.local().env();
            let frontend = Direct::new(platform.local());
            let node = RunningNode::start(&config, platform, frontend.clone());
            let node = node.await.expect("it starts");
            let status = node.status().await.expect("a status");
            let Some(client) = frontend.client("db") else {
                return Err(status.waiting[0].why.clone());
            };
            let log = status.volumes[0].write_back.as_ref();
            let copies = log.expect("its log").copies;
            // The pool's lines of the volume are loaded meanwhile.
            env.timer.sleep(Nanos::from_secs(1)).await;
            let mut held = Vec::new();
            for at in (0..BYTES as u64).step_by(64 << 10) {
                let read = client.gate().read(at, 64 << 10).await.expect("a read");
                held.extend_from_slice(&read);
            }
            drop(client);
            node.stop().await.expect("it ends");
            Ok((held, copies))
        });
        served.expect("nothing cuts its power")
    }

    /// True if a superblock of a log records dirty data.
    fn has_dirty_data(&mut self) -> bool {
        let logs = self.run(async |platform| platform.logs().await.unwrap());
        let logs = logs.expect("nothing cuts its power");
        logs.iter().any(|log| log.superblock.may_be_dirty)
    }

    /// Checks that the origin has the volume's bytes, also after a cut of the power, and is served.
    #[track_caller]
    pub(super) fn has_it_all(&mut self, copies: u32) {
        assert!(
            self.medium("/archive", true) == self.holds,
            "it lacks something"
        );
        assert!(!self.has_dirty_data(), "its log has dirty data");
        let (held, here) = self.serve().expect("it is served");
        assert!(held == self.holds[..BYTES], "something else is served");
        assert_eq!(here, copies);
    }
}
