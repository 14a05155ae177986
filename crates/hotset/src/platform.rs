//! A node on this machine: its files, block devices and sockets through io_uring.

pub mod claim;
mod holes;
mod identity;
pub mod machine;
pub mod nbd;
pub mod reservation;
mod served;
pub mod state;
pub mod steering;
pub mod ublk;
pub mod virtio;
mod wear;

use crate::configuration::read_again;
use crate::signals::SignalRequest;
use block::{BoxDevice, Deadline, Extent, IoError, IoErrorKind, IoResult, Nanos, TargetId, plain};
use claim::{Behind, ExportClaim, OPEN_MAX};
use control::address::NbdUri;
use control::client::ControlClient;
use control::config::{self, Config, Name};
use control::files::{ConfigurationFiles, FileDifference};
use control::place::BasePlace;
use control::protocol::ControlRequest;
use control::status::WearReport;
use control::users::{self, FileUsers};
use node::{
    Later, LogWitness, NodeEvent, Platform, Remembered, ReservationStep, Roles, UserProcess,
};
use origin::DeviceIdentity;
use reservation::Reservable;
use shard::{Local, ShardDisk};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uring::{DiskOptions, Uring, UringDriver};

/// Time limit of the look-up of a device's place.
const PLACE_MAX: Nanos = Nanos::from_secs(2);
/// Time limit of reading, or writing, the files of the configuration.
const FILES_MAX: Nanos = Nanos::from_secs(30);

/// This machine, on one shard.
#[derive(Clone)]
pub struct UringPlatform {
    host: Uring,
    local: Local<UringDriver>,
    /// The directory of the witnesses.
    state: Rc<Path>,
    /// The file of the configuration, if there is one.
    file: Option<Rc<Path>>,
    /// The control socket.
    control: Rc<Path>,
}

/// A hold on a device, against other users.
pub enum UseLock {
    File {
        _file: OpenFile,
        _behind: Option<Behind>,
    },
    Export {
        _claim: ExportClaim,
    },
}

/// A file that the host holds open and locked.
pub struct OpenFile {
    host: Uring,
    target: TargetId,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.host.close(self.target);
    }
}

impl UringPlatform {
    /// The machine for the shard `local` of `host`, with the witnesses in `state`.
    pub fn new(host: Uring, local: Local<UringDriver>, state: &Path) -> UringPlatform {
        UringPlatform {
            host,
            local,
            state: Rc::from(state),
            file: None,
            control: Rc::from(Path::new("")),
        }
    }

    /// Adds the file of the configuration, and the control socket at `control`.
    pub fn configured_by(self, file: Option<&Path>, control: &Path) -> UringPlatform {
        UringPlatform {
            file: file.map(Rc::from),
            control: Rc::from(control),
            ..self
        }
    }
}

/// The new text of a file of the configuration, written beside the file.
struct FileDraft {
    draft: amend::Draft,
    platform: UringPlatform,
}

impl node::ConfigurationDraft for FileDraft {
    fn commit(self: Box<Self>) -> Later<'static, Result<ConfigurationFiles, String>> {
        let FileDraft { draft, platform } = *self;
        Box::pin(async move { platform.soon("replaced", move || draft.commit()).await? })
    }

    fn difference(&self) -> Option<FileDifference> {
        self.draft.difference()
    }
}

impl UringPlatform {
    /// Runs `work` on the files of the configuration, for at most [`FILES_MAX`].
    async fn soon<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let timer = self.local.env().timer;
        let done = timer.timeout(FILES_MAX, self.host.aside(work)).await;
        let done = done.ok_or_else(|| {
            format!(
                "the files of the configuration cannot be {what} within {FILES_MAX}; see to their \
                 file system, and use --temporary meanwhile"
            )
        })?;
        done.map_err(plain)
    }

    /// Returns `error`; a `Busy` one with the users of the file at `path`.
    async fn with_users(&self, error: IoError, path: &Path) -> IoError {
        if error.kind() != IoErrorKind::Busy {
            return error;
        }
        let file = path.to_path_buf();
        let looked = self.host.aside(move || FileUsers::read().of(&file)).await;
        let Some(by) = users::listed(&looked.unwrap_or_default()) else {
            return error;
        };
        let name = error.device().map_or_else(String::new, str::to_owned);
        IoError::new(
            IoErrorKind::Busy,
            format!("is in use by {by}; stop that first"),
        )
        .on(name)
    }

    fn hold(&self, target: TargetId) -> UseLock {
        let host = self.host.clone();
        UseLock::File {
            _file: OpenFile { host, target },
            _behind: None,
        }
    }

    /// The device of an opened file in `state`; or the error, with the users of the file.
    async fn beside(
        &self,
        opened: IoResult<(TargetId, ShardDisk<UringDriver>)>,
        path: &Path,
    ) -> IoResult<(BoxDevice, UseLock)> {
        match opened {
            Ok((target, disk)) => Ok((BoxDevice::new(disk), self.hold(target))),
            Err(error) => Err(self.with_users(error, path).await),
        }
    }

    /// Runs `read` in `state` within a time limit: the file system may be slow, or never answer.
    async fn read_state<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Path) -> IoResult<T> + Send + 'static,
    ) -> IoResult<T> {
        let state = self.state.to_path_buf();
        let reading = self.host.aside(move || read(&state));
        let timer = self.local.env().timer;
        state::in_time(&timer, &self.state, async { reading.await? }).await
    }
}

impl Platform for UringPlatform {
    type Driver = UringDriver;
    type Hold = UseLock;

    fn local(&self) -> &Local<UringDriver> {
        &self.local
    }

    async fn open_disk(
        &self,
        device: &config::Device,
        path: &Path,
    ) -> IoResult<(ShardDisk<UringDriver>, UseLock)> {
        let options = DiskOptions {
            buffered: device.buffered.value,
            read_only: device.read_only.value,
            exclusive: true,
            block: None,
            name: Some(format!("{} ({})", device.name.value, path.display())),
        };
        let timer = self.local.env().timer;
        let open = async || {
            let place = path.to_owned();
            let opening = async {
                let looked = self.host.aside(move || ublk::stack::refuse_own(&place));
                looked.await??;
                self.host.open_disk_aside(path, &options).await
            };
            let opened = Deadline::new(&timer, OPEN_MAX).bound(opening).await;
            opened.unwrap_or_else(|| {
                let what =
                    "does not answer when it is opened; see to its file system or controller";
                let name = options.name.clone().unwrap_or_default();
                Err(IoError::new(IoErrorKind::Timeout, what).on(name))
            })
        };
        let (target, _) = match claim::once_left(&timer, path, open).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.with_users(error, path).await),
        };
        let mut hold = self.hold(target);
        let device = path.to_owned();
        let claimed = self.host.aside(move || Behind::claim(&device)).await??;
        if let UseLock::File {
            _behind: behind, ..
        } = &mut hold
        {
            *behind = claimed;
        }
        Ok((self.local.disk(target)?, hold))
    }

    async fn holes(&self, path: &Path) -> Vec<Extent> {
        let path = path.to_owned();
        let looking = self
            .host
            .aside(move || holes::of(&path).unwrap_or_default());
        let timer = self.local.env().timer;
        let looked = Deadline::new(&timer, OPEN_MAX).bound(looking).await;
        looked.and_then(Result::ok).unwrap_or_default()
    }

    fn claim_export(&self, uri: &NbdUri) -> IoResult<UseLock> {
        Ok(UseLock::Export {
            _claim: ExportClaim::new(uri)?,
        })
    }

    fn read_certificates(&self, file: &Path) -> IoResult<Vec<u8>> {
        read(file)
    }

    async fn configuration(&self) -> Result<Config, String> {
        let none = "no file has this configuration; start the daemon with `--config`";
        let file = self.file.as_ref().ok_or(none)?;
        let file = file.to_path_buf();
        let reading = self.host.aside(move || read_again(&file)).await;
        reading.map_err(plain)?
    }

    async fn unreadable(&self, running: &ConfigurationFiles) -> Option<String> {
        let (file, running) = (self.file.as_ref()?.to_path_buf(), running.clone());
        let reading = self.host.aside(move || {
            let same =
                ConfigurationFiles::read(&file).is_ok_and(|now| now.iter().eq(running.iter()));
            if same { None } else { read_again(&file).err() }
        });
        // A file system that does not answer is no fault of the file's.
        reading.await.ok().flatten()
    }

    async fn amend(&self, request: ControlRequest) -> Option<Result<(), String>> {
        self.file.as_ref()?;
        let control = self.control.to_path_buf();
        let amending = self.host.aside(move || {
            let mut client = ControlClient::connect(&control)?;
            client.change(&request, false, |_, _| ()).map(drop)
        });
        let amended = amending.await.map_err(plain);
        Some(amended.and_then(|amended| amended.map_err(plain)))
    }

    async fn draft(
        &self,
        running: &ConfigurationFiles,
        change: &ControlRequest,
        roles: Roles,
    ) -> Result<Option<Box<dyn node::ConfigurationDraft>>, String> {
        if !change.is_kept() {
            return Ok(None);
        }
        let file = self
            .file
            .as_ref()
            .ok_or("no file has this configuration; use --temporary")?;
        let (file, running, change) = (file.to_path_buf(), running.clone(), change.clone());
        let prepare = move || {
            let of = |array: &str| roles.get(array).cloned().unwrap_or_default();
            amend::Draft::prepare(&file, &running, &change, &of)
        };
        let draft = self.soon("written beside themselves", prepare).await??;
        let platform = self.clone();
        Ok(Some(Box::new(FileDraft { draft, platform })))
    }

    async fn witness(&self, pool: &Name) -> IoResult<(BoxDevice, UseLock)> {
        let (state, host) = (&self.state, &self.host);
        let opened = state::witness(state, pool.as_str(), host, &self.local).await;
        self.beside(opened, &state::file_of(state, pool.as_str()))
            .await
    }

    async fn log_witness(&self, volume: &Name) -> IoResult<(BoxDevice, UseLock)> {
        let (state, host) = (&self.state, &self.host);
        let opened = state::log_witness(state, volume.as_str(), host, &self.local).await;
        self.beside(opened, &state::log_file_of(state, volume.as_str()))
            .await
    }

    async fn logs(&self) -> IoResult<Vec<LogWitness>> {
        self.read_state(state::logs).await
    }

    async fn other_pools(&self, ours: &[&str]) -> IoResult<Vec<Remembered>> {
        let ours: Vec<String> = ours.iter().map(|pool| (*pool).to_owned()).collect();
        self.read_state(move |state| state::others(state, &ours))
            .await
    }

    async fn identity(&self, place: &str) -> DeviceIdentity {
        let text = place.to_owned();
        let asked = self.host.aside(move || identity::identity(&text)).await;
        asked.unwrap_or_else(|_| DeviceIdentity::new(place))
    }

    async fn place(&self, device: &config::Device) -> BasePlace {
        let said = BasePlace::said(device);
        let device = device.clone();
        let looked = self.host.aside(move || BasePlace::of(&device));
        let timer = self.local.env().timer;
        let looked = Deadline::new(&timer, PLACE_MAX).bound(looked).await;
        looked.and_then(Result::ok).unwrap_or(said)
    }

    async fn size(&self, place: &str) -> Option<u64> {
        let place = place.to_owned();
        let asked = self.host.aside(move || machine::size(&place)).await;
        asked.ok()?.ok()
    }

    async fn wear(&self, place: &str) -> Option<WearReport> {
        if !wear::is_nvme(place) {
            return None;
        }
        // A device that refuses to report its wear serves as well as any other.
        let place = place.to_owned();
        let asked = self.host.aside(move || wear::ask(&place)).await;
        asked.ok()?.ok()
    }

    async fn reservation(
        &self,
        place: &str,
        volume: &Name,
        step: ReservationStep,
    ) -> IoResult<bool> {
        let (path, name) = (PathBuf::from(place), place.to_owned());
        let key = reservation::key(&machine::host(), volume.as_str());
        let asked = self.host.aside(move || {
            let device = Reservable::open(&path, key)?;
            match step {
                ReservationStep::Resume => return device.resume(),
                ReservationStep::Take => device.take()?,
                ReservationStep::Check => device.check()?,
                ReservationStep::Release => device.release()?,
                ReservationStep::Leave => device.leave()?,
                ReservationStep::TakeOver => device.take_over()?,
            }
            Ok(true)
        });
        let timer = self.local.env().timer;
        let done = Deadline::new(&timer, OPEN_MAX).bound(asked).await;
        let done = done.unwrap_or_else(|| {
            let what = "does not answer when it is reserved; see to it and its paths";
            Err(IoError::new(IoErrorKind::Timeout, what))
        });
        done.flatten().map_err(|error| error.on(name))
    }

    fn host(&self) -> String {
        machine::host()
    }

    fn time_of_day(&self) -> u64 {
        machine::time_of_day()
    }

    fn clock(&self) -> Nanos {
        machine::clock()
    }

    fn uuid(&self) -> u128 {
        machine::uuid()
    }

    fn room(&self, promised: u64) -> Option<control::memory::MemoryRoom> {
        control::memory::room(promised)
    }

    fn is_ending(&self) -> bool {
        let asked = self.local.get::<SignalRequest>();
        asked.is_some_and(|asked| asked.is_for_end())
    }

    fn process(&self) -> UserProcess {
        UserProcess {
            pid: std::process::id(),
            cpu: machine::cpu_time(),
            resident_bytes: machine::resident_bytes(),
        }
    }

    fn shard_times(&self) -> Vec<Nanos> {
        machine::shard_times()
    }

    fn event(&self, event: NodeEvent) {
        crate::log::event(&event);
    }
}

/// The bytes of a file of certificates or a key.
pub fn read(file: &Path) -> IoResult<Vec<u8>> {
    std::fs::read(file).map_err(|cause| {
        if let Some(refused) = uring::without_descriptor(&cause) {
            return refused.on(file.display().to_string());
        }
        let what = "cannot be read; correct the path, or let this user read it";
        let error = IoError::new(IoErrorKind::Denied, what).on(file.display().to_string());
        error.because(cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::{Device, parse};
    use node::{DeviceSource, OpenDevices, RawRole};
    use shard::run_alone;
    use uring::Options;

    #[test]
    fn a_device_is_opened_once_though_opening_takes_time() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let mut host = Uring::new(Options::default()).unwrap();
        let inner = host.clone();
        let text = format!(
            "name = \"d\"\npath = \"{}\"\nbuffered = true",
            path.display()
        );
        // An open waits for the end of this claim.
        uring::claim(&file).unwrap();
        let ended = run_alone(&mut host, move |local| async move {
            let config = parse("", &mut Vec::new());
            let env = local.env();
            let platform = UringPlatform::new(inner, local, Path::new(""));
            let devices = OpenDevices::new(&config, platform);
            let source = DeviceSource::Device(Box::new(Device::parse(&text).unwrap()));
            let (first, second) = (devices.clone(), source.clone());
            let opening = async move { first.open(&second, RawRole::Origin).await };
            let racing = async {
                let refused = devices.open(&source, RawRole::Pool).await;
                let why = refused.err().unwrap().to_string();
                assert!(why.contains("is being opened"), "{why}");
                env.timer.sleep(block::Nanos::from_millis(100)).await;
                drop(file);
            };
            let (opened, ()) = futures_util::future::join(opening, racing).await;
            let lease = opened.unwrap();
            assert!(devices.open(&source, RawRole::Pool).await.is_err());
            lease.release().await;
            let lease = devices.open(&source, RawRole::Pool).await.unwrap();
            lease.keep();
            let refused = devices.open(&source, RawRole::Origin).await;
            let why = refused.err().unwrap().to_string();
            assert!(why.contains("is in use as pool"), "{why}");
            let name = source.name().clone();
            devices.close(&name).await.unwrap();
            // Dropped without a release, the device is free again too.
            drop(devices.open(&source, RawRole::Origin).await.unwrap());
            env.timer.sleep(block::Nanos::from_millis(10)).await;
            drop(devices.open(&source, RawRole::Origin).await.unwrap());
        });
        ended.expect("nothing cuts its power");
    }
}
