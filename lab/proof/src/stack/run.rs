//! Builds the stack, loads it, and judges every image of a cut.

use super::database::{DatabaseClient, DatabaseServer, check_file_system};
use super::host::obstacle;
use super::place::StackDirectory;
use super::recorder::{Recorder, Shelf};
use serde::Serialize;
use sim::SimRng;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::mounted::MountedFileSystem;
use testbed::namespace;

const CLIENTS: u64 = 3;
/// Time without operations on the origin before the record ends.
const QUIET: Duration = Duration::from_millis(500);
/// Bytes of an image written at once, unless all are zero.
const PIECE: usize = 64 << 10;

/// A request for a run.
#[derive(Clone, Debug)]
pub struct StackRequest {
    /// Transactions of each client.
    pub transactions: u64,
    /// Random cuts, beside one at the end of each flush.
    pub between: usize,
    /// At most so many of all these cuts, spread over the record.
    pub cuts_max: usize,
    /// Draws the cuts, and the image of each.
    pub seed: u64,
    /// The directory of the files, half a gigabyte.
    pub directory: PathBuf,
    /// The executable of hotset.
    pub program: PathBuf,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stack {
    /// Writes that reached the origin.
    pub writes: usize,
    /// Flushes that reached the origin.
    pub flushes: usize,
    /// Transactions that were acknowledged.
    pub commits: u64,
    /// Cuts of which the image was judged.
    pub cuts: usize,
    /// Committed rows that were asked for in all images together.
    pub rows: u64,
    /// The violations.
    pub violations: Vec<String>,
}

/// Loads the stack and judges the images of its cuts. The error names the obstacle to building the
/// stack.
pub fn run(request: &StackRequest) -> Result<Stack, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    namespace::enter()?;
    let place = StackDirectory::new(&request.directory, None, |dir| {
        format!("nbd = \"nbd+unix:///?socket={dir}/recorder\"")
    })?;
    let (disk, shelf) = place.load(request)?;
    let record = shelf.record();
    let mut rng = SimRng::fork(request.seed, 31);
    let mut cuts = record.cuts(request.between, &mut rng);
    while cuts.len() > request.cuts_max {
        cuts.remove(rng.below(cuts.len() as u64) as usize);
    }
    let mut stack = Stack {
        writes: record.writes(),
        flushes: record.flushes(),
        commits: record.committed(usize::MAX).count() as u64,
        ..Stack::default()
    };
    for cut in cuts {
        let image = record.image(cut, &disk, &mut rng);
        stack.cuts += 1;
        match place.judge(&image, record.committed(cut)) {
            Ok(rows) => stack.rows += rows,
            Err(what) => stack.violations.push(format!("cut {cut}: {what}")),
        }
    }
    Ok(stack)
}

impl StackDirectory {
    /// Makes a file system with a database on the origin, then loads the database through the
    /// daemon. Returns the origin's content before the load, and the record of the load.
    fn load(&self, request: &StackRequest) -> Result<(Vec<u8>, Shelf), String> {
        let (origin, mount) = (self.path("origin"), self.path("mount"));
        let (data, sockets) = (mount.join("data"), self.path("sockets"));
        self.make()?;
        let disk = fs::read(&origin).map_err(|error| error.to_string())?;

        let shelf = Shelf::default();
        let socket = self.path("recorder");
        let recorder = Recorder::serve(&origin, &socket, shelf.clone());
        let recorder = recorder.map_err(|error| error.to_string())?;
        let daemon = self.serve(&request.program)?;
        let attached = self.attach()?;
        let mounted = MountedFileSystem::new(attached.device(), &mount)?;
        let server = DatabaseServer::start(&data, &sockets)?;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (shelf, sockets) = (&shelf, &sockets);
                    scope.spawn(move || {
                        let client = DatabaseClient::start(number, sockets)?;
                        let committed = |id| shelf.record().commit(id);
                        client.commit(request.transactions, committed)
                    })
                })
                .collect();
            let ends = clients
                .into_iter()
                .map(|client| client.join().expect("no panic"));
            ends.collect::<Result<Vec<()>, String>>()
        })?;
        let begin = Instant::now();
        while !shelf.record().is_quiet(QUIET) && begin.elapsed() < 20 * QUIET {
            std::thread::sleep(QUIET / 5);
        }
        server.stop("immediate")?;
        mounted.unmount()?;
        drop(attached);
        daemon.kill().map_err(|error| error.to_string())?;
        drop(recorder);
        Ok((disk, shelf))
    }

    /// Checks that file system and database recover from `image`. Returns the number of rows.
    fn judge(&self, image: &[u8], committed: impl Iterator<Item = u64>) -> Result<u64, String> {
        let (file, mount) = (self.path("image"), self.path("mount"));
        write_sparse(&file, image).map_err(|error| format!("{}: {error}", file.display()))?;
        check_file_system(&file)?;
        let mounted = MountedFileSystem::new(&file, &mount)?;
        let server = DatabaseServer::start(&mounted.at().join("data"), &self.path("sockets"))?;
        let rows = server.verify(committed);
        server.stop("immediate")?;
        mounted.unmount()?;
        rows
    }
}

fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (piece, at) in bytes.chunks(PIECE).zip((0..).step_by(PIECE)) {
        if piece.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(piece)?;
        }
    }
    Ok(())
}
