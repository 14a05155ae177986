//! Reads of a block device, as the kernel counts them.
//!
//! Reads of others on the device are counted along.

use std::fs;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of the kernel's sectors.
const SECTOR_BYTES: u64 = 512;

/// Reads of a device that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceReads {
    /// Number of reads.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Latencies of the reads, summed, in milliseconds.
    pub ms: u64,
}

impl DeviceReads {
    /// Reads so far of the device with the file system of `path`; `None` without a block device.
    pub fn below(path: &Path) -> Option<DeviceReads> {
        let device = fs::metadata(path).ok()?.dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"));
        DeviceReads::parse(&text.ok()?)
    }

    /// Reads the kernel's line: requests, merged ones, sectors, milliseconds, and those of writes.
    fn parse(line: &str) -> Option<DeviceReads> {
        let mut fields = line.split_whitespace().map(|field| field.parse().ok());
        let requests = fields.next()??;
        let sectors: u64 = fields.nth(1)??;
        Some(DeviceReads {
            requests,
            bytes: sectors * SECTOR_BYTES,
            ms: fields.next()??,
        })
    }
}

impl Sub for DeviceReads {
    type Output = DeviceReads;

    fn sub(self, before: DeviceReads) -> DeviceReads {
        DeviceReads {
            requests: self.requests.wrapping_sub(before.requests),
            bytes: self.bytes.wrapping_sub(before.bytes),
            ms: self.ms.wrapping_sub(before.ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_the_first_fields_of_the_kernel() {
        let line = "  119 73 1000 637 18398 80974 15195 70443 0 11802 13702\n";
        let reads = DeviceReads::parse(line).unwrap();
        let expected = DeviceReads {
            requests: 119,
            bytes: 512_000,
            ms: 637,
        };
        assert_eq!(reads, expected);
        assert_eq!((reads - reads).ms, 0);
        assert_eq!(DeviceReads::parse("119 73 x"), None);
    }
}
