//! A server on a real file and a real socket, and programs to aim at it.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use block::conformance::BeginningGate;
use block::{Address, Gate, Host, Nanos, ShardId};
use nbd::protocol::server_handshake::TlsPolicy;
use nbd::serve::{ExportOptions, NbdServer, NbdStats, ServerLimits};
use nbd::tls::{Acceptor, TlsIdentity, TlsStep};
use shard::{Config, Local, Mesh, Shard, ShardDisk};
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tempfile::TempDir;
use uring::{AsideWorker, DiskOptions, Options, Uring, UringDriver};

/// The device that the tests serve.
pub type Real = ShardDisk<UringDriver>;

/// Bytes of the export "vol".
pub const BYTES: u64 = 64 << 20;

pub fn host() -> Uring {
    Uring::new(Options {
        pool_bytes: 64 << 20,
        ..Options::default()
    })
    .unwrap()
}

/// A directory on the file system that the build is on, for `/tmp` may have no
/// direct I/O. Short, because socket paths must be.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Certificates for tests, in PEM.
pub struct Certificates {
    pub ca: String,
    pub server: String,
    pub server_key: String,
    pub client: String,
    pub client_key: String,
}

impl Certificates {
    pub fn new() -> Certificates {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let leaf = || {
            let key = KeyPair::generate().unwrap();
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
            let leaf = CertificateParams::new(names).unwrap();
            let certificate = leaf.signed_by(&key, &issuer).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let ((server, server_key), (client, client_key)) = (leaf(), leaf());
        Certificates {
            ca,
            server,
            server_key,
            client,
            client_key,
        }
    }

    pub fn acceptor(&self, ask_clients: bool) -> Acceptor {
        let identity = TlsIdentity {
            certificates: self.server.as_bytes(),
            key: self.server_key.as_bytes(),
        };
        Acceptor::new(identity, ask_clients.then_some(self.ca.as_bytes())).unwrap()
    }

    /// Writes the files that gnutls programs look for in a directory.
    pub fn write(&self, dir: &Path) {
        for (name, pem) in [
            ("ca-cert.pem", &self.ca),
            ("server-cert.pem", &self.server),
            ("server-key.pem", &self.server_key),
            ("client-cert.pem", &self.client),
            ("client-key.pem", &self.client_key),
        ] {
            std::fs::write(dir.join(name), pem).unwrap();
        }
    }
}

/// A server that runs in a thread until dropped.
pub struct Served {
    pub dir: TempDir,
    pub address: Address,
    mesh: Mesh<UringDriver>,
    thread: Option<JoinHandle<()>>,
    /// Logged lines.
    pub log: mpsc::Receiver<String>,
    /// Steps of TLS handshakes that were done on the worker's thread.
    pub steps: Arc<AtomicU32>,
}

pub struct Setup {
    pub limits: ServerLimits,
    pub tls: Option<(Acceptor, TlsPolicy)>,
    pub tcp: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        let limits = ServerLimits {
            connections_max: 16,
            memory_bytes_max: 32 << 20,
            ..ServerLimits::default()
        };
        Setup {
            limits,
            tls: None,
            tcp: false,
        }
    }
}

/// The running server, kept on its shard for [`Served::with`].
type RealServer = Rc<NbdServer<BeginningGate<Gate<Real>>>>;

struct Running(RefCell<Option<RealServer>>);

impl Served {
    /// Serves "vol" of 64 MiB, writable, and "ro", the same file read-only.
    pub fn start(setup: Setup) -> Served {
        let dir = directory();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(BYTES).unwrap();
        let mut host = host();
        let disk = host.open_disk(&path, &DiskOptions::default()).unwrap().0;
        let address = if setup.tcp {
            Address::Tcp("127.0.0.1:0".into())
        } else {
            Address::Unix(dir.path().join("s").to_str().unwrap().into())
        };
        let (listener, address) = host.listen(&address).unwrap();
        let mesh = Mesh::new(1);
        let (log, logged) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let inner = mesh.clone();
        let steps = Arc::new(AtomicU32::new(0));
        let done = steps.clone();
        let thread = std::thread::spawn(move || {
            host.run(1, move |id, driver| {
                let (tls, limits) = (setup.tls.clone(), setup.limits);
                let (log, ready, done) = (log.clone(), ready.clone(), done.clone());
                Shard::boot(
                    id,
                    driver,
                    inner.clone(),
                    Config::default(),
                    |local| async move {
                        let log = Rc::new(move |line: &str| drop(log.send(line.to_owned())));
                        let server = NbdServer::new(local.env(), limits, tls, log).unwrap();
                        let thread = AsideWorker::new("tls").unwrap();
                        server.shake_hands_by(Rc::new(move |step: TlsStep| {
                            let (thread, done) = (thread.clone(), done.clone());
                            Box::pin(async move {
                                done.fetch_add(1, Ordering::Relaxed);
                                thread.run(move || step.run()).await
                            })
                        }));
                        for (name, read_only) in [("vol", false), ("ro", true)] {
                            let options = ExportOptions {
                                description: format!("the {name} export"),
                                read_only,
                            };
                            let gate = Gate::new(local.disk(disk).unwrap(), local.env());
                            let gate = BeginningGate::new(gate, local.env());
                            server.add(name, gate, &options).unwrap();
                        }
                        local.put(Rc::new(Running(RefCell::new(Some(server.clone())))));
                        ready.send(()).unwrap();
                        server.serve(local.listener(listener)).await;
                        server.shut_down(Nanos::from_secs(5)).await;
                    },
                )
            })
            .unwrap();
        });
        is_ready.recv().unwrap();
        Served {
            dir,
            address,
            mesh,
            thread: Some(thread),
            log: logged,
            steps,
        }
    }

    /// Runs `work` on the server's shard.
    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Local<UringDriver>, &RealServer) -> T + Send + 'static,
    ) -> T {
        let (send, receive) = mpsc::channel();
        self.mesh.post(ShardId(0), move |local| {
            let running = local.get::<Running>().unwrap();
            let server = running.0.borrow().clone().unwrap();
            send.send(work(local, &server)).unwrap();
        });
        receive.recv().unwrap()
    }

    pub fn stats(&self) -> NbdStats {
        self.with(|_, server| server.stats())
    }

    pub fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    pub fn socket(&self) -> &str {
        match &self.address {
            Address::Unix(path) => path,
            Address::Tcp(host) => host,
        }
    }

    /// The export as NBD's URI.
    pub fn uri(&self, export: &str) -> String {
        match &self.address {
            Address::Unix(path) => format!("nbd+unix:///{export}?socket={path}"),
            Address::Tcp(host) => format!("nbd://{host}/{export}"),
        }
    }

    /// Ends the server as a signal would, and waits for its end.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.mesh.post(ShardId(0), |local| {
            let running = local.get::<Running>().unwrap();
            let server = running.0.take().unwrap();
            local.env().spawn.spawn(async move {
                server.shut_down(Nanos::from_secs(5)).await;
            });
        });
        thread.join().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program of a Debian package; if the program is missing, panics with the name of the package to
/// install.
pub fn tool(program: &str, package: &str) -> Command {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).exists()));
    assert!(
        found,
        "`{program}` is missing: install the Debian package `{package}`"
    );
    let mut command = Command::new("timeout");
    command.args(["60", program]);
    command
}

/// Runs a program; returns its output, or panics with its messages.
pub fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}
