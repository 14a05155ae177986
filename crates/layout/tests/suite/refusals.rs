//! A superblock of which every checksum is right, and which makes no sense all the same,
//! is refused; at the very limits one is not.

use layout::{
    BLOCK_BYTES, LayoutPlan, MemberRecord, PoolRole, PoolSuperblock, SUPERBLOCK_BLOCKS,
    SuperblockError, SuperblockRow, Uuid, VolumeTable,
};

const BLOCKS: u64 = 200_000;
const MEMBERS_MAX: usize = 16;

fn superblock(line_blocks: u32) -> PoolSuperblock {
    let plan = LayoutPlan::new(block::Sectors(BLOCKS * 8), line_blocks).unwrap();
    PoolSuperblock {
        role: PoolRole::Member,
        clean: true,
        pool: Uuid(1),
        device: Uuid(2),
        sequence: 3,
        epoch: 4,
        blocks: BLOCKS,
        slots: plan.slots,
        line_blocks,
        region_blocks: 1024,
        map: Some(1),
        generation: 5,
        log_start: 6,
        log_end: 7,
        next_volume: 8,
        given: 0,
        hints: Some((1, 9, 10, 11)),
        label: String::new(),
        name: String::new(),
        host: String::new(),
        members: Vec::new(),
        volumes: VolumeTable::default(),
    }
}

fn encoded(superblock: &PoolSuperblock) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES];
    superblock.encode(&mut bytes);
    bytes
}

fn read_back(change: impl FnOnce(&mut PoolSuperblock)) -> Result<PoolSuperblock, SuperblockError> {
    let mut superblock = superblock(16);
    change(&mut superblock);
    PoolSuperblock::decode(&encoded(&superblock), &[])
}

#[track_caller]
fn refused(why: &'static str, change: impl FnOnce(&mut PoolSuperblock)) {
    assert_eq!(read_back(change), Err(SuperblockError::Damaged(why)));
}

#[test]
fn lengths_that_make_no_sense() {
    for line_blocks in [0, 3, 24, 255, 512] {
        refused("its line length makes no sense", |superblock| {
            superblock.line_blocks = line_blocks
        });
    }
    for region_blocks in [0, 8, 24, 1000] {
        refused("its region length makes no sense", |superblock| {
            superblock.region_blocks = region_blocks
        });
    }
    assert!(read_back(|superblock| superblock.region_blocks = 16).is_ok());
    assert_eq!(
        PoolSuperblock::decode(&encoded(&superblock(256)), &[]),
        Ok(superblock(256))
    );
}

#[test]
fn places_that_do_not_exist() {
    let why = "it names a place that does not exist";
    refused(why, |superblock| superblock.map = Some(2));
    refused(why, |superblock| superblock.hints = Some((2, 9, 10, 11)));
    refused(why, |superblock| {
        (superblock.map, superblock.hints) = (Some(2), None)
    });
    refused(why, |superblock| {
        (superblock.map, superblock.hints) = (None, Some((2, 9, 10, 11)))
    });
    assert!(read_back(|superblock| (superblock.map, superblock.hints) = (Some(0), None)).is_ok());
    assert!(read_back(|_| ()).is_ok());
}

#[test]
fn a_size_that_is_not_that_of_its_lines() {
    let why = "its size and its lines do not agree";
    refused(why, |superblock| superblock.slots += 1);
    refused(why, |superblock| superblock.slots -= 1);
    refused(why, |superblock| superblock.blocks = 10);
    refused(why, |superblock| superblock.blocks = u64::MAX);
    // A witness holds no lines and is never laid out, whatever its numbers.
    let witness = read_back(|superblock| superblock.role = PoolRole::Witness).unwrap();
    assert_eq!(witness.plan(), None);
    assert!(
        read_back(|superblock| (superblock.role, superblock.slots) = (PoolRole::Witness, 0))
            .is_ok()
    );
    assert_eq!(superblock(16).plan().unwrap().slots, superblock(16).slots);
}

#[test]
fn as_many_members_as_there_is_room_for() {
    let member = |n: usize| MemberRecord {
        device: Uuid(n as u128),
        slots: 1,
        name: format!("m{n}"),
        domain: String::new(),
    };
    let members: Vec<_> = (0..MEMBERS_MAX).map(member).collect();
    let full = read_back(|superblock| superblock.members = members.clone()).unwrap();
    assert_eq!(full.members, members);

    // No superblock of ours has more, so that its bytes are changed.
    let mut bytes = encoded(&full);
    let mut rows = SuperblockRow::ROWS.iter();
    let count = rows.find(|row| row.name == "members").unwrap().offset as usize;
    for more in [MEMBERS_MAX + 1, 255] {
        bytes[count] = more as u8;
        let (crc_at, first) = (BLOCK_BYTES - 4, &bytes[..BLOCK_BYTES - 4]);
        let crc = crc32c::crc32c(first);
        bytes[crc_at..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
        let why = SuperblockError::Damaged("it has too many members");
        assert_eq!(PoolSuperblock::decode(&bytes, &[]), Err(why));
    }
}
