//! The file beside a pool or a log. The file may fail for a while; its user retries.
//!
//! A file that fails, or does not answer in time, is closed, and reopened by the next request. So a
//! past error does not keep it out of service.
//!
//! Invariant: a file is reopened ⟹ all earlier requests have ended
//!
//! Not here: the content of the file (`cache`), and its path (`Platform`).

use crate::event::NodeEvent;
use crate::platform::Platform;
use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba,
    Mutex, Nanos, SharedBuf, WithDeadline,
};
use control::config::Name;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// Time limit of a request to the file.
const ANSWER_MAX: Nanos = Nanos::from_secs(10);

/// The owner of the file.
#[derive(Clone, Debug)]
pub(crate) enum WitnessOwner {
    /// A pool.
    Pool(Name),
    /// The log of a volume.
    Log(Name),
}

impl fmt::Display for WitnessOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WitnessOwner::Pool(name) => write!(f, "{name}.pool"),
            WitnessOwner::Log(name) => write!(f, "{name}.log"),
        }
    }
}

struct Witness<P: Platform>(Rc<WitnessShared<P>>);

struct WitnessShared<P: Platform> {
    platform: P,
    beside: WitnessOwner,
    geometry: Geometry,
    file: RefCell<Option<Rc<Kept<P>>>>,
    opening: Mutex,
    /// Reason of the failure, if the file fails.
    fails: RefCell<Option<String>>,
    closed: Cell<bool>,
}

struct Kept<P: Platform> {
    device: BoxDevice,
    _hold: P::Hold,
}

/// The claim on a file, against other users.
pub(crate) trait WitnessClaim {
    /// The name of the file and the reason, if the file fails.
    fn fails(&self) -> Option<(String, String)>;
}

impl<P: Platform> WitnessClaim for Claimed<P> {
    fn fails(&self) -> Option<(String, String)> {
        let why = self.0.fails.borrow().clone();
        Some((self.0.beside.to_string(), why?))
    }
}

/// A claim on a file. Dropping it closes the file.
pub(crate) struct Claimed<P: Platform>(Rc<WitnessShared<P>>);

impl<P: Platform> Drop for Claimed<P> {
    fn drop(&mut self) {
        self.0.closed.set(true);
        self.0.file.take();
    }
}

/// Opens the file; makes it if it is missing.
pub(crate) async fn open<P: Platform>(
    platform: &P,
    beside: WitnessOwner,
) -> IoResult<(BoxDevice, Claimed<P>)> {
    let file = claim(platform, &beside).await?;
    let inner = Rc::new(WitnessShared {
        platform: platform.clone(),
        beside,
        geometry: file.device.geometry().clone(),
        file: RefCell::new(Some(Rc::new(file))),
        opening: Mutex::default(),
        fails: RefCell::default(),
        closed: Cell::new(false),
    });
    let device = BoxDevice::new(Witness(inner.clone()));
    Ok((device, Claimed(inner)))
}

async fn claim<P: Platform>(platform: &P, beside: &WitnessOwner) -> IoResult<Kept<P>> {
    let (device, hold) = match beside {
        WitnessOwner::Pool(name) => platform.witness(name).await?,
        WitnessOwner::Log(name) => platform.log_witness(name).await?,
    };
    let env = platform.local().env();
    Ok(Kept {
        device: BoxDevice::new(WithDeadline::new(device, env, ANSWER_MAX)),
        _hold: hold,
    })
}

impl<P: Platform> WitnessShared<P> {
    async fn file(&self) -> IoResult<Rc<Kept<P>>> {
        let _held = self.opening.lock().await;
        if self.closed.get() {
            return Err(self.geometry.error(IoErrorKind::Gone, "was closed"));
        }
        if let Some(file) = &*self.file.borrow() {
            return Ok(file.clone());
        }
        let file = Rc::new(claim(&self.platform, &self.beside).await?);
        if !self.closed.get() {
            self.file.replace(Some(file.clone()));
        }
        Ok(file)
    }

    async fn perform(&self, work: impl AsyncFnOnce(&BoxDevice) -> IoResult) -> IoResult {
        let done = match self.file().await {
            Ok(file) => work(&file.device).await,
            Err(error) => Err(error),
        };
        self.note(done.as_ref().err());
        done
    }

    /// Reports the first failure, and the first success after failures.
    fn note(&self, error: Option<&IoError>) {
        if error.is_some() {
            self.file.take();
        }
        let why = error.map(IoError::to_string);
        let had_failed = self.fails.replace(why.clone()).is_some();
        if had_failed != why.is_some() && !self.closed.get() {
            self.platform.event(NodeEvent::Witness {
                file: self.beside.to_string(),
                why,
            });
        }
    }
}

impl<P: Platform> Device for Witness<P> {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let bytes = buf.len();
        let back = &Cell::new(None);
        let read = async move |device: &BoxDevice| {
            let (buf, read) = device.read(at, buf).await;
            back.set(Some(buf));
            read
        };
        let result = self.0.perform(read).await;
        let pool = self.0.platform.local().env().pool;
        (back.take().unwrap_or_else(|| pool.take(bytes)), result)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let write = async |device: &BoxDevice| device.write(at, data, fua).await;
        self.0.perform(write).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let zero = async |device: &BoxDevice| device.zero(extent).await;
        self.0.perform(zero).await
    }

    async fn flush(&self) -> IoResult {
        let flush = async |device: &BoxDevice| device.flush().await;
        self.0.perform(flush).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let discard = async |device: &BoxDevice| device.discard(extent).await;
        self.0.perform(discard).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let extents = async |device: &BoxDevice| device.extents(extent, out).await;
        self.0.perform(extents).await
    }
}
