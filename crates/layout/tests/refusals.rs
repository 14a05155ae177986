//! A head of which every checksum is right, and which makes no sense all the same,
//! is refused; at the very limits one is not.

use layout::{BLOCK_BYTES, HEAD_BLOCKS, Head, HeadError, Member, Plan, Role, Superblock, Uuid};

const BLOCKS: u64 = 200_000;
const MEMBERS_MAX: usize = 16;

fn head(line_blocks: u32) -> Head {
    let plan = Plan::new(block::Sectors(BLOCKS * 8), line_blocks).unwrap();
    Head {
        role: Role::Member,
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
        memo: Some((1, 9, 10, 11)),
        label: String::new(),
        name: String::new(),
        host: String::new(),
        members: Vec::new(),
        volumes: Vec::new(),
    }
}

fn encoded(head: &Head) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BLOCKS as usize * BLOCK_BYTES];
    head.encode(&mut bytes);
    bytes
}

fn read_back(change: impl FnOnce(&mut Head)) -> Result<Head, HeadError> {
    let mut head = head(16);
    change(&mut head);
    Head::decode(&encoded(&head))
}

#[track_caller]
fn refused(why: &'static str, change: impl FnOnce(&mut Head)) {
    assert_eq!(read_back(change), Err(HeadError::Damaged(why)));
}

#[test]
fn lengths_that_make_no_sense() {
    for line_blocks in [0, 3, 24, 255, 512] {
        refused("its line length makes no sense", |head| {
            head.line_blocks = line_blocks
        });
    }
    for region_blocks in [0, 8, 24, 1000] {
        refused("its region length makes no sense", |head| {
            head.region_blocks = region_blocks
        });
    }
    assert!(read_back(|head| head.region_blocks = 16).is_ok());
    assert_eq!(Head::decode(&encoded(&head(256))), Ok(head(256)));
}

#[test]
fn places_that_do_not_exist() {
    let why = "it names a place that does not exist";
    refused(why, |head| head.map = Some(2));
    refused(why, |head| head.memo = Some((2, 9, 10, 11)));
    refused(why, |head| (head.map, head.memo) = (Some(2), None));
    refused(why, |head| {
        (head.map, head.memo) = (None, Some((2, 9, 10, 11)))
    });
    assert!(read_back(|head| (head.map, head.memo) = (Some(0), None)).is_ok());
    assert!(read_back(|_| ()).is_ok());
}

#[test]
fn a_size_that_is_not_that_of_its_lines() {
    let why = "its size and its lines do not agree";
    refused(why, |head| head.slots += 1);
    refused(why, |head| head.slots -= 1);
    refused(why, |head| head.blocks = 10);
    refused(why, |head| head.blocks = u64::MAX);
    // A witness holds no lines: nothing of it is laid out, whatever it says.
    let witness = read_back(|head| head.role = Role::Witness).unwrap();
    assert_eq!(witness.plan(), None);
    assert!(read_back(|head| (head.role, head.slots) = (Role::Witness, 0)).is_ok());
    assert_eq!(head(16).plan().unwrap().slots, head(16).slots);
}

#[test]
fn as_many_members_as_there_is_room_for() {
    let member = |n: usize| Member {
        device: Uuid(n as u128),
        slots: 1,
        name: format!("m{n}"),
        domain: String::new(),
    };
    let members: Vec<_> = (0..MEMBERS_MAX).map(member).collect();
    let full = read_back(|head| head.members = members.clone()).unwrap();
    assert_eq!(full.members, members);

    // No head of ours has more, so that its bytes are changed.
    let mut bytes = encoded(&full);
    let mut rows = Superblock::ROWS.iter();
    let count = rows.find(|row| row.name == "members").unwrap().offset as usize;
    for more in [MEMBERS_MAX + 1, 255] {
        bytes[count] = more as u8;
        let (crc_at, first) = (BLOCK_BYTES - 4, &bytes[..BLOCK_BYTES - 4]);
        let crc = crc32c::crc32c(first);
        bytes[crc_at..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
        let why = HeadError::Damaged("it has too many members");
        assert_eq!(Head::decode(&bytes), Err(why));
    }
}
