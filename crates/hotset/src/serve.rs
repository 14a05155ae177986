//! `hotset serve`: from a configuration to a running daemon and its end.

use crate::CommandFailure;
use crate::commands::table::count;
use crate::log::{self, LogFormat};
use crate::platform::nbd::{BoundSocket, NbdSockets};
use crate::platform::ublk::UblkFrontend;
use crate::platform::virtio::VirtioFrontend;
use crate::platform::{UringPlatform, claim, machine, steering};
use crate::signals::{self, SignalRequest};
use block::{Address, Host, IoError, Nanos, ShardId, TargetId, Timer};
use control::config::Config;
use control::memory::further_buffers;
use node::{Controlled, Frontends, Node, Platform as _, Priority, end_fronts, run_front};
use sd_notify::NotifyState;
use shard::{Mesh, Shard};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use uring::{Options, Uring, UringDriver};

/// The shard of volumes and devices; further ones serve connections of NBD and queues of ublk.
const HOME: ShardId = ShardId(0);
/// Interval of the looks at an end that takes longer.
const END_SAID: Nanos = Nanos::from_secs(2);

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

/// Serves until the daemon is stopped.
pub fn serve(file: &Path, cold: bool, format: LogFormat) -> Result<(), CommandFailure> {
    raise_descriptors();
    let config = crate::configuration::read_to_serve(file, claim::stays_listened)?;
    log::begin(format).map_err(|cause| {
        let what = "the log cannot be begun; raise the limit of open files (ulimit -n), or of \
                    threads (ulimit -u)";
        CommandFailure::of(what, cause)
    })?;
    for warning in crate::configuration::warnings(&config) {
        log::line(Priority::Warning, &warning);
    }
    let shards = config.daemon.shards.value.count();
    let mut host = Uring::new(options(&config)).map_err(CommandFailure::runtime)?;
    let sockets = Sockets::open(&host, &config)?;
    let mesh = Mesh::new(shards);
    signals::listen(HOME, mesh.clone()).map_err(|cause| {
        match uring::without_descriptor(&cause) {
            Some(refused) => CommandFailure::runtime(refused.on("signals")),
            None => CommandFailure::of("signals cannot be waited for", cause),
        }
    })?;
    let outcome = Arc::new(Mutex::new(true));
    let ended_with = outcome.clone();
    let opened = host.clone();
    let busy_poll = Nanos(config.daemon.busy_poll.value.as_nanos() as u64);
    let began = host.run(shards, move |id, driver| {
        let bounds = shard::Config {
            busy_poll,
            ..shard::Config::default()
        };
        machine::note_shard(id.0);
        if id != HOME {
            return Shard::boot(id, driver, mesh.clone(), bounds, run_front);
        }
        let (host, config, sockets, ended_with) = (
            opened.clone(),
            config.clone(),
            sockets.clone(),
            ended_with.clone(),
        );
        Shard::boot(id, driver, mesh.clone(), bounds, move |local| {
            local.put(Rc::new(SignalRequest::default()));
            async move {
                let (state, file) = (&config.daemon.state.value, config.files.main());
                let platform = UringPlatform::new(host.clone(), local.clone(), state);
                let platform = platform.configured_by(file, &config.daemon.control.value);
                let ended = run(config, cold, platform, host, sockets).await;
                end_fronts(&local);
                // Said before devices are waited for that do not answer.
                if let Err(why) = &ended {
                    log::line(Priority::Error, why);
                }
                *ended_with.lock().expect("no panic under this lock") = ended.is_ok();
            }
        })
    });
    began.map_err(CommandFailure::runtime)?;
    match *outcome.lock().expect("no panic under this lock") {
        true => Ok(()),
        false => Err(CommandFailure::Answered(command::FAILED)),
    }
}

/// The options of the shards of `config`.
fn options(config: &Config) -> Options {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Options {
        pool_bytes: bytes(config.daemon.buffers.value.0),
        further_pool_bytes: Some(bytes(further_buffers(&config.daemon))),
        processors: config.daemon.shards.value.processors().to_vec(),
        waits: |text| log::line(Priority::Warning, text),
        ..Options::default()
    }
}

/// The sockets that are listened on.
#[derive(Clone)]
struct Sockets {
    control: TargetId,
    nbd: Vec<BoundSocket>,
}

impl Sockets {
    /// Listens on every socket; the former owner of one may be about to end.
    fn open(host: &Uring, config: &Config) -> Result<Sockets, CommandFailure> {
        let at = |line: u32| {
            let place = config.files.place(line);
            move |error: IoError| CommandFailure::Runtime(format!("{place}: {error}"))
        };
        let control = &config.daemon.control;
        let address = Address::Unix(control.value.display().to_string().into());
        let listened = with_umask(0o177, || claim::wait(|| host.listen(&address)));
        let control = listened.map_err(at(control.line))?.0;
        let shared = steering::share(config);
        shared.map_err(|problem| CommandFailure::Usage(config.files.show(&problem)))?;
        let mut nbd = Vec::new();
        for listen in &config.listeners {
            let opened = claim::wait(|| BoundSocket::open(host, listen));
            nbd.extend(opened.map_err(at(listen.line))?);
        }
        Ok(Sockets { control, nbd })
    }
}

/// Runs `work` with a mask for the modes of new files. No other thread makes files so far.
fn with_umask<T>(mask: libc::mode_t, work: impl FnOnce() -> T) -> T {
    // SAFETY: no pointers are involved.
    let before = unsafe { libc::umask(mask) };
    let output = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    output
}

/// The daemon's life on its shard.
async fn run(
    config: Config,
    cold: bool,
    platform: UringPlatform,
    host: Uring,
    sockets: Sockets,
) -> Result<(), String> {
    let local = platform.local().clone();
    let env = local.env();
    let asked = local.get::<SignalRequest>().expect("put at boot");
    let to_message = |error: block::IoError| error.to_string();
    let nbd = NbdSockets::new(&config, &platform, host.clone()).map_err(to_message)?;
    let nbd = Rc::new(nbd);
    let attached = UblkFrontend::new(&config, &platform, host.clone()).map_err(to_message)?;
    let guests = Rc::new(VirtioFrontend::new(&platform, host.clone()));
    let frontends: Frontends<UringDriver> =
        vec![nbd.clone(), Rc::new(attached.clone()), guests.clone()];
    let mut first = config.clone();
    for pool in &mut first.pools {
        pool.cold.value |= cold;
    }
    let node = Node::start(&first, platform.clone(), frontends).await?;
    let devices = attached.settled().await;
    for event in attached.left(&config) {
        platform.event(event);
    }
    // Flags of the command line are for this start alone.
    node.devices.adopt(config);
    for socket in sockets.nbd {
        nbd.serve(socket);
    }
    Node::supervise(&node);
    let control = local.listener(sockets.control);
    let handler = Rc::new(Controlled(node.clone()));
    env.spawn
        .spawn(control::serve::serve(control, handler, env.clone()));
    let reached = [devices, guests.sockets(), nbd.uris()].concat().join(", ");
    log::line(Priority::Notice, &format!("{} on {reached}", served(&node)));
    notify(&[NotifyState::Ready, NotifyState::Status(&served(&node))]);
    env.spawn
        .spawn(feed_watchdog(node.clone(), env.timer.clone()));
    env.spawn
        .spawn(reload_when_asked(node.clone(), asked.clone()));
    asked.for_end().await;
    notify(&[NotifyState::Stopping]);
    host.end_within(node.stop_max());
    env.spawn
        .spawn(say_waits_at_end(node.clone(), env.timer.clone()));
    node.stop().await
}

/// Names the parts that the end waits for, once the end takes [`END_SAID`], and each time that
/// these change.
async fn say_waits_at_end(node: Rc<Node<UringPlatform>>, timer: Timer) {
    let mut said = String::new();
    loop {
        timer.sleep(END_SAID).await;
        let Some(wait) = node.waits_at_end() else {
            continue;
        };
        notify(&[NotifyState::Stopping, NotifyState::Status(&wait.line)]);
        if wait.what != said {
            log::line(Priority::Warning, &wait.line);
            said = wait.what;
        }
    }
}

/// Reads the configuration again at each request of a signal, for ever.
async fn reload_when_asked(node: Rc<Node<UringPlatform>>, asked: Rc<SignalRequest>) {
    loop {
        asked.for_reload().await;
        if let Err(why) = node.reload_in_turn().await {
            log::line(Priority::Error, &format!("not reloaded: {why}"));
        }
    }
}

/// Feeds the service manager's watchdog, if there is one, from the shard that serves.
async fn feed_watchdog(node: Rc<Node<UringPlatform>>, timer: Timer) {
    let mut limit_us = 0;
    if !sd_notify::watchdog_enabled(false, &mut limit_us) {
        return;
    }
    let period = Nanos(limit_us * 1000 / 3);
    loop {
        let wait = node.waits_at_end();
        let state = wait.map_or_else(|| served(&node), |wait| wait.line);
        notify(&[NotifyState::Watchdog, NotifyState::Status(&state)]);
        timer.sleep(period).await;
    }
}

fn served(node: &Node<UringPlatform>) -> String {
    format!("serving {}", count(node.volumes_served(), "volume"))
}

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(false, state) {
        let what = format!("the service manager cannot be notified: {error}");
        log::line(Priority::Warning, &what);
    }
}
