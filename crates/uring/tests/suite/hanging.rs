//! A file system that does not answer: FUSE, over a server that is stopped.

use crate::common::{directory, file, host};
use block::{Device, Env, Fua, IoErrorKind, Lba, Nanos};
use futures_util::future::join_all;
use shard::run_alone;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use uring::DiskOptions;

const BYTES: u64 = 64 << 20;
/// Longest time of a call that does not hang.
const SOON: Nanos = Nanos::from_secs(60);
/// More than the kernel has workers for by default.
const READS: u64 = 200;

/// A file on FUSE: a process serves its reads and writes.
struct Mount {
    path: PathBuf,
    server: Child,
    fuse: Child,
}

impl Mount {
    /// Mounts the file. `None`, with a line on standard error, where that is impossible.
    fn start(dir: &Path) -> Option<Mount> {
        let (socket, path) = (dir.join("socket"), dir.join("mounted"));
        std::fs::write(&path, []).unwrap();
        let size = BYTES.to_string();
        let mut server = Command::new("nbdkit");
        server
            .args(["-f", "-U"])
            .arg(&socket)
            .args(["memory", &size]);
        let Ok(mut server) = server.spawn() else {
            eprintln!("skipped: install nbdkit");
            return None;
        };
        wait(|| socket.exists());
        let mut fuse = Command::new("nbdfuse");
        let Ok(mut fuse) = fuse.arg(&path).arg("--unix").arg(&socket).spawn() else {
            eprintln!("skipped: install libnbd-bin");
            let _ = (server.kill(), server.wait());
            return None;
        };
        let mut ended = false;
        wait(|| {
            ended = fuse.try_wait().unwrap().is_some();
            ended || std::fs::metadata(&path).unwrap().len() == BYTES
        });
        if ended {
            eprintln!("skipped: FUSE cannot be mounted here");
            let _ = (server.kill(), server.wait());
            return None;
        }
        Some(Mount { path, server, fuse })
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no pointers are involved.
        let sent = unsafe { libc::kill(self.server.id() as i32, signal) };
        assert_eq!(sent, 0);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
        let unmount = Command::new("fusermount3")
            .args(["-u", "-z"])
            .arg(&self.path)
            .status();
        assert!(unmount.unwrap().success());
        let _ = (self.fuse.kill(), self.fuse.wait());
        let _ = (self.server.kill(), self.server.wait());
    }
}

fn wait(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < 20, "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Has the server of `mount` go on after two minutes, unless the sender is dropped before. A shard
/// that hangs with the mount would hang for ever, and fail no test.
fn go_on_at_last(mount: &Arc<Mount>) -> Sender<()> {
    let (over, watch) = std::sync::mpsc::channel();
    let hung = Arc::downgrade(mount);
    std::thread::spawn(move || {
        let waited = watch.recv_timeout(Duration::from_secs(120));
        if let (Err(RecvTimeoutError::Timeout), Some(mount)) = (waited, hung.upgrade()) {
            mount.signal(libc::SIGCONT);
        }
    });
    over
}

/// Writes, and reads the same again.
async fn takes_data(device: &impl Device, env: &Env) {
    let mut buf = env.pool.take(8192);
    buf.fill(7);
    device.write(Lba(0), buf.share(), Fua::Yes).await.unwrap();
    device.flush().await.unwrap();
    let (buf, result) = device.read(Lba(0), env.pool.take(8192)).await;
    result.unwrap();
    assert!(buf.iter().all(|byte| *byte == 7));
}

#[test]
fn a_file_system_that_hangs_blocks_itself_alone() {
    let dir = directory();
    let Some(mount) = Mount::start(dir.path()) else {
        return;
    };
    let (mut host, options) = (host(), DiskOptions::default());
    let (hangs, _) = host.open_disk(&mount.path, &options).unwrap();
    let (sound, _) = host.open_disk(file(&dir, BYTES), &options).unwrap();
    let opener = host.clone();
    let mount = Arc::new(mount);
    let _over = go_on_at_last(&mount);
    run_alone(&mut host, async move |local| {
        let env = local.env();
        let (hanging, sound) = (local.disk(hangs).unwrap(), local.disk(sound).unwrap());
        let read = async |at: u64| {
            let (_, result) = hanging.read(Lba(at * 8), env.pool.take(4096)).await;
            result
        };
        read(0).await.unwrap();
        mount.signal(libc::SIGSTOP);
        let pause = Nanos::from_secs(2);
        // After the pause the kernel asks again for attributes, which it keeps for a second.
        env.timer.sleep(pause).await;
        let began = env.timer.now();
        // All of its operations at once, among them some that wait for the others' pages.
        let reads = join_all((0..READS).map(|i| read(i * 7)));
        assert!(env.timer.timeout(pause, reads).await.is_none());
        assert!(env.timer.timeout(pause, hanging.flush()).await.is_none());
        let open = || opener.open_disk_aside(&mount.path, &options);
        assert!(env.timer.timeout(pause, open()).await.is_none());
        assert_eq!(open().await.unwrap_err().kind(), IoErrorKind::Timeout);
        opener.close(hangs);
        let elsewhere = env.timer.timeout(SOON, takes_data(&sound, &env));
        elsewhere.await.expect("it hangs with the other");
        assert!(env.timer.now() - began < SOON, "the shard stalled");
        mount.signal(libc::SIGCONT);
        let opened = async {
            loop {
                match open().await {
                    Err(error) if error.kind() == IoErrorKind::Timeout => {
                        env.timer.sleep(pause).await
                    }
                    opened => break opened,
                }
            }
        };
        let opened = env.timer.timeout(SOON, opened).await;
        opened.expect("it answers").unwrap();
    })
    .unwrap();
}

#[test]
fn a_host_ends_in_time_though_a_device_does_not_answer() {
    let dir = directory();
    let Some(mount) = Mount::start(dir.path()) else {
        return;
    };
    let mut host = host();
    let (hangs, _) = host
        .open_disk(&mount.path, &DiskOptions::default())
        .unwrap();
    let mount = Arc::new(mount);
    let opener = host.clone();
    // A host that waits for the device would wait for ever, and fail no test.
    let (over, watch) = std::sync::mpsc::channel::<()>();
    let hung = mount.clone();
    let watching = std::thread::spawn(move || {
        let waited = watch.recv_timeout(Duration::from_secs(60));
        hung.signal(libc::SIGCONT);
        assert!(waited.is_ok(), "the host does not end");
    });
    run_alone(&mut host, async move |local| {
        let (env, hanging) = (local.env(), local.disk(hangs).unwrap());
        mount.signal(libc::SIGSTOP);
        let read = hanging.read(Lba(0), env.pool.take(4096));
        let answered = env.timer.timeout(Nanos::from_secs(1), read).await;
        assert!(answered.is_none());
        opener.end_within(Nanos::from_secs(1));
    })
    .unwrap();
    over.send(()).unwrap();
    watching.join().unwrap();
}
