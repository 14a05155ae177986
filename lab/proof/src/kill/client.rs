//! A small client of the network block device that waits for each answer: the
//! export by name, without TLS or structured replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const EXPORT_NAME: u32 = 1;
/// Fixed newstyle, and no zeroes after the flags.
const CLIENT_FLAGS: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Time after which a daemon without an answer counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A request's type in the protocol.
#[derive(Clone, Copy)]
pub(super) enum NbdCommand {
    Read = 0,
    Write = 1,
    Flush = 3,
}

/// A connection to one export.
pub(super) struct KillClient(UnixStream);

impl KillClient {
    pub(super) fn connect(socket: &Path, export: &str) -> io::Result<KillClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if greeting[..8] != *b"NBDMAGIC" || greeting[8..16] != OPTION_MAGIC.to_be_bytes() {
            return Err(io::Error::other("that is no NBD server"));
        }
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello)?;
        // The size and the flags.
        stream.read_exact(&mut [0; 10])?;
        Ok(KillClient(stream))
    }

    /// Makes one request and waits for its answer, which fills `bytes` after a read. Returns the
    /// server's error number, 0 for success.
    pub(super) fn request(
        &mut self,
        command: NbdCommand,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<u32> {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend([0, 0, 0, command as u8]);
        request.extend(0_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((bytes.len() as u32).to_be_bytes());
        if let NbdCommand::Write = command {
            request.extend_from_slice(bytes);
        }
        self.0.write_all(&request)?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        if reply[..4] != REPLY_MAGIC.to_be_bytes() {
            return Err(io::Error::other("that is no simple reply"));
        }
        let error = u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"));
        if let (NbdCommand::Read, 0) = (command, error) {
            self.0.read_exact(bytes)?;
        }
        Ok(error)
    }
}
