//! The files of the demonstration, made once: the site, its ext4 image, the
//! SSD, the configuration.

use crate::CommandFailure;
use crate::program::made_directory;
use crate::web::site::{FILE_BYTES_MAX, WebSite};
use command::print_line;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use testbed::tools::{run, tool};

/// The drives that the origin is as slow as.
pub const DRIVE: &str = "ST3500320AS";
const DRIVES: u32 = 4;
const IMAGE_BYTES: u64 = 768 << 20;
const SSD_BYTES: u64 = 512 << 20;
const SITE: WebSite = WebSite {
    seed: 1,
    pages: 4000,
    images: 12_000,
};

const _: () = assert!((SITE.pages + SITE.images) as u64 * FILE_BYTES_MAX < IMAGE_BYTES);

/// Places of all files.
pub struct Workspace {
    /// Directory above all files.
    pub directory: PathBuf,
    /// The served site.
    pub site: WebSite,
    policy: String,
}

impl Workspace {
    /// Makes the missing files in `directory`; the pool is under `policy`.
    pub fn prepare(directory: &Path, policy: &str) -> Result<Workspace, CommandFailure> {
        let workspace = Workspace {
            directory: made_directory(directory)?,
            site: SITE,
            policy: policy.to_owned(),
        };
        workspace.make_image()?;
        let ssd = fs::File::create(workspace.ssd()).map_err(CommandFailure::runtime)?;
        ssd.set_len(SSD_BYTES).map_err(CommandFailure::runtime)?;
        Ok(workspace)
    }

    /// The image of the site's file system.
    pub fn image(&self) -> PathBuf {
        self.directory.join("site.ext4")
    }

    fn ssd(&self) -> PathBuf {
        self.directory.join("ssd")
    }

    /// The control socket of the daemon.
    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// The NBD socket of the daemon.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("nbd.sock")
    }

    fn make_image(&self) -> Result<(), CommandFailure> {
        if self.image().exists() {
            return Ok(());
        }
        let (pages, images) = (self.site.pages, self.site.images);
        print_line(format!(
            "making a site of {pages} pages and {images} images, once"
        ))?;
        let root = self.directory.join("site");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(CommandFailure::runtime(error));
            }
            _ => {}
        }
        let bytes = self
            .site
            .write(&root, || Ok(()))
            .map_err(CommandFailure::runtime)?;
        print_line(format!("  {} MB", bytes / 1_000_000))?;
        let draft = self.directory.join("site.ext4.new");
        let file = fs::File::create(&draft).map_err(CommandFailure::runtime)?;
        file.set_len(IMAGE_BYTES).map_err(CommandFailure::runtime)?;
        let mut mkfs = tool("mkfs.ext4");
        run(mkfs.args(["-q", "-F", "-d"]).arg(&root).arg(&draft))
            .map_err(CommandFailure::Runtime)?;
        fs::rename(&draft, self.image()).map_err(CommandFailure::runtime)?;
        fs::remove_dir_all(&root).map_err(CommandFailure::runtime)
    }

    /// Writes the daemon's configuration; `mode` is the volume's.
    pub fn configure(&self, mode: &str) -> Result<PathBuf, CommandFailure> {
        let (image, ssd) = (self.image(), self.ssd());
        let (control, socket) = (self.control(), self.socket());
        let state = self.directory.join("state");
        let policy = &self.policy;
        let text = format!(
            "[daemon]\n\
             control = {control:?}\n\
             state = {state:?}\n\n\
             [[device]]\n\
             name = \"disks\"\n\
             path = {image:?}\n\
             model = \"{DRIVE}\"\n\
             model_disks = {DRIVES}\n\n\
             [[device]]\n\
             name = \"ssd\"\n\
             path = {ssd:?}\n\n\
             [[pool]]\n\
             name = \"fast\"\n\
             devices = [\"ssd\"]\n\
             policy = {policy:?}\n\
             hit_latency_max = \"1s\"\n\
             cold = true\n\n\
             [[volume]]\n\
             name = \"site\"\n\
             origin = \"disks\"\n\
             pool = \"fast\"\n\
             mode = \"{mode}\"\n\n\
             [[listen]]\n\
             unix = {socket:?}\n"
        );
        let path = self.directory.join("hotset.toml");
        fs::write(&path, text).map_err(CommandFailure::runtime)?;
        Ok(path)
    }
}
