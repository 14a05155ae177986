use super::*;
use crate::levels::Level;
use block::Sectors;

fn start(generation: u8, event: u64) -> Position {
    Position {
        generation: Uuid::from_bytes([generation; 16]),
        event,
    }
}

/// Returns a superblock of a mirror with members 1, 2 and so on.
fn superblock(states: &[MemberState], chain: &[Position]) -> ArraySuperblock {
    let entry = |(member, state): (u8, &MemberState)| MemberEntry {
        uuid: Uuid::from_bytes([member; 16]),
        state: *state,
        sectors: Sectors(2048),
        ..MemberEntry::default()
    };
    ArraySuperblock {
        array: Uuid::from_bytes([99; 16]),
        member: Uuid::from_bytes([1; 16]),
        role: 0,
        events: chain[0].event,
        generation: chain[0].generation,
        history: chain[1..].to_vec(),
        sealed: 0,
        scrubbed: Default::default(),
        name: "array".into(),
        level: Level::Raid1,
        block: Sectors(1),
        chunk: Sectors(64),
        data_at: Sectors(2048),
        region: Sectors(128),
        journal_slots: 0,
        table: (1..).zip(states).map(entry).collect(),
        bad: Vec::new(),
        gaps: Vec::new(),
    }
}

const IN_SYNC: MemberState = MemberState::InSync;
const LOST: MemberState = MemberState::Failed { whole: false };

/// The start in which a member was lost is kept, however many followed.
#[test]
fn a_history_keeps_the_starts_in_which_members_were_lost() {
    let chain: Vec<_> = (1..=10_u8)
        .rev()
        .map(|n| start(n, 10 * u64::from(n)))
        .collect();
    let mut truth = superblock(&[IN_SYNC, LOST, LOST], &chain);
    // The second had event 30, the last of its start, and the third one of the next.
    truth.table[1].failed_at = 31;
    truth.table[2].failed_at = 32;
    let kept = |most| {
        let history = history_after(&truth, most);
        let starts = history.iter().map(|at| at.generation.to_bytes()[0]);
        starts.collect::<Vec<_>>()
    };
    assert_eq!(kept(20), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(kept(5), [10, 9, 8, 4, 3]);
    assert_eq!(kept(3), [10, 4, 3]);
}

/// A member that was lost in an event has the one before; an image of it from before that lacks
/// more than the marked regions.
#[test]
fn an_image_from_an_event_before_the_last_that_a_lost_member_had_is_filled_whole() {
    for (event, whole) in [(30, false), (29, true), (28, true)] {
        let mut truth = superblock(&[IN_SYNC, LOST], &[start(1, 32)]);
        truth.table[1].failed_at = 31;
        let its = ArraySuperblock {
            member: Uuid::from_bytes([2; 16]),
            role: 1,
            ..superblock(&[IN_SYNC, IN_SYNC], &[start(1, event)])
        };
        let known = KnownMember::new([Some(its.clone()), Some(its)]).expect("two copies");
        let membership = known.membership(&truth, &truth.table[1]);
        assert_eq!(
            membership,
            Some(ArrayMembership::Stale { whole }),
            "{event}"
        );
    }
}
