//! A client of the network block device that waits for each answer, and measures its time.

use crate::weather::Weather;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const EXPORT_NAME: u32 = 1;
/// Fixed newstyle, and no zeroes after the flags.
const CLIENT_FLAGS: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;
/// Interval of checks for an overdue answer.
const LOOK: Duration = Duration::from_millis(200);

/// Requests to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StormVerb {
    /// Reads bytes.
    Read = 0,
    /// Writes bytes.
    Write = 1,
    /// Makes writes durable.
    Flush = 3,
    /// Writes zeroes.
    Zero = 6,
}

/// Reason of a missing answer.
#[derive(Debug)]
pub enum Silence {
    /// The connection has ended.
    Gone(io::Error),
    /// The answer is overdue after this time.
    Overdue(Duration),
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Silence {
        Silence::Gone(error)
    }
}

/// A connection to one export.
pub struct StormConnection<'a> {
    stream: UnixStream,
    weather: &'a Weather,
    volume: usize,
}

impl<'a> StormConnection<'a> {
    /// Connects to `export`: the name and the number of a volume.
    pub fn open(
        socket: &Path,
        (export, volume): (&str, usize),
        weather: &'a Weather,
    ) -> Result<StormConnection<'a>, Silence> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LOOK))?;
        let mut connection = StormConnection {
            stream,
            weather,
            volume,
        };
        let begun = Instant::now();
        let mut greeting = [0; 18];
        connection.fill(&mut greeting, begun)?;
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        connection.stream.write_all(&hello)?;
        // Size and flags.
        connection.fill(&mut [0; 10], begun)?;
        Ok(connection)
    }

    /// Sends one request and waits for the answer, which fills `bytes` for a read. Returns the
    /// server's error number, 0 for success.
    pub fn ask(
        &mut self,
        (verb, fua): (StormVerb, bool),
        offset: u64,
        length: u32,
        bytes: &mut [u8],
    ) -> Result<u32, Silence> {
        let begun = Instant::now();
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend((if fua { FUA } else { 0 }).to_be_bytes());
        request.extend((verb as u16).to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        if verb == StormVerb::Write {
            request.extend_from_slice(bytes);
        }
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.fill(&mut reply, begun)?;
        if reply[..4] != REPLY_MAGIC.to_be_bytes() || reply[8..] != offset.to_be_bytes() {
            return Err(Silence::Gone(io::Error::other(
                "an answer to another request",
            )));
        }
        let error = u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"));
        if (verb, error) == (StormVerb::Read, 0) {
            self.fill(bytes, begun)?;
        }
        Ok(error)
    }

    fn fill(&mut self, mut bytes: &mut [u8], begun: Instant) -> Result<(), Silence> {
        while !bytes.is_empty() {
            match self.stream.read(bytes) {
                Ok(0) => return Err(Silence::Gone(ErrorKind::UnexpectedEof.into())),
                Ok(n) => bytes = &mut bytes[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(waited) = self.weather.overdue_request(begun, self.volume) {
                        return Err(Silence::Overdue(waited));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
