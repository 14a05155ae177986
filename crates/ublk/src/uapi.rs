//! Linux's `include/uapi/linux/ublk_cmd.h`, as far as used: numbers and layouts.
//!
//! Invariant: an encoded structure has the length of the kernel's structure, and
//! `decode(encode(x)) == x`.
//!
//! All integers are in the machine's byte order.

mod params;
#[cfg(test)]
mod tests;

pub use params::{Made, Params};

use block::{Extent, Fua, Lba, PAGE_BYTES, Request, SECTOR_BYTES, Sectors};
use std::fmt;

/// Path of the device that takes control commands.
pub const CONTROL: &str = "/dev/ublk-control";
/// The most tags of a queue.
const DEPTH_MAX: u64 = 4096;

/// Offset of the descriptors of a queue in the mapping of a device; queue 0 begins at 0.
pub const fn descriptors_at(queue: u16) -> u64 {
    const BYTES: u64 = DEPTH_MAX * Descriptor::BYTES as u64;
    queue as u64 * BYTES.next_multiple_of(PAGE_BYTES as u64)
}

/// The path of the character device by which device `id` is served.
pub fn character_device(id: u32) -> String {
    format!("/dev/ublkc{id}")
}

/// The name of block device `id` under `/dev`.
pub fn block_device(id: u32) -> String {
    format!("ublkb{id}")
}

/// `_IOC(direction, 'u', number, size)` of `asm-generic/ioctl.h`.
const fn ioctl(direction: u32, number: u32, size: u32) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// A control command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UblkCommand {
    /// Returns the driver's features; Linux 6.5.
    GetFeatures,
    /// Returns the `DeviceInfo` of a device.
    GetInfo,
    /// Makes a device.
    Add,
    /// Removes a device that is not served; waits until its server has released the device, and
    /// until the block device has no users.
    Delete,
    /// Removes a device without waiting; Linux 6.7.
    DeleteAsync,
    /// Makes the block device; waits until each tag waits for a request.
    Start,
    /// Removes the block device.
    Stop,
    /// Shapes a device that is not served.
    SetParams,
    /// Returns the shape of a device. The first four bytes of the buffer are its length.
    GetParams,
    /// Begins to recover the device of a server that has died.
    StartRecovery,
    /// Ends the recovery; waits until each tag waits for a request.
    EndRecovery,
    /// Gives an existing device the size `data`, in sectors; Linux 6.16.
    UpdateSize,
}

impl UblkCommand {
    /// The `cmd_op` of its ring entry.
    pub const fn op(self) -> u32 {
        let (direction, number) = match self {
            UblkCommand::GetInfo => (READ, 0x02),
            UblkCommand::Add => (READ_WRITE, 0x04),
            UblkCommand::Delete => (READ_WRITE, 0x05),
            UblkCommand::Start => (READ_WRITE, 0x06),
            UblkCommand::Stop => (READ_WRITE, 0x07),
            UblkCommand::SetParams => (READ_WRITE, 0x08),
            UblkCommand::GetParams => (READ, 0x09),
            UblkCommand::StartRecovery => (READ_WRITE, 0x10),
            UblkCommand::EndRecovery => (READ_WRITE, 0x11),
            UblkCommand::GetFeatures => (READ, 0x13),
            UblkCommand::DeleteAsync => (READ, 0x14),
            UblkCommand::UpdateSize => (READ_WRITE, 0x15),
        };
        ioctl(direction, number, UblkControl::BYTES as u32)
    }
}

/// The clause of a command, as it comes after "refused to".
impl fmt::Display for UblkCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UblkCommand::GetFeatures => "report its features",
            UblkCommand::GetInfo => "report the state of the device",
            UblkCommand::Add => "add a device",
            UblkCommand::Delete | UblkCommand::DeleteAsync => "delete the device",
            UblkCommand::Start => "start the device",
            UblkCommand::Stop => "stop the device",
            UblkCommand::SetParams => "set the parameters of the device",
            UblkCommand::GetParams => "report the parameters of the device",
            UblkCommand::StartRecovery => "start the recovery",
            UblkCommand::EndRecovery => "end the recovery",
            UblkCommand::UpdateSize => "update the size of the device",
        })
    }
}

/// `struct ublksrv_ctrl_cmd`, with the bytes that its address leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UblkControl {
    /// The operation.
    pub command: UblkCommand,
    /// The device; [`UblkControl::ANY`] to add one.
    pub device: u32,
    /// The process that serves, for a start and the end of a recovery; the size, for `UpdateSize`.
    pub data: u64,
    /// Bytes that the kernel reads, or has written.
    pub buffer: Vec<u8>,
}

impl UblkControl {
    /// The length of the structure.
    pub const BYTES: usize = 32;
    /// No device in particular.
    pub const ANY: u32 = u32::MAX;

    /// A command about a device, without bytes.
    pub fn of(command: UblkCommand, device: u32) -> UblkControl {
        UblkControl {
            command,
            device,
            data: 0,
            buffer: Vec::new(),
        }
    }

    /// The structure, of a buffer at `address`.
    pub fn encode(&self, address: u64) -> [u8; Self::BYTES] {
        let mut out = UapiEncoder::new();
        out.u32(self.device);
        out.u16(u16::MAX); // No queue.
        out.u16(self.buffer.len() as u16);
        out.u64(if self.buffer.is_empty() { 0 } else { address });
        out.u64(self.data);
        out.zeroes(8);
        out.finish()
    }
}

/// `UBLK_F_*`: features of a driver, or those asked of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UblkFeatures(pub u64);

impl UblkFeatures {
    /// The bytes of a write stay in the kernel until the server takes them.
    pub const NEED_GET_DATA: UblkFeatures = UblkFeatures(1 << 2);
    /// A device outlives its server.
    pub const USER_RECOVERY: UblkFeatures = UblkFeatures(1 << 3);
    /// Requests that a dead server held are given out again.
    pub const USER_RECOVERY_REISSUE: UblkFeatures = UblkFeatures(1 << 4);
    /// Commands are numbered as ioctls are.
    pub const CMD_IOCTL_ENCODE: UblkFeatures = UblkFeatures(1 << 6);
    /// A device can get another size.
    pub const UPDATE_SIZE: UblkFeatures = UblkFeatures(1 << 10);

    /// The features without which no device is made.
    pub const NEEDED: UblkFeatures = UblkFeatures(
        Self::NEED_GET_DATA.0
            | Self::USER_RECOVERY.0
            | Self::USER_RECOVERY_REISSUE.0
            | Self::CMD_IOCTL_ENCODE.0,
    );

    /// True if all of `others` are among these.
    pub const fn has(self, others: UblkFeatures) -> bool {
        self.0 & others.0 == others.0
    }

    /// The features in the answer to [`UblkCommand::GetFeatures`].
    pub fn decode(buffer: &[u8]) -> Option<UblkFeatures> {
        Some(UblkFeatures(u64::from_ne_bytes(
            buffer.get(..8)?.try_into().ok()?,
        )))
    }
}

/// The state of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UblkState {
    /// Never started, or stopped.
    Dead,
    /// Served.
    Live,
    /// The server has died; requests wait.
    Quiesced,
    /// The server has died and requests fail; or a state of newer kernels.
    Other(u16),
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Hardware queues.
    pub queues: u16,
    /// Tags of each queue.
    pub depth: u16,
    /// The state.
    pub state: UblkState,
    /// The longest transfer.
    pub bytes_max: u32,
    /// The device's number.
    pub id: u32,
    /// The process that serves the device, or did.
    pub pid: i32,
    /// Features asked of the device.
    pub features: UblkFeatures,
    /// A number of the server's; the driver ignores it.
    pub mark: u64,
}

impl DeviceInfo {
    /// The length of the structure.
    pub const BYTES: usize = 64;

    /// The structure.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = UapiEncoder::new();
        out.u16(self.queues);
        out.u16(self.depth);
        out.u16(match self.state {
            UblkState::Dead => 0,
            UblkState::Live => 1,
            UblkState::Quiesced => 2,
            UblkState::Other(number) => number,
        });
        out.zeroes(2);
        out.u32(self.bytes_max);
        out.u32(self.id);
        out.u32(self.pid as u32);
        out.zeroes(4);
        out.u64(self.features.0);
        out.u64(self.mark);
        out.zeroes(24);
        out.finish()
    }

    /// Reads the structure; `None` if `bytes` are too few.
    pub fn decode(bytes: &[u8]) -> Option<DeviceInfo> {
        let mut from = UapiDecoder(bytes.get(..Self::BYTES)?);
        let (queues, depth) = (from.u16(), from.u16());
        let state = match from.u16() {
            0 => UblkState::Dead,
            1 => UblkState::Live,
            2 => UblkState::Quiesced,
            other => UblkState::Other(other),
        };
        from.skip(2);
        let (bytes_max, id, pid) = (from.u32(), from.u32(), from.u32() as i32);
        from.skip(4);
        Some(DeviceInfo {
            queues,
            depth,
            state,
            bytes_max,
            id,
            pid,
            features: UblkFeatures(from.u64()),
            mark: from.u64(),
        })
    }
}

/// A command about a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoCommand {
    /// Waits for the first request.
    Fetch,
    /// Answers a request and waits for the next.
    CommitAndFetch,
    /// Fetches the bytes of a write.
    GetData,
}

impl IoCommand {
    /// The length of `struct ublksrv_io_cmd`.
    pub const BYTES: usize = 16;

    /// The `cmd_op` of its ring entry.
    pub const fn op(self) -> u32 {
        let number = match self {
            IoCommand::Fetch => 0x20,
            IoCommand::CommitAndFetch => 0x21,
            IoCommand::GetData => 0x22,
        };
        ioctl(READ_WRITE, number, Self::BYTES as u32)
    }

    /// `struct ublksrv_io_cmd` of a tag of a queue: the result is bytes, or a negative error
    /// number.
    pub fn encode(queue: u16, tag: u16, result: i32, address: u64) -> [u8; Self::BYTES] {
        let mut out = UapiEncoder::new();
        out.u16(queue);
        out.u16(tag);
        out.u32(result as u32);
        out.u64(address);
        out.finish()
    }
}

/// The result of an [`IoCommand`] when the bytes of a write wait to be fetched; 0 when there are
/// none.
pub const NEED_GET_DATA: i32 = 1;

/// `struct ublksrv_io_desc`: a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// The operation in the low byte, flags above.
    pub op_flags: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// First sector.
    pub start: u64,
}

impl Descriptor {
    /// The length of the structure.
    pub const BYTES: usize = 24;
    const FUA: u32 = 1 << 13;

    /// Reads the structure.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Descriptor {
        let mut from = UapiDecoder(&bytes);
        Descriptor {
            op_flags: from.u32(),
            sectors: from.u32(),
            start: from.u64(),
        }
    }

    /// Returns the request; `None` if its kind was not offered.
    pub fn request(&self) -> Option<Request> {
        let extent = Extent::new(Lba(self.start), Sectors(self.sectors.into()));
        match self.op_flags & 0xff {
            0 => Some(Request::Read(extent)),
            1 if self.op_flags & Self::FUA != 0 => Some(Request::Write(extent, Fua::Yes)),
            1 => Some(Request::Write(extent, Fua::No)),
            2 => Some(Request::Flush),
            3 => Some(Request::Discard(extent)),
            5 => Some(Request::Zero(extent)),
            _ => None,
        }
    }
}

/// The longest transfer in sectors, which is the longest that the driver takes (1 MiB).
pub const REQUEST_MAX: Sectors = Sectors(2048);
const _: () = assert!(REQUEST_MAX.0 * SECTOR_BYTES == 1 << 20);

struct UapiEncoder<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> UapiEncoder<N> {
    fn new() -> UapiEncoder<N> {
        UapiEncoder {
            bytes: [0; N],
            at: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    fn zeroes(&mut self, count: usize) {
        self.at += count;
    }

    fn finish(self) -> [u8; N] {
        assert_eq!(self.at, N, "a structure of another length");
        self.bytes
    }
}

/// Reads from bytes of sufficient length.
struct UapiDecoder<'a>(&'a [u8]);

impl UapiDecoder<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk().expect("checked by the caller");
        self.0 = rest;
        *head
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn skip(&mut self, count: usize) {
        self.0 = &self.0[count..];
    }
}
