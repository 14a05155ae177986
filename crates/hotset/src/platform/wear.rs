//! The wear that an NVMe device reports: its SMART log (NVMe base specification 2.0, 5.16.1.3), by
//! the kernel's pass-through of commands (`linux/nvme_ioctl.h`).
//!
//! Not here: SATA and SAS, of which each maker counts wear in attributes of its own.

use super::machine;
use control::status::WearReport;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
const ADMIN_COMMAND: libc::Ioctl = 0xC048_4E41_u32 as libc::Ioctl;
const GET_LOG_PAGE: u8 = 0x02;
const SMART: u32 = 0x02;
const SMART_BYTES: usize = 512;
const ALL_NAMESPACES: u32 = u32::MAX;
const ANSWER_MAX_MS: u32 = 5000;
/// Data are counted in thousands of sectors, rounded up.
const UNIT_BYTES: u128 = 512_000;

/// `struct nvme_passthru_cmd`: a command to an NVMe device.
#[repr(C)]
#[derive(Default)]
pub(super) struct NvmeCommand {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) reserved: u16,
    pub(super) namespace: u32,
    pub(super) words_2_3: [u32; 2],
    pub(super) metadata: u64,
    pub(super) data: u64,
    pub(super) metadata_bytes: u32,
    pub(super) data_bytes: u32,
    pub(super) words_10_15: [u32; 6],
    pub(super) timeout_ms: u32,
    pub(super) result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);

/// True if `place` is an NVMe device, or a part of one.
pub fn is_nvme(place: &str) -> bool {
    let file = fs::metadata(place).ok();
    let about = file.and_then(|file| fs::canonicalize(machine::block_device(&file)?).ok());
    about.is_some_and(|path| path.components().any(|part| part.as_os_str() == "nvme"))
}

/// Asks the device at `place`, which may take some time.
pub fn ask(place: &str) -> io::Result<WearReport> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(place)?;
    Ok(parse(&smart(&file)?))
}

fn smart(file: &File) -> io::Result<[u8; SMART_BYTES]> {
    let mut log = [0; SMART_BYTES];
    let words = SMART_BYTES as u32 / 4 - 1;
    let mut command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        data: log.as_mut_ptr() as u64,
        data_bytes: SMART_BYTES as u32,
        words_10_15: [SMART | words << 16, 0, 0, 0, 0, 0],
        timeout_ms: ANSWER_MAX_MS,
        ..NvmeCommand::default()
    };
    // SAFETY: the command says how many bytes of `log` the device may write, and both outlive it.
    match unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND, &raw mut command) } {
        0 => Ok(log),
        -1 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("NVMe status {status:#x}"))),
    }
}

fn parse(log: &[u8; SMART_BYTES]) -> WearReport {
    let written = log[48..64].try_into().expect("16 bytes");
    let written = u128::from_le_bytes(written).saturating_mul(UNIT_BYTES);
    WearReport {
        used_percent: log[5],
        written_bytes: u64::try_from(written).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_as_the_specification_has_it() {
        let mut log = [0; SMART_BYTES];
        log[5] = 104;
        log[48..51].copy_from_slice(&[0x10, 0x27, 0]);
        let wear = parse(&log);
        assert_eq!(wear.used_percent, 104);
        assert_eq!(wear.written_bytes, 10_000 * 512_000);
        log[48..64].fill(0xff);
        assert_eq!(parse(&log).written_bytes, u64::MAX);
    }

    #[test]
    fn other_devices_are_not_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(!is_nvme(path) && !is_nvme("/nonexistent"));
        assert_eq!(ask(path).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
