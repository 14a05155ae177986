//! One set-up: the daemon, its export mounted, nginx on the mount. All parts are taken down again
//! however the run ends.

use super::host::MemoryGroup;
use super::workspace::Workspace;
use crate::CommandFailure;
use crate::web::server::{ServerProgram, WebServer};
use crate::web::site::WebSite;
use command::print_line;
use control::client::ControlClient;
use control::plain;
use control::status::Status;
use std::fs;
use std::path::{Path, PathBuf};
use testbed::attached::AttachedDevice;
use testbed::mounted::MountedFileSystem;
use testbed::server::{ServerProcess, uri};
use testbed::tools::{run, tool};

/// Memory of nginx and its page cache: a small part of the site, as in a real server.
const MEMORY_BYTES: u64 = 48 << 20;

/// The parts, in the order of the take-down.
pub struct DemoStage {
    nginx: Option<WebServer>,
    group: Option<MemoryGroup>,
    mounted: Option<MountedFileSystem>,
    attached: Option<AttachedDevice>,
    daemon: Option<ServerProcess>,
    directory: PathBuf,
    control: PathBuf,
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
        let nginx = self.nginx.as_ref();
        nginx.expect("a stage that was raised serves").base()
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
        let daemon = ServerProcess::hotset(&program, &config, &workspace.control());
        self.daemon = Some(daemon.map_err(CommandFailure::runtime)?);
        Ok(())
    }

    fn mount(&mut self, socket: &Path) -> Result<(), CommandFailure> {
        let uri = uri(socket, "site");
        let attached = AttachedDevice::new(&uri, &self.directory.join("fuse"), &["--direct-io=on"]);
        let attached = self
            .attached
            .insert(attached.map_err(CommandFailure::Runtime)?);
        let mounted = MountedFileSystem::new(attached.device(), &self.directory.join("mnt"));
        self.mounted = Some(mounted.map_err(CommandFailure::Runtime)?);
        Ok(())
    }

    fn start_nginx(&mut self) -> Result<(), CommandFailure> {
        let group = self.group.insert(MemoryGroup::new(MEMORY_BYTES)?);
        let (root, within) = (self.directory.join("mnt"), |nginx| group.command(nginx));
        let nginx = ServerProgram::Nginx;
        self.nginx = Some(WebServer::start(nginx, &root, &self.directory, within)?);
        Ok(())
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
        look.args((0..40).map(|i| self.mount_point().join(WebSite::page_path(i * 100))));
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
            failed = failed.and(nginx.stop());
        }
        if let Some(mounted) = self.mounted.take() {
            failed = failed.and(mounted.unmount().map_err(CommandFailure::Runtime));
        }
        drop(self.attached.take());
        drop(self.group.take());
        if let Some(daemon) = self.daemon.take() {
            failed = failed.and(daemon.stop().map_err(CommandFailure::runtime));
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
