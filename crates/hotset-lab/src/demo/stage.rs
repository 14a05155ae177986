//! One set-up: the daemon, its export mounted, nginx on the mount. All parts are taken down again
//! however the run ends.

use super::host::MemoryGroup;
use super::site::DemoSite;
use super::workspace::Workspace;
use crate::CommandFailure;
use command::print_line;
use control::client::ControlClient;
use control::plain;
use control::status::Status;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testbed::attached::AttachedDevice;
use testbed::mounted::MountedFileSystem;
use testbed::tools::{bound, run, tool};

/// Memory of nginx and its page cache: a small part of the site, as in a real server.
const MEMORY_BYTES: u64 = 48 << 20;
const READY_MAX: Duration = Duration::from_secs(20);

/// The parts, in the order of the take-down.
pub struct DemoStage {
    nginx: Option<Child>,
    group: Option<MemoryGroup>,
    mounted: Option<MountedFileSystem>,
    attached: Option<AttachedDevice>,
    daemon: Option<Child>,
    directory: PathBuf,
    control: PathBuf,
    port: u16,
}

impl DemoStage {
    /// Raises everything; the volume is served in `mode`.
    pub fn raise(workspace: &Workspace, mode: &str) -> Result<DemoStage, CommandFailure> {
        let mut stage = DemoStage {
            nginx: None,
            group: None,
            mounted: None,
            attached: None,
            daemon: None,
            directory: workspace.directory.clone(),
            control: workspace.control(),
            port: free_port()?,
        };
        stage.serve(workspace, mode)?;
        stage.mount(&workspace.socket())?;
        let caches = "/proc/sys/vm/drop_caches";
        fs::write(caches, "3").map_err(|cause| CommandFailure::of(caches, cause))?;
        stage.start_nginx()?;
        Ok(stage)
    }

    /// URL of the site.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The daemon's status.
    pub fn status(&self) -> Result<Status, CommandFailure> {
        let mut client = ControlClient::connect(&self.control).map_err(CommandFailure::runtime)?;
        client.status().map_err(CommandFailure::runtime)
    }

    fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    fn serve(&mut self, workspace: &Workspace, mode: &str) -> Result<(), CommandFailure> {
        let config = workspace.configure(mode)?;
        let program = crate::program::hotset()?;
        let log =
            fs::File::create(self.directory.join("daemon.log")).map_err(CommandFailure::runtime)?;
        let mut command = bound(&program);
        command.arg("serve").arg("--config").arg(config);
        command.stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().map_err(CommandFailure::runtime)?);
        let said = self.directory.join("daemon.log");
        wait("the daemon", &said, || {
            ControlClient::connect(&workspace.control()).is_ok()
        })
    }

    fn mount(&mut self, socket: &Path) -> Result<(), CommandFailure> {
        let uri = format!("nbd+unix:///site?socket={}", socket.display());
        let attached = AttachedDevice::new(&uri, &self.directory.join("fuse"), &["--direct-io=on"]);
        let attached = self
            .attached
            .insert(attached.map_err(CommandFailure::Runtime)?);
        let mounted = MountedFileSystem::new(attached.device(), &self.directory.join("mnt"));
        self.mounted = Some(mounted.map_err(CommandFailure::Runtime)?);
        Ok(())
    }

    fn start_nginx(&mut self) -> Result<(), CommandFailure> {
        let (root, here) = (self.mount_point(), self.directory.display().to_string());
        let config = self.directory.join("nginx.conf");
        let text = format!(
            "daemon off;\nuser root;\nworker_processes 2;\npid {here}/nginx.pid;\n\
             error_log {here}/nginx.log;\nevents {{ worker_connections 256; }}\n\
             http {{\n  types {{ text/html html; image/jpeg jpg; image/png png; }}\n  \
             access_log off;\n  sendfile on;\n  aio threads;\n  keepalive_requests 1000000;\n  \
             client_body_temp_path {here}/nginx-body;\n  proxy_temp_path {here}/nginx-proxy;\n  \
             fastcgi_temp_path {here}/nginx-fastcgi;\n  uwsgi_temp_path {here}/nginx-uwsgi;\n  \
             scgi_temp_path {here}/nginx-scgi;\n  \
             server {{ listen 127.0.0.1:{}; root {}; }}\n}}\n",
            self.port,
            root.display()
        );
        fs::write(&config, text).map_err(CommandFailure::runtime)?;
        let group = MemoryGroup::new(MEMORY_BYTES)?;
        let mut nginx = bound(Path::new("nginx"));
        nginx.arg("-c").arg(&config);
        let mut nginx = group.command(nginx);
        nginx.stdout(Stdio::null()).stderr(Stdio::null());
        self.group = Some(group);
        let nginx = nginx.spawn();
        let nginx = nginx.map_err(|cause| CommandFailure::of("nginx cannot be run", cause))?;
        self.nginx = Some(nginx);
        let at = ("127.0.0.1", self.port);
        let log = self.directory.join("nginx.log");
        wait("nginx", &log, || std::net::TcpStream::connect(at).is_ok())
    }

    /// Fails unless the pool and the page cache hold nothing of the site.
    pub fn prove_cold(&self) -> Result<(), CommandFailure> {
        let used: u32 = self
            .status()?
            .pools
            .iter()
            .map(|pool| pool.lines_used)
            .sum();
        let mut look = tool("fincore");
        look.args(["--noheadings", "--raw", "--bytes", "--output", "RES"]);
        // One page in a hundred is enough; all of them would warm the directories.
        look.args((0..40).map(|i| self.mount_point().join(DemoSite::page_path(i * 100))));
        let text = run(&mut look).map_err(CommandFailure::Runtime)?;
        let cached: u64 = text
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
            .sum();
        if cached > 0 {
            let what = format!("the page cache is not cold: {cached} bytes of pages are in it");
            return Err(CommandFailure::Runtime(what));
        }
        let what = "lines in the pool from mounting, no page of the site in memory";
        print_line(format!("cold: {used} {what}"))
    }

    /// Takes everything down and reports the parts that could not be.
    pub fn strike(mut self) -> Result<(), CommandFailure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), CommandFailure> {
        let mut failed = Ok(());
        if let Some(nginx) = self.nginx.take() {
            failed = failed.and(end(nginx));
        }
        if let Some(mounted) = self.mounted.take() {
            failed = failed.and(mounted.unmount().map_err(CommandFailure::Runtime));
        }
        drop(self.attached.take());
        drop(self.group.take());
        if let Some(daemon) = self.daemon.take() {
            failed = failed.and(end(daemon));
        }
        failed
    }
}

impl Drop for DemoStage {
    fn drop(&mut self) {
        if let Err(CommandFailure::Runtime(what) | CommandFailure::Usage(what)) = self.take_down() {
            eprintln!("while taking down: {}", plain(what));
        }
    }
}

fn free_port() -> Result<u16, CommandFailure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(CommandFailure::runtime)?;
    Ok(listener
        .local_addr()
        .map_err(CommandFailure::runtime)?
        .port())
}

/// Waits until `ready`; prints the log if the time runs out.
fn wait(what: &str, log: &Path, ready: impl Fn() -> bool) -> Result<(), CommandFailure> {
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > READY_MAX {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(CommandFailure::Runtime(format!(
                "{what} did not start: {}",
                said.trim()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Ends a process by SIGTERM and waits for its end.
fn end(mut child: Child) -> Result<(), CommandFailure> {
    // SAFETY: the process is our child and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    child.wait().map(drop).map_err(CommandFailure::runtime)
}
