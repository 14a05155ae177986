//! One drive of the drills on this machine: how it is given, and pulled.

use super::row::to_message;
use block::Sectors;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use testbed::attached::{self, Attached};
use testbed::namespace;
use testbed::server::Server;

/// What stands for drives. What was written to one stays when it is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// NBD servers, processes that are killed.
    Nbd,
    /// Loop devices, on files whose file system is killed under them: all that is
    /// asked of one that is open fails, and it comes back as another device.
    Loop,
}

impl Kind {
    /// What is missing here for such drives.
    pub fn obstacle(self) -> Option<String> {
        match self {
            Kind::Nbd => None,
            Kind::Loop => attached::obstacle(),
        }
    }

    /// What this thread needs before it gives such drives.
    pub(super) fn prepare(self) -> Result<(), String> {
        match self {
            Kind::Nbd => Ok(()),
            Kind::Loop => namespace::enter(),
        }
    }

    /// Where a configuration finds the drive `name` of `directory`.
    pub(super) fn source(self, directory: &Path, name: &str) -> String {
        match self {
            Kind::Nbd => format!(
                "nbd = \"nbd+unix:///?socket={}/{name}\"",
                directory.display()
            ),
            Kind::Loop => format!("path = \"{}\"", link(directory, name).display()),
        }
    }
}

/// The file that holds what the drive does.
pub(super) fn image(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.img"))
}

/// Leads to the loop device of the drive while it is there.
fn link(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.device"))
}

/// A drive that is not pulled.
pub(super) struct Drive {
    server: Server,
    attached: Option<(Attached, PathBuf)>,
}

/// The directory of a drill, made if missing, without what an earlier daemon kept there.
pub(super) fn fresh(directory: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(to_message)?;
    let directory = directory.canonicalize().map_err(to_message)?;
    let _ = fs::remove_dir_all(directory.join("state"));
    Ok(directory)
}

impl Drive {
    /// The drive `name`, blank and of that size.
    pub(super) fn blank(
        kind: Kind,
        directory: &Path,
        name: &str,
        size: Sectors,
    ) -> Result<Drive, String> {
        let file = File::create(image(directory, name)).map_err(to_message)?;
        file.set_len(size.bytes()).map_err(to_message)?;
        Drive::give(kind, directory, name)
    }

    /// The drive `name`, on its image in `directory`.
    pub(super) fn give(kind: Kind, directory: &Path, name: &str) -> Result<Drive, String> {
        let file = image(directory, name).display().to_string();
        let server = Server::nbdkit(name, directory, &["file", &file]).map_err(to_message)?;
        let attached = match kind {
            Kind::Nbd => None,
            Kind::Loop => {
                let fuse = directory.join(format!("{name}.fuse"));
                // Nothing may be answered from the page cache once it is pulled.
                let attached = Attached::new(&server.uri, &fuse, &["--direct-io=on"])?;
                let link = link(directory, name);
                // Of an earlier run that was killed.
                let _ = fs::remove_file(&link);
                symlink(attached.device(), &link).map_err(to_message)?;
                Some((attached, link))
            }
        };
        Ok(Drive { server, attached })
    }

    /// Leaves what is asked of it without an answer.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.server.signal(libc::SIGSTOP).map_err(to_message)
    }

    /// Answers it.
    pub(super) fn go_on(&self) -> Result<(), String> {
        self.server.signal(libc::SIGCONT).map_err(to_message)
    }

    /// Pulls it: what is in flight to it, or asked of it later, fails.
    pub(super) fn pull(self) -> Result<(), String> {
        if let Some((attached, link)) = self.attached {
            fs::remove_file(link).map_err(to_message)?;
            drop(attached);
        }
        self.server.kill().map_err(to_message)
    }
}
