//! A client of NBD that knows which writes were acknowledged.

use super::noise;
use std::io::{self, Error, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECTOR: usize = 512;
const FUA: u16 = 1;
/// Time limit of a request.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A connection, with one request at a time.
pub struct Client {
    stream: UnixStream,
    /// The bytes of the export.
    pub size: u64,
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> Client {
        Client::open(socket, export).unwrap()
    }

    pub fn open(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01")?;
        stream.write_all(&(export.len() as u32).to_be_bytes())?;
        stream.write_all(export.as_bytes())?;
        let mut about = [0; 10];
        stream.read_exact(&mut about)?;
        let size = u64::from_be_bytes(about[..8].try_into().unwrap());
        Ok(Client { stream, size })
    }

    fn ask(&mut self, verb: u16, flags: u16, at: u64, len: usize, data: &[u8]) -> io::Result<()> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(verb.to_be_bytes());
        request.extend([0; 8]);
        request.extend(at.to_be_bytes());
        request.extend((len as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        match u32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(()),
            error => Err(Error::from_raw_os_error(error as i32)),
        }
    }

    pub fn read(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.ask(0, 0, at, len, &[])?;
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn write(&mut self, at: u64, data: &[u8], forced: bool) -> io::Result<()> {
        let flags = if forced { FUA } else { 0 };
        self.ask(1, flags, at, data.len(), data)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(3, 0, 0, 0, &[])
    }
}

/// A part of the volume `vol` that one client writes alone. Each sector has the number of its
/// write.
pub struct Stamped {
    number: u64,
    at: u64,
    /// The version that each sector has; zero at first.
    held: Vec<u64>,
    /// Sectors and their version of the write that was not answered.
    unanswered: Option<(std::ops::Range<usize>, u64)>,
    version: u64,
    pub acknowledged: u64,
}

impl Stamped {
    pub fn new(number: u64, at: u64, bytes: usize) -> Stamped {
        Stamped {
            number,
            at,
            held: vec![0; bytes / SECTOR],
            unanswered: None,
            version: 0,
            acknowledged: 0,
        }
    }

    fn sector(&self, sector: usize, version: u64) -> Vec<u8> {
        match version {
            0 => vec![0; SECTOR],
            version => noise(version << 24 ^ self.number << 20 ^ sector as u64, SECTOR),
        }
    }

    /// Writes, and reads in between, until the connection ends after `over`.
    pub fn write(&mut self, socket: &Path, over: &AtomicBool) {
        let mut client = Client::connect(socket, "vol");
        loop {
            match self.step(&mut client) {
                Ok(()) => (),
                Err(_) if over.load(Ordering::SeqCst) => return,
                Err(error) => {
                    // The daemon is killed before `over` is set.
                    std::thread::sleep(Duration::from_millis(500));
                    assert!(over.load(Ordering::SeqCst), "a request failed: {error}");
                    return;
                }
            }
        }
    }

    /// Writes, and reads in between, until `over`; no request may fail.
    pub fn write_until(&mut self, socket: &Path, over: &AtomicBool) {
        let mut client = Client::connect(socket, "vol");
        while !over.load(Ordering::SeqCst) {
            self.step(&mut client).unwrap();
        }
    }

    fn step(&mut self, client: &mut Client) -> io::Result<()> {
        self.version += 1;
        let random = noise(self.version ^ self.number << 40, 8);
        let random = u64::from_le_bytes(random.try_into().unwrap());
        let count = 1 + (random >> 32) as usize % 20;
        let first = random as usize % (self.held.len() - count);
        let at = self.at + (first * SECTOR) as u64;
        if random >> 56 & 3 == 0 {
            let found = client.read(at, count * SECTOR)?;
            self.compare(first, &found);
        }
        let sectors = first..first + count;
        let data: Vec<u8> = sectors
            .clone()
            .flat_map(|sector| self.sector(sector, self.version))
            .collect();
        self.unanswered = Some((sectors.clone(), self.version));
        client.write(at, &data, random >> 58 & 3 == 0)?;
        self.unanswered = None;
        self.held[sectors].fill(self.version);
        self.acknowledged += 1;
        if random >> 60 == 0 {
            client.flush()?;
        }
        Ok(())
    }

    fn compare(&self, first: usize, found: &[u8]) {
        for (sector, found) in (first..).zip(found.chunks(SECTOR)) {
            let held = self.held[sector];
            assert!(
                found == self.sector(sector, held),
                "sector {sector} of part {} is not of write {held}, the last answered",
                self.number
            );
        }
    }

    /// Every sector is of the last write that was answered, or of the one that was not.
    pub fn check(&mut self, socket: &Path) {
        let mut client = Client::connect(socket, "vol");
        let found = client.read(self.at, self.held.len() * SECTOR);
        let found = found.unwrap();
        if let Some((sectors, version)) = self.unanswered.take() {
            for sector in sectors {
                let bytes = &found[sector * SECTOR..][..SECTOR];
                if bytes == self.sector(sector, version) {
                    self.held[sector] = version;
                }
            }
        }
        self.compare(0, &found);
    }
}
