//! The client against the servers that people use, and against our own over
//! real sockets, with and without TLS.

use crate::real::{Certificates, Served, Setup, directory, host, tool};
use block::conformance;
use block::{Address, Content, Device, Env, Fua, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use nbd::client::{Client, Options};
use nbd::protocol::server_handshake::TlsPolicy;
use nbd::tls::{Dialer, TlsIdentity};
use shard::{Local, run_alone};
use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::{Duration, Instant};
use uring::UringDriver;

/// Runs `work` on a shard of its own to its end.
fn on_a_shard<F, W>(work: W)
where
    F: Future<Output = ()> + 'static,
    W: FnOnce(Local<UringDriver>, Env) -> F + Send + 'static,
{
    run_alone(&mut host(), |local| work(local.clone(), local.env())).unwrap();
}

fn unix(path: &Path) -> Address {
    Address::Unix(path.to_str().unwrap().into())
}

/// A server in a process of its own, killed when dropped.
struct Process(Child);

impl Process {
    /// Starts a server and waits until its socket is there.
    fn start(command: &mut Command, socket: &Path) -> Process {
        let process = Process(command.spawn().unwrap());
        let begun = Instant::now();
        while !socket.exists() {
            assert!(
                begun.elapsed().as_secs() < 20,
                "{command:?} opens no socket"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// `program` itself, so that killing the process kills the server.
fn server(program: &str, package: &str) -> Command {
    tool(program, package);
    Command::new(program)
}

/// nbdkit with `arguments` on `socket`.
fn nbdkit<A: AsRef<std::ffi::OsStr>>(socket: &Path, arguments: &[A]) -> Process {
    let mut command = server("nbdkit", "nbdkit");
    command.args(["-f", "-U"]).arg(socket).args(arguments);
    Process::start(&mut command, socket)
}

/// A file of 16 MiB of zeroes.
fn blank(file: &Path) {
    std::fs::File::create(file)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
}

/// Address and export for a client, in a form that can be sent to another thread.
#[derive(Clone)]
struct Target {
    address: Address,
    export: &'static str,
    tls: Option<Dialer>,
}

impl Target {
    fn plain(address: Address, export: &'static str) -> Target {
        let tls = None;
        Target {
            address,
            export,
            tls,
        }
    }

    fn options(&self) -> Options {
        let mut options = Options::new(self.address.clone(), self.export);
        options.tls = self.tls.clone();
        options
    }
}

fn conforms(target: Target) {
    on_a_shard(move |local, env| {
        let options = target.options();
        async move {
            let client = Client::connect(env.clone(), local.connector(), options)
                .await
                .unwrap();
            conformance::device(&client, &env, 1).await;
        }
    });
}

#[test]
fn our_own_over_a_unix_socket() {
    let served = Served::start(Setup::default());
    conforms(Target::plain(served.address.clone(), "vol"));
    let stats = served.stats();
    assert_eq!((stats.errors, stats.failed), (0, 0), "{stats:?}");
}

#[test]
fn our_own_under_tls() {
    let certificates = Certificates::new();
    let served = Served::start(Setup {
        tls: Some((certificates.acceptor(true), TlsPolicy::Required)),
        tcp: true,
        ..Setup::default()
    });
    let identity = TlsIdentity {
        certificates: certificates.client.as_bytes(),
        key: certificates.client_key.as_bytes(),
    };
    let dialer = |identity| Dialer::new("localhost", certificates.ca.as_bytes(), identity).unwrap();
    let mut target = Target::plain(served.address.clone(), "vol");
    target.tls = Some(dialer(Some(identity)));
    conforms(target.clone());

    // Another authority, no certificate, no TLS: each one clear error.
    let stranger = Certificates::new();
    let mut untrusting = target.clone();
    untrusting.tls = Some(Dialer::new("localhost", stranger.ca.as_bytes(), None).unwrap());
    let mut anonymous = target.clone();
    anonymous.tls = Some(dialer(None));
    let mut plain = target;
    plain.tls = None;
    for (target, kind, says) in [
        (untrusting, IoErrorKind::Stream, "invalid peer certificate"),
        (anonymous, IoErrorKind::Stream, "CertificateRequired"),
        (plain, IoErrorKind::Denied, "TLS is required"),
    ] {
        on_a_shard(move |local, env| {
            let options = target.options();
            async move {
                let error = Client::connect(env, local.connector(), options)
                    .await
                    .err()
                    .unwrap();
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(says), "{error}");
            }
        });
    }
}

#[test]
fn nbdkit_in_memory() {
    let dir = directory();
    let socket = dir.path().join("s");
    let _server = nbdkit(&socket, &["memory", "16M"]);
    conforms(Target::plain(unix(&socket), ""));
}

/// A server without structured replies and without zeroing.
#[test]
fn nbdkit_of_few_words() {
    let dir = directory();
    let (socket, file) = (dir.path().join("s"), dir.path().join("disk"));
    blank(&file);
    let arguments = [
        "--no-sr",
        "--filter=nozero",
        "--filter=nocache",
        "file",
        file.to_str().unwrap(),
        "zeromode=none",
        "cachemode=none",
    ];
    let _server = nbdkit(&socket, &arguments);
    conforms(Target::plain(unix(&socket), ""));
}

#[test]
fn nbdkit_in_blocks_of_4096() {
    let dir = directory();
    let socket = dir.path().join("s");
    let arguments = [
        "--filter=blocksize-policy",
        "memory",
        "16M",
        "blocksize-minimum=4096",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ];
    let _server = nbdkit(&socket, &arguments);
    let address = unix(&socket);
    on_a_shard(move |local, env| {
        let options = Options::new(address.clone(), "");
        async move {
            let client = Client::connect(env.clone(), local.connector(), options)
                .await
                .unwrap();
            assert_eq!(client.geometry().block, Sectors(8));
            conformance::device(&client, &env, 2).await;
        }
    });
}

#[test]
fn qemu_nbd_of_a_file() {
    let dir = directory();
    let (socket, file) = (dir.path().join("s"), dir.path().join("disk"));
    blank(&file);
    let mut qemu_nbd = server("qemu-nbd", "qemu-utils");
    qemu_nbd.args([
        "-f",
        "raw",
        "-x",
        "vol",
        "--persistent",
        "--discard=unmap",
        "-k",
    ]);
    let _server = Process::start(qemu_nbd.arg(&socket).arg(&file), &socket);
    conforms(Target::plain(unix(&socket), "vol"));
}

/// The holes that a server reports reach the caller.
#[test]
fn extents_are_those_of_the_server() {
    let dir = directory();
    let socket = dir.path().join("s");
    let _server = nbdkit(&socket, &["memory", "16M"]);
    let address = unix(&socket);
    on_a_shard(move |local, env| {
        let options = Options::new(address.clone(), "");
        async move {
            let client = Client::connect(env.clone(), local.connector(), options)
                .await
                .unwrap();
            let mut buf = env.pool.get(64 << 10).await;
            buf.fill(1);
            let at = Lba(8192);
            client.write(at, buf.share(), Fua::No).await.unwrap();
            let mut out = Vec::new();
            let whole = client.geometry().extent();
            client.extents(whole, &mut out).await.unwrap();
            let seen: Vec<_> = out
                .iter()
                .map(|(e, c)| (e.start.0, e.len.0, *c == Content::Hole))
                .collect();
            assert_eq!(
                seen,
                [
                    (0, 8192, true),
                    (8192, 128, false),
                    (8320, 32768 - 8320, true)
                ]
            );
        }
    });
}

/// A server that is killed and comes back: requests meanwhile wait, and the next flush reports that
/// writes may be forgotten.
#[test]
fn a_server_that_is_killed_and_comes_back() {
    let dir = directory();
    let (socket, file) = (dir.path().join("s"), dir.path().join("disk"));
    blank(&file);
    let start = {
        let (socket, file) = (socket.clone(), file.clone());
        move || {
            // A dead server leaves its socket, which the next refuses to use.
            let _ = std::fs::remove_file(&socket);
            nbdkit(&socket, &["file".as_ref(), file.as_os_str()])
        }
    };
    let first = std::sync::Mutex::new(Some(start()));
    let address = unix(&socket);
    on_a_shard(move |local, env| {
        let options = Options::new(address.clone(), "");
        let (first, start) = (first.lock().unwrap().take().unwrap(), start.clone());
        async move {
            let client = Client::connect(env.clone(), local.connector(), options)
                .await
                .unwrap();
            let filled = |value: u8| {
                let mut buf = env.pool.try_get(4096).unwrap();
                buf.fill(value);
                buf.share()
            };
            client.write(Lba(0), filled(1), Fua::No).await.unwrap();
            drop(first);
            // Started from this thread, since the server dies with the thread that started it.
            let back = Rc::new(RefCell::new(None));
            let (timer, again) = (env.timer.clone(), back.clone());
            env.spawn.spawn(async move {
                timer.sleep(Nanos::from_millis(500)).await;
                *again.borrow_mut() = Some(start());
            });
            // Waits until the server is back.
            client.write(Lba(8), filled(2), Fua::Yes).await.unwrap();
            let flushed: IoResult = client.flush().await;
            assert_eq!(flushed.unwrap_err().kind(), IoErrorKind::Gone);
            client.flush().await.unwrap();
            let buf = env.pool.get(8192).await;
            let (buf, result) = client.read(Lba(0), buf).await;
            result.unwrap();
            assert!(buf[..4096].iter().all(|b| *b == 1) && buf[4096..].iter().all(|b| *b == 2));
            assert!(back.take().is_some(), "it came back");
        }
    });
}

#[test]
fn a_first_connection_fails_with_one_clear_error() {
    let served = Served::start(Setup::default());
    let dir = directory();
    let missing = unix(&dir.path().join("none"));
    let vol = served.address.clone();
    let mut insists = Target::plain(vol.clone(), "vol");
    let certificates = Certificates::new();
    insists.tls = Some(Dialer::new("localhost", certificates.ca.as_bytes(), None).unwrap());
    for (target, kind, says) in [
        (Target::plain(missing, "vol"), None, "none"),
        (
            Target::plain(vol, "nope"),
            Some(IoErrorKind::Invalid),
            "refuses export \"nope\": no such export",
        ),
        (insists, Some(IoErrorKind::Denied), "TLS is asked for"),
    ] {
        on_a_shard(move |local, env| {
            let options = target.options();
            async move {
                let begun = env.timer.now();
                let error = Client::connect(env.clone(), local.connector(), options)
                    .await
                    .err()
                    .unwrap();
                assert!(kind.is_none_or(|kind| error.kind() == kind), "{error}");
                assert!(error.to_string().contains(says), "{error}");
                assert!(env.timer.now().since(begun) < Nanos::from_secs(10));
            }
        });
    }
}
