//! `hotset serve`: from a configuration to a running daemon and its end.

use crate::Failure;
use crate::commands::table::count;
use crate::platform::ublk::UblkFrontend;
use crate::platform::virtio::VirtioFrontend;
use crate::platform::{UringPlatform, read};
use block::{Address, Host, IoResult, ShardId, TargetId};
use control::config::{Config, Listen};
use nbd::protocol::server_handshake::TlsPolicy;
use nbd::serve::Tls;
use nbd::tls::{Acceptor, Identity};
use node::{Controlled, Frontends, NbdFrontend, Node, Platform as _};
use sd_notify::NotifyState;
use shard::{Local, Mesh, Shard};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use uring::{Options, Uring, UringDriver};

/// Everything runs on this shard.
const HOME: ShardId = ShardId(0);

/// Lets this process open as many files as its administrator allows; the limit that is in
/// force at first is for programs that use `select`.
fn raise_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is one `rlimit`, which the first call fills. Where either is refused,
    // the limit stays as it is.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Serves until it is stopped.
pub fn serve(file: &Path, cold: bool) -> Result<(), Failure> {
    raise_descriptors();
    let mut config = crate::commands::check::read_to_serve(file)?;
    config.file = std::path::absolute(file).ok();
    for warning in control::check::warnings(&config) {
        eprintln!("hotset: {}:{warning}", file.display());
    }
    for pool in &mut config.pools {
        pool.cold.value |= cold;
    }
    let mut host = Uring::new(Options {
        pool_bytes: usize::try_from(config.daemon.buffers.value.0).unwrap_or(usize::MAX),
        ..Options::default()
    })
    .map_err(Failure::runtime)?;
    let sockets = Sockets::open(&host, &config).map_err(Failure::runtime)?;
    let mesh = Mesh::new(1);
    end_on_signals(mesh.clone()).map_err(|cause| match uring::without_descriptor(&cause) {
        Some(refused) => Failure::runtime(refused.on("signals")),
        None => Failure::runtime(cause),
    })?;
    // What was opened since the host was made may have left it nothing.
    Uring::check().map_err(Failure::runtime)?;
    let outcome = Arc::new(Mutex::new(Ok(())));
    let ended_with = outcome.clone();
    let opened = host.clone();
    host.run(1, move |id, driver| {
        let (host, config, sockets, ended_with) = (
            opened.clone(),
            config.clone(),
            sockets.clone(),
            ended_with.clone(),
        );
        let depth = shard::Config::default();
        Shard::boot(id, driver, mesh.clone(), depth, move |local| {
            local.put(Rc::new(End::default()));
            async move {
                let platform = UringPlatform::new(host.clone(), local, &config.daemon.state.value);
                let ended = run(config, platform, host, sockets).await;
                *ended_with.lock().expect("no panic under this lock") = ended;
            }
        })
    });
    let ended = outcome.lock().expect("no panic under this lock").clone();
    ended.map_err(Failure::Runtime)
}

/// The sockets that are listened on.
#[derive(Clone)]
struct Sockets {
    control: TargetId,
    nbd: Vec<(TargetId, Option<Tls>)>,
    /// Of the latter.
    uris: Vec<String>,
}

impl Sockets {
    fn open(host: &Uring, config: &Config) -> IoResult<Sockets> {
        let control = config.daemon.control.value.display().to_string();
        let control = with_umask(0o177, || host.listen(&Address::Unix(control.into())))?.0;
        let mut sockets = Sockets {
            control,
            nbd: Vec::new(),
            uris: Vec::new(),
        };
        for listen in &config.listeners {
            let address = match (&listen.unix, &listen.tcp) {
                (Some(path), _) => Address::Unix(path.value.display().to_string().into()),
                (None, Some(tcp)) => Address::Tcp(tcp.value.0.to_string().into()),
                (None, None) => continue,
            };
            let tls = tls(listen)?;
            let (target, bound) = host.listen(&address)?;
            sockets.nbd.push((target, tls));
            sockets.uris.push(match bound {
                Address::Unix(path) => format!("nbd+unix:///?socket={path}"),
                Address::Tcp(host) => format!("nbd://{host}/"),
            });
        }
        Ok(sockets)
    }
}

/// What a listener's clients are shown.
fn tls(listen: &Listen) -> IoResult<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&listen.tls_certificate, &listen.tls_key) else {
        return Ok(None);
    };
    let (certificates, key) = (read(&certificate.value)?, read(&key.value)?);
    let identity = Identity {
        certificates: &certificates,
        key: &key,
    };
    let authority = listen.tls_client_ca.as_ref();
    let authority = authority.map(|file| read(&file.value)).transpose()?;
    let acceptor = Acceptor::new(identity, authority.as_deref())?;
    Ok(Some((acceptor, TlsPolicy::Required)))
}

/// Runs `work` with a mask for the modes of files it makes. The process has
/// one thread so far.
fn with_umask<T>(mask: libc::mode_t, work: impl FnOnce() -> T) -> T {
    // SAFETY: no pointers are involved.
    let before = unsafe { libc::umask(mask) };
    let output = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    output
}

/// Whether the daemon is to end, and who waits for it.
#[derive(Default)]
struct End {
    due: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl End {
    fn call(&self) {
        self.due.set(true);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    async fn called(&self) {
        poll_fn(|cx| {
            if self.due.get() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Ends the daemon at the first SIGTERM or SIGINT, the process at the second.
fn end_on_signals(mesh: Mesh<UringDriver>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        for (n, _) in signals.forever().enumerate() {
            if n > 0 {
                eprintln!("hotset: ended by a second signal, with requests in flight");
                std::process::exit(1);
            }
            mesh.post(HOME, |local: &Local<UringDriver>| {
                local.get::<End>().expect("put at boot").call();
            });
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map(drop)
}

/// The daemon's life on its shard.
async fn run(
    config: Config,
    platform: UringPlatform,
    host: Uring,
    sockets: Sockets,
) -> Result<(), String> {
    let local = platform.local().clone();
    let env = local.env();
    let end = local.get::<End>().expect("put at boot");
    let frontend = NbdFrontend::new(&config, &platform, sockets.uris.clone());
    let frontend = Rc::new(frontend.map_err(|error| error.to_string())?);
    let attached =
        UblkFrontend::new(&config, &platform, host).map_err(|error| error.to_string())?;
    let guests = Rc::new(VirtioFrontend::new(&config, &platform));
    let frontends: Frontends<UringDriver> =
        vec![frontend.clone(), Rc::new(attached.clone()), guests.clone()];
    let node = Node::start(&config, platform, frontends).await?;
    let devices = match attached.settled().await {
        Ok(devices) => devices,
        Err(why) => {
            node.stop().await?;
            return Err(why);
        }
    };
    for (socket, tls) in sockets.nbd {
        let (server, listener) = (frontend.server.clone(), local.listener(socket));
        env.spawn.spawn(async move {
            server.serve_with(listener, tls).await;
        });
    }
    Node::supervise(&node);
    let control = local.listener(sockets.control);
    let handler = Rc::new(Controlled(node.clone()));
    env.spawn
        .spawn(control::serve::serve(control, handler, env.clone()));
    eprintln!(
        "hotset: serving {} on {}",
        count(node.volumes_served(), "volume"),
        [devices, guests.sockets(), sockets.uris]
            .concat()
            .join(", ")
    );
    notify(&[NotifyState::Ready]);
    end.called().await;
    notify(&[NotifyState::Stopping]);
    node.stop().await
}

/// Notifies the service manager, where there is one.
fn notify(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(false, state) {
        eprintln!("hotset: the service manager cannot be notified: {error}");
    }
}
