//! Layouts and numbers against those of the kernel.

use super::*;

/// The numbers are those of the `_IOWR` of C for the same types.
#[test]
fn commands_have_the_kernels_numbers() {
    assert_eq!(UblkCommand::Add.op(), 0xc020_7504);
    assert_eq!(UblkCommand::GetInfo.op(), 0x8020_7502);
    assert_eq!(UblkCommand::GetFeatures.op(), 0x8020_7513);
    assert_eq!(UblkCommand::EndRecovery.op(), 0xc020_7511);
    assert_eq!(UblkCommand::UpdateSize.op(), 0xc020_7515);
    assert_eq!(UblkCommand::DeleteAsync.op(), 0x8020_7514);
    assert_eq!(IoCommand::Fetch.op(), 0xc010_7520);
    assert_eq!(IoCommand::CommitAndFetch.op(), 0xc010_7521);
    assert_eq!(IoCommand::GetData.op(), 0xc010_7522);
}

#[test]
fn device_information_comes_back_as_it_went() {
    let info = DeviceInfo {
        queues: 1,
        depth: 128,
        state: UblkState::Quiesced,
        bytes_max: 1 << 20,
        id: 7,
        pid: 4321,
        features: UblkFeatures::NEEDED,
        mark: 0x0123_4567_89ab_cdef,
    };
    let bytes = info.encode();
    assert_eq!(DeviceInfo::decode(&bytes), Some(info));
    assert_eq!(DeviceInfo::decode(&bytes[..63]), None);
    assert_eq!(bytes[12..16], 7_u32.to_ne_bytes());
    assert_eq!(bytes[32..40], info.mark.to_ne_bytes());
}

#[test]
fn parameters_lie_where_the_kernel_reads_them() {
    let params = Params {
        sectors: Sectors(1 << 20),
        block: Sectors(1),
        physical: Sectors(8),
        optimal: Sectors(128),
        request_max: REQUEST_MAX,
        discard_max: Sectors(1 << 16),
        read_only: false,
        rotational: true,
    };
    let bytes = params.encode();
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((u32_at(0), u32_at(4)), (112, 3));
    assert_eq!(u32_at(8), 0b1110);
    assert_eq!(bytes[12..16], [9, 12, 16, 12]);
    assert_eq!(u32_at(16), 2048);
    assert_eq!(bytes[24..32], (1_u64 << 20).to_ne_bytes());
    assert_eq!((u32_at(40), u32_at(44)), (4096, 4096));
    assert_eq!((u32_at(48), u32_at(52)), (1 << 16, 1 << 16));
    assert_eq!(bytes[56..58], 1_u16.to_ne_bytes());
    let made = Made {
        sectors: Sectors(1 << 20),
        block_shift: 9,
        read_only: false,
        flushes: true,
    };
    assert_eq!(Made::decode(&bytes), Some(made));
    assert_eq!(Made::decode(&bytes[..31]), None);
    let read_only = Params {
        read_only: true,
        ..params
    };
    assert!(Made::decode(&read_only.encode()).unwrap().read_only);
    for missing in [1 << 2, 1 << 3] {
        let mut bytes = bytes;
        bytes[8] &= !missing;
        assert!(!Made::decode(&bytes).unwrap().flushes);
    }
}

fn descriptor(op_flags: u32) -> Option<Request> {
    let mut bytes = [0; Descriptor::BYTES];
    bytes[..4].copy_from_slice(&op_flags.to_ne_bytes());
    bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
    bytes[8..16].copy_from_slice(&64_u64.to_ne_bytes());
    Descriptor::decode(bytes).request()
}

#[test]
fn descriptors_become_requests() {
    let extent = Extent::new(Lba(64), Sectors(8));
    assert_eq!(descriptor(0), Some(Request::Read(extent)));
    assert_eq!(descriptor(1), Some(Request::Write(extent, Fua::No)));
    let forced = 1 | Descriptor::FUA;
    assert_eq!(descriptor(forced), Some(Request::Write(extent, Fua::Yes)));
    assert_eq!(descriptor(2), Some(Request::Flush));
    assert_eq!(descriptor(3 | 1 << 10), Some(Request::Discard(extent)));
    // Whether the space may be given back makes no difference.
    assert_eq!(descriptor(5 | 1 << 15), Some(Request::Zero(extent)));
    assert_eq!(descriptor(4), None);
    assert_eq!(descriptor(15), None);
}
