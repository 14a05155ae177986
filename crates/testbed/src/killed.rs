//! The end of a daemon that was killed.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit of the kernel, on a busy disk.
const ENDED_MAX: Duration = Duration::from_secs(300);

/// Waits until no process listens at `socket`. A killed daemon's socket closes once the kernel has
/// ended all operations of the daemon in flight.
pub fn until_ended(socket: &Path) -> Result<(), String> {
    let begun = Instant::now();
    while UnixStream::connect(socket).is_ok() {
        if begun.elapsed() > ENDED_MAX {
            return Err("a daemon that was killed is not ended".into());
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
