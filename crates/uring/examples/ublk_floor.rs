//! The least cost of a server of ublk in user space: reads of a block device through one
//! ring, a checksum of each block as in hotset, and nothing else. The base for
//! measurements of a hit in hotset.
//!
//! `ublk_floor DEVICE` serves the first 64 MiB of DEVICE as /dev/ublkb0 until it is killed. A
//! failure ends it with a panic: not for real data.

use io_uring::{IoUring, opcode, types};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use block::{SECTOR_BYTES, Sectors};
use ublk::uapi::{character_device, descriptors_at};
use ublk::{
    Descriptor, DeviceInfo, IoCommand, Params, UblkCommand, UblkControl, UblkFeatures, UblkState,
};

const DEPTH: u16 = 64;
const REQUEST_BYTES: usize = 64 << 10;
const SIZE: Sectors = Sectors((64 << 20) / SECTOR_BYTES);
const BLOCK: usize = 4096;
/// Bit of `user_data` for the read of a tag's request, rather than its command.
const READ: u64 = 1 << 16;

fn main() {
    let path = std::env::args().nth(1).expect("usage: ublk_floor DEVICE");
    let disk = open(&path, libc::O_DIRECT);
    let ask = DeviceInfo {
        queues: 1,
        depth: DEPTH,
        state: UblkState::Dead,
        bytes_max: REQUEST_BYTES as u32,
        id: UblkControl::ANY,
        pid: std::process::id() as i32,
        features: UblkFeatures(UblkFeatures::NEED_GET_DATA.0 | UblkFeatures::CMD_IOCTL_ENCODE.0),
        mark: 0,
    };
    let answer = control(UblkCommand::Add, UblkControl::ANY, 0, ask.encode().to_vec());
    let info = DeviceInfo::decode(&answer).expect("what was added");
    let block = Sectors(BLOCK as u64 / SECTOR_BYTES);
    let shape = Params {
        sectors: SIZE,
        block,
        physical: block,
        optimal: block,
        request_max: Sectors(REQUEST_BYTES as u64 / SECTOR_BYTES),
        discard_max: block,
        read_only: true,
        rotational: false,
    };
    control(UblkCommand::SetParams, info.id, 0, shape.encode().to_vec());
    // The start command waits until all tags wait; the kernel then reads the device.
    let start = std::thread::spawn(move || {
        control(
            UblkCommand::Start,
            info.id,
            std::process::id().into(),
            Vec::new(),
        );
    });
    serve(&disk, &open(&character_device(info.id), 0));
    start.join().expect("the start");
}

fn open(path: &str, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).expect(path)
}

fn control(command: UblkCommand, device: u32, data: u64, buffer: Vec<u8>) -> Vec<u8> {
    let mut ask = UblkControl::of(command, device);
    (ask.data, ask.buffer) = (data, buffer);
    let answer = uring::ublk_control(ask).expect("ublk");
    answer.unwrap_or_else(|number| panic!("{command:?} failed with error {number}"))
}

fn serve(disk: &File, device: &File) {
    let descriptors = map(
        device.as_raw_fd(),
        libc::PROT_READ,
        libc::MAP_SHARED,
        usize::from(DEPTH) * Descriptor::BYTES,
    );
    let buffers = map(
        -1,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        usize::from(DEPTH) * REQUEST_BYTES,
    );
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    let mut ring: IoUring = builder.build(256).expect("a ring");
    let files = [disk.as_raw_fd(), device.as_raw_fd()];
    ring.submitter().register_files(&files).expect("files");
    let buffer = |tag: u16| buffers.wrapping_add(usize::from(tag) * REQUEST_BYTES);
    let command = |command: IoCommand, tag: u16, result: i32| {
        let bytes = IoCommand::encode(0, tag, result, buffer(tag) as u64);
        let entry = opcode::UringCmd16::new(types::Fixed(1), command.op()).cmd(bytes);
        entry.build().user_data(tag.into())
    };
    for tag in 0..DEPTH {
        let fetch = command(IoCommand::Fetch, tag, 0);
        // SAFETY: the buffers are never freed.
        unsafe { ring.submission().push(&fetch) }.expect("room for every tag");
    }
    let mut checksums = 0;
    loop {
        ring.submit_and_wait(1).expect("a ring");
        while let Some(entry) = { ring.completion().next() } {
            let tag = entry.user_data() as u16;
            let next = if entry.user_data() & READ != 0 {
                let bytes = usize::try_from(entry.result()).expect("a read");
                // SAFETY: the kernel has filled so many bytes of the tag's buffer.
                let read = unsafe { std::slice::from_raw_parts(buffer(tag), bytes) };
                for block in read.chunks(BLOCK) {
                    checksums ^= crc_fast::crc32_iscsi(block);
                }
                command(IoCommand::CommitAndFetch, tag, entry.result())
            } else {
                assert!(entry.result() >= 0, "the device is gone");
                let at = usize::from(tag) * Descriptor::BYTES;
                // SAFETY: the kernel has written the descriptor before it completed the command.
                let bytes = unsafe {
                    descriptors
                        .add(at)
                        .cast::<[u8; Descriptor::BYTES]>()
                        .read_volatile()
                };
                let asked = Descriptor::decode(bytes);
                let len = asked.sectors * SECTOR_BYTES as u32;
                let read = opcode::Read::new(types::Fixed(0), buffer(tag), len);
                let read = read.offset(asked.start * SECTOR_BYTES).build();
                read.user_data(READ | u64::from(tag))
            };
            // SAFETY: the buffers are never freed.
            unsafe { ring.submission().push(&next) }.expect("one entry a tag");
        }
        std::hint::black_box(checksums);
    }
}

fn map(fd: i32, protection: i32, flags: i32, bytes: usize) -> *mut u8 {
    let (at, flags) = (descriptors_at(0) as libc::off_t, flags | libc::MAP_POPULATE);
    let bytes = bytes.next_multiple_of(BLOCK);
    // SAFETY: a new mapping, which overlays nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, at) };
    assert_ne!(start, libc::MAP_FAILED, "no memory");
    start.cast()
}
