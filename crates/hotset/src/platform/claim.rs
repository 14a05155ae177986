//! Claims on what a pool or an origin is on: one user each.
//!
//! A file or block device has a lock (`uring::claim`); an NBD export has none of
//! its own. The kernel releases what a process claimed a moment after the
//! process has ended, seconds on a busy machine, so that who claims waits that
//! moment ([`wait`], [`node::claimed`]), and longer where the lock is known to be of a
//! process that has ended ([`once_left`]).
//!
//! A claim on an export is an abstract unix socket named after the export: the kernel lets
//! one process have it, and takes it back however that ends. It holds among the
//! daemons of one network name space; another machine is not kept out. Two
//! names of one host (`localhost`, `127.0.0.1`) are two exports to it.

use block::{Address, IoError, IoResult, Kind, Timer};
use control::address::NbdUri;
use node::{CLAIM_ATTEMPTS, CLAIM_PAUSE};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// What `claim` comes to, which is tried again while another is `Busy` with it.
/// Blocks the thread meanwhile.
pub fn wait<T>(mut claim: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    for _ in 1..CLAIM_ATTEMPTS {
        match claim() {
            Err(error) if error.kind() == Kind::Busy => {}
            other => return other,
        }
        std::thread::sleep(std::time::Duration::from_nanos(CLAIM_PAUSE.0));
    }
    claim()
}

/// How often what a process that has ended holds is tried, [`CLAIM_PAUSE`] apart: two minutes.
const LEFT_ATTEMPTS: u32 = 2400;

/// What `open` of the file at `path` comes to, once it is not locked by a process that has
/// ended any more.
pub async fn once_left<T>(
    timer: &Timer,
    path: &Path,
    open: impl AsyncFnMut() -> IoResult<T>,
) -> IoResult<T> {
    let is_left = |error: &IoError| error.kind() == Kind::Busy && uring::is_left_locked(path);
    node::retried(timer, LEFT_ATTEMPTS, is_left, open).await
}

/// Keeps other daemons away from an export until dropped.
pub struct Claim(#[expect(dead_code, reason = "held for its drop")] UnixListener);

impl Claim {
    /// Claims the export at `uri`; refused if a daemon has it, this one too.
    pub fn new(uri: &NbdUri) -> IoResult<Claim> {
        let name = name(uri);
        let bound = SocketAddr::from_abstract_name(name).and_then(|a| UnixListener::bind_addr(&a));
        bound.map(Claim).map_err(|cause| {
            if let Some(refused) = uring::without_descriptor(&cause) {
                return refused.on(uri.to_string());
            }
            let (kind, what) = match cause.kind() {
                ErrorKind::AddrInUse => (
                    Kind::Busy,
                    "is in use by another hotset; stop that, or give each its own export",
                ),
                _ => (Kind::Denied, "cannot be claimed against other daemons"),
            };
            IoError::new(kind, what).on(uri.to_string()).because(cause)
        })
    }
}

/// The claim's name: of one length, for an abstract name holds 107 bytes and a
/// URI may be longer.
fn name(uri: &NbdUri) -> String {
    let place = match &uri.address {
        Address::Unix(path) => {
            let path = Path::new(&**path);
            let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            format!("unix\0{}\0{}", real.display(), uri.export)
        }
        Address::Tcp(host) => format!("tcp\0{}\0{}", host.to_ascii_lowercase(), uri.export),
    };
    let hash = twox_hash::XxHash3_64::oneshot(place.as_bytes());
    format!("hotset-nbd-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(text: &str) -> IoResult<Claim> {
        Claim::new(&NbdUri::parse(text).unwrap())
    }

    #[test]
    fn an_export_is_claimed_once_until_released() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _server = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, dir.path().join("alias")).unwrap();
        let uri = |name: &str, export: &str| {
            let path = dir.path().join(name);
            format!("nbd+unix:///{export}?socket={}", path.display())
        };
        let first = claim(&uri("s", "a")).unwrap();
        let other_export = claim(&uri("s", "b")).unwrap();
        let error = claim(&uri("alias", "a")).err().unwrap();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(
            error.to_string().contains("in use by another hotset"),
            "{error}"
        );
        drop((first, other_export));
        claim(&uri("alias", "a")).unwrap();
    }

    #[test]
    fn a_claim_waits_for_who_is_about_to_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = || {
            let mut options = std::fs::File::options();
            options
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let (mine, theirs) = (open(), open());
        uring::claim(&theirs).unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(theirs);
        });
        wait(|| uring::claim(&mine)).unwrap();
        holder.join().unwrap();
        let error = wait(|| uring::claim(&open())).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        drop(mine);
    }

    #[test]
    fn hosts_are_distinguished_by_name_and_port() {
        // No test may meet a claim of a daemon that runs.
        let host = format!("TEST-{}.invalid", std::process::id());
        let _first = claim(&format!("nbd://{host}/v")).unwrap();
        let same = format!("nbd://{}:10809/v", host.to_lowercase());
        assert!(claim(&same).is_err());
        claim(&format!("nbd://{host}:10810/v")).unwrap();
    }
}
