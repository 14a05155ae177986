//! One drive of the drills on this machine: start and pull.

use super::row::to_message;
use block::Sectors;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use testbed::attached::{self, AttachedDevice};
use testbed::namespace;
use testbed::server::ServerProcess;

/// Stand-in for drives. Written data stays on a drive when the drive is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriveKind {
    /// NBD servers, processes that are killed.
    Nbd,
    /// Loop devices, on files of a file system that is killed under them: all requests to an open
    /// one fail, and the device comes back as another.
    Loop,
}

impl DriveKind {
    /// Names a missing requirement of such drives.
    pub fn obstacle(self) -> Option<String> {
        match self {
            DriveKind::Nbd => None,
            DriveKind::Loop => attached::obstacle(),
        }
    }

    /// Prepares this thread for giving such drives.
    pub(super) fn prepare(self) -> Result<(), String> {
        match self {
            DriveKind::Nbd => Ok(()),
            DriveKind::Loop => namespace::enter(),
        }
    }

    /// The configuration's line for the place of the drive `name` of `directory`.
    pub(super) fn source(self, directory: &Path, name: &str) -> String {
        match self {
            DriveKind::Nbd => format!(
                "nbd = \"nbd+unix:///?socket={}/{name}\"",
                directory.display()
            ),
            DriveKind::Loop => format!("path = \"{}\"", link(directory, name).display()),
        }
    }
}

/// The file with the content of the drive.
pub(super) fn image(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.img"))
}

/// Link to the loop device of the drive while the device is there.
fn link(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.device"))
}

/// A drive that is not pulled.
pub(super) struct DrillDrive {
    server: ServerProcess,
    attached: Option<(AttachedDevice, PathBuf)>,
}

/// Makes the directory of a drill if missing, and removes the files of an earlier daemon there.
pub(super) fn fresh(directory: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(to_message)?;
    let directory = directory.canonicalize().map_err(to_message)?;
    let _ = fs::remove_dir_all(directory.join("state"));
    Ok(directory)
}

impl DrillDrive {
    /// The drive `name`, blank and of that size.
    pub(super) fn blank(
        kind: DriveKind,
        directory: &Path,
        name: &str,
        size: Sectors,
    ) -> Result<DrillDrive, String> {
        let file = File::create(image(directory, name)).map_err(to_message)?;
        file.set_len(size.bytes()).map_err(to_message)?;
        DrillDrive::give(kind, directory, name)
    }

    /// The drive `name`, on its image in `directory`.
    pub(super) fn give(
        kind: DriveKind,
        directory: &Path,
        name: &str,
    ) -> Result<DrillDrive, String> {
        let file = image(directory, name).display().to_string();
        let server =
            ServerProcess::nbdkit(name, directory, &["file", &file]).map_err(to_message)?;
        let attached = match kind {
            DriveKind::Nbd => None,
            DriveKind::Loop => {
                let fuse = directory.join(format!("{name}.fuse"));
                // After the pull the page cache may answer no request.
                let attached = AttachedDevice::new(&server.uri, &fuse, &["--direct-io=on"])?;
                let link = link(directory, name);
                // Of an earlier run that was killed.
                let _ = fs::remove_file(&link);
                symlink(attached.device(), &link).map_err(to_message)?;
                Some((attached, link))
            }
        };
        Ok(DrillDrive { server, attached })
    }

    /// Leaves requests to the drive without an answer.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.server.signal(libc::SIGSTOP).map_err(to_message)
    }

    /// Answers requests again.
    pub(super) fn go_on(&self) -> Result<(), String> {
        self.server.signal(libc::SIGCONT).map_err(to_message)
    }

    /// Pulls the drive: requests in flight and later ones fail.
    pub(super) fn pull(self) -> Result<(), String> {
        if let Some((attached, link)) = self.attached {
            fs::remove_file(link).map_err(to_message)?;
            drop(attached);
        }
        self.server.kill().map_err(to_message)
    }
}
