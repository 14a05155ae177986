//! Every state in which a log may be found.

mod overtaken;

use super::*;

const LOG: Uuid = Uuid(7);
const ROOM: u32 = 20;

fn wanted() -> WantedLog {
    WantedLog {
        volume: "db".into(),
        sectors: 800,
        identity: b"archive".to_vec(),
        host: "host".into(),
        uuid: Uuid(99),
        now: Nanos(1000),
        is_forced: false,
    }
}

fn superblock(copy: Option<u8>, sequence: u64, epoch: u64, mask: [bool; 2]) -> LogSuperblock {
    LogSuperblock {
        copy,
        may_be_dirty: true,
        mask,
        log: LOG,
        sequence,
        epoch,
        incarnation: 4,
        segments: 16,
        sectors: 800,
        opened_at: 2000,
        volume: "db".into(),
        devices: ["ssd0".into(), "ssd1".into()],
        host: "host".into(),
        identity: b"archive".to_vec(),
        journal: None,
        record: Vec::new(),
    }
}

const BOTH: [bool; 2] = [true; 2];

fn device(superblock: LogSuperblock) -> CandidateState {
    CandidateState::Log {
        superblock: Box::new(superblock),
        room: ROOM,
    }
}

fn current(copy: u8) -> CandidateState {
    device(superblock(Some(copy), 10, 2, BOTH))
}

fn witness() -> LogSuperblock {
    superblock(None, 10, 2, BOTH)
}

fn clean(mut superblock: LogSuperblock) -> LogSuperblock {
    superblock.may_be_dirty = false;
    superblock
}

fn gone() -> CandidateState {
    CandidateState::Absent("is unplugged".into())
}

fn blank() -> CandidateState {
    CandidateState::Blank { room: ROOM }
}

fn chosen(witness: Option<LogSuperblock>, found: [CandidateState; 2]) -> Result<Chosen, String> {
    chosen_by(&wanted(), witness, found)
}

fn chosen_by(
    wanted: &WantedLog,
    witness: Option<LogSuperblock>,
    found: [CandidateState; 2],
) -> Result<Chosen, String> {
    let names = ["ssd0".to_owned(), "ssd1".to_owned()];
    let [first, second] = &found;
    choose(wanted, witness.as_ref(), &names, [first, second])
}

/// Opens the log. Returns the trusted copies, and true if the log is new.
fn opened(witness: Option<LogSuperblock>, found: [CandidateState; 2]) -> ([bool; 2], bool) {
    let chosen = chosen(witness, found).unwrap();
    assert_eq!(
        chosen.superblock.log,
        if chosen.is_new { Uuid(99) } else { LOG }
    );
    (chosen.superblock.mask, chosen.is_new)
}

#[track_caller]
fn refused(witness: Option<LogSuperblock>, found: [CandidateState; 2], why: &str) {
    let refusal = chosen(witness, found).err().expect("it is refused");
    assert!(refusal.contains(why), "{refusal}");
}

#[test]
fn a_log_begins_on_two_blank_devices_alone() {
    assert_eq!(opened(None, [blank(), blank()]), (BOTH, true));
    refused(
        None,
        [blank(), gone()],
        "a new log of db needs both devices: ssd1: is unplugged",
    );
    refused(
        None,
        [blank(), CandidateState::Other("holds swap space".into())],
        "ssd1 holds swap space",
    );
    let small = CandidateState::Blank { room: 7 };
    refused(
        None,
        [small, blank()],
        "ssd0 is too small: a log needs 9 MiB",
    );
}

#[test]
fn what_is_current_is_trusted_and_the_rest_joins() {
    let all = || [current(0), current(1)];
    assert_eq!(opened(Some(witness()), all()), (BOTH, false));
    assert_eq!(opened(None, all()), (BOTH, false));
    assert_eq!(
        opened(Some(witness()), [current(0), gone()]),
        ([true, false], false)
    );
    assert_eq!(
        opened(Some(witness()), [blank(), current(1)]),
        ([false, true], false)
    );
    let raised = chosen(Some(witness()), [current(0), gone()])
        .unwrap()
        .superblock;
    assert_eq!(
        (raised.epoch, raised.incarnation, raised.sequence),
        (3, 5, 10)
    );
    // The clock never goes back.
    assert_eq!(raised.opened_at, 2000);
}

#[test]
fn a_copy_that_was_lost_is_not_trusted_whoever_knows_of_it() {
    let stale = || current(0);
    let on = || superblock(Some(1), 12, 3, [false, true]);
    let knows = || superblock(None, 12, 3, [false, true]);
    assert_eq!(
        opened(Some(knows()), [stale(), device(on())]),
        ([false, true], false)
    );
    assert_eq!(
        opened(None, [stale(), device(on())]),
        ([false, true], false)
    );
    // The devices had it before the witness.
    assert_eq!(
        opened(Some(witness()), [stale(), device(on())]),
        ([false, true], false)
    );
    refused(
        Some(knows()),
        [stale(), gone()],
        "what its origin does not have yet is on ssd1",
    );
    // An older image of a copy.
    let image = || device(superblock(Some(0), 9, 2, BOTH));
    assert_eq!(
        opened(Some(witness()), [image(), current(1)]),
        ([false, true], false)
    );
    refused(Some(witness()), [image(), gone()], "is on ssd0 and ssd1");
    // The copy joins again: the first superblock that names it is of a later epoch than its own.
    let joins = superblock(Some(1), 13, 3, BOTH);
    assert_eq!(
        opened(Some(knows()), [stale(), device(joins)]),
        ([false, true], false)
    );
}

/// A device that had left its place has the other one since, and is restored from an image.
#[test]
fn an_older_image_of_the_current_copy_is_no_current_copy() {
    let older = || device(superblock(Some(0), 9, 2, BOTH));
    let (first, second) = ([current(0), older()], [older(), current(0)]);
    assert_eq!(opened(Some(witness()), first), ([true, false], false));
    refused(None, [current(0), older()], "hold the same copy");
    refused(None, second, "hold the same copy");
    let twins = [current(0), current(0)];
    refused(Some(witness()), twins, "hold the same copy");
}

#[test]
fn without_the_witness_all_that_may_hold_something_has_to_be_there() {
    refused(
        None,
        [current(0), gone()],
        "ssd1 may have what its origin does not have",
    );
    refused(
        None,
        [current(0), blank()],
        "ssd1 may have what its origin does not have",
    );
    let clean = device(clean(superblock(Some(0), 10, 2, BOTH)));
    refused(
        None,
        [clean, gone()],
        "the file of the log in `state` is lost",
    );
    let alone = device(superblock(Some(0), 10, 2, [true, false]));
    assert_eq!(opened(None, [alone, gone()]), ([true, false], false));
    let mut other = witness();
    other.log = Uuid(8);
    other.may_be_dirty = false;
    refused(
        Some(other),
        [current(0), gone()],
        "ssd1 may have what its origin does not have",
    );
}

#[test]
fn a_log_with_dirty_data_is_never_begun_again() {
    refused(
        Some(witness()),
        [gone(), gone()],
        "is on ssd0 and ssd1; attach one of them",
    );
    refused(
        Some(witness()),
        [blank(), blank()],
        "is on ssd0 and ssd1; attach one of them",
    );
    let mut other = superblock(Some(1), 30, 2, BOTH);
    other.log = Uuid(8);
    refused(
        Some(witness()),
        [current(0), device(other)],
        "know nothing of each other",
    );
    refused(
        Some(witness()),
        [current(0), current(0)],
        "hold the same copy",
    );
}

#[test]
fn with_nothing_dirty_new_devices_are_a_new_log() {
    let clean_witness = || Some(clean(witness()));
    assert_eq!(opened(clean_witness(), [blank(), blank()]), (BOTH, true));
    refused(
        clean_witness(),
        [blank(), gone()],
        "a new log of db needs both devices",
    );
    let clean = || device(clean(superblock(Some(0), 10, 2, BOTH)));
    assert_eq!(
        opened(clean_witness(), [clean(), gone()]),
        ([true, false], false)
    );
    // A copy that was lost while data was dirty, all of which has been written back since.
    let later = || {
        let mut later = superblock(None, 20, 4, [false, true]);
        later.may_be_dirty = false;
        Some(later)
    };
    assert_eq!(opened(later(), [current(0), blank()]), (BOTH, true));
    // A power cut while a log was made: in the witness first, then on the devices.
    let mut begun = superblock(None, 1, 1, [false; 2]);
    begun.may_be_dirty = false;
    assert_eq!(
        opened(Some(begun.clone()), [blank(), blank()]),
        (BOTH, true)
    );
    let mut first = superblock(Some(0), 2, 1, BOTH);
    first.may_be_dirty = false;
    assert_eq!(
        opened(Some(begun), [device(first), blank()]),
        ([true, false], false)
    );
}

/// A refused log is left unchanged, and the message names the missing devices.
#[test]
fn one_device_that_cannot_be_used_counts_as_absent() {
    let mut other = superblock(Some(1), 30, 2, BOTH);
    other.volume = "web".into();
    let mut long = superblock(Some(1), 10, 2, BOTH);
    long.segments = ROOM + 1;
    let short = CandidateState::Blank { room: 3 };
    for (found, why) in [
        (
            CandidateState::Other("is too small".into()),
            "ssd1 is too small",
        ),
        (
            CandidateState::Other("holds swap space".into()),
            "ssd1 holds swap space",
        ),
        (device(other), "ssd1 has the log of volume web"),
        (device(long), "ssd1 has room for 20 MiB"),
        (short, "ssd1 has room for 3 MiB"),
    ] {
        let chosen = chosen(Some(witness()), [current(0), found]).unwrap();
        assert_eq!(chosen.superblock.mask, [true, false]);
        let [first, second] = chosen.without;
        assert_eq!(first, None);
        let second = second.expect("it is left out");
        assert!(second.contains(why), "{second}");
    }
}

#[test]
fn a_log_of_a_volume_that_was_renamed_says_how_it_is_given_up() {
    let renamed = |may_be_dirty: bool| {
        [0, 1].map(|copy| {
            let mut superblock = superblock(Some(copy), 10, 2, BOTH);
            (superblock.volume, superblock.may_be_dirty) = ("web".into(), may_be_dirty);
            device(superblock)
        })
    };
    refused(
        None,
        renamed(false),
        "blank both with `hotset pool format --yes`",
    );
    refused(
        None,
        renamed(true),
        "has the log of volume web; give each volume its own devices",
    );
}

#[test]
fn another_volume_size_origin_or_room_is_refused() {
    let with = |change: fn(&mut LogSuperblock)| {
        let mut all = [
            superblock(Some(0), 10, 2, BOTH),
            superblock(Some(1), 10, 2, BOTH),
        ];
        all.iter_mut().for_each(change);
        all.map(device)
    };
    refused(
        None,
        with(|s| s.volume = "web".into()),
        "ssd0 has the log of volume web",
    );
    refused(
        None,
        with(|s| s.sectors = 808),
        "had 808 sectors; 800 are wanted",
    );
    refused(
        None,
        with(|s| s.identity = b"other".to_vec()),
        "this is another device",
    );
    refused(
        None,
        with(|s| s.segments = 30),
        "ssd0 has room for 20 MiB of the log of db, which has 30 MiB",
    );
    let free = |s: &mut LogSuperblock| {
        s.may_be_dirty = false;
        s.sectors = 808;
        s.identity = b"other".to_vec();
    };
    let chosen = chosen(None, with(free)).unwrap().superblock;
    assert_eq!(
        (chosen.sectors, &chosen.identity[..]),
        (800, &b"archive"[..])
    );
}

/// Opens the log at the operator's request. Returns the trusted copies, and the doubts.
fn kept(
    witness: Option<LogSuperblock>,
    found: [CandidateState; 2],
) -> Result<([bool; 2], String), String> {
    let wanted = WantedLog {
        is_forced: true,
        ..wanted()
    };
    let chosen = chosen_by(&wanted, witness, found)?;
    assert!(!chosen.is_new && chosen.superblock.sectors == wanted.sectors);
    assert_eq!(chosen.superblock.identity, wanted.identity);
    Ok((chosen.superblock.mask, chosen.doubts.join("; ")))
}

#[test]
fn the_operator_may_ask_for_what_nothing_says_is_current() {
    assert_eq!(
        kept(Some(witness()), [current(0), current(1)]),
        Ok((BOTH, String::new()))
    );
    let lost = "the file of the log in `state` is lost, which would say";
    for other in [gone, blank] {
        let (mask, doubt) = kept(None, [current(0), other()]).unwrap();
        assert_eq!(mask, [true, false]);
        let expected = "ssd1 may have what its origin does not have";
        assert!(
            doubt.starts_with(expected) && doubt.ends_with(lost),
            "{doubt}"
        );
    }
    // The copy that was away is never trusted from then on.
    let wanted = WantedLog {
        is_forced: true,
        ..wanted()
    };
    let chosen = chosen_by(&wanted, None, [current(0), gone()]).unwrap();
    assert_eq!(chosen.superblock.epoch, 3);
}

#[test]
fn the_operator_may_ask_for_another_origin_to_be_overwritten() {
    let with = |change: fn(&mut LogSuperblock)| {
        let mut all = [0, 1].map(|copy| superblock(Some(copy), 10, 2, BOTH));
        all.iter_mut().for_each(change);
        all.map(device)
    };
    let (mask, doubt) = kept(None, with(|s| s.identity = b"other".to_vec())).unwrap();
    assert_eq!(mask, BOTH);
    assert!(doubt.starts_with("this is another device"), "{doubt}");
    let (_, doubt) = kept(None, with(|s| s.sectors = 792)).unwrap();
    assert!(doubt.contains("had 792 sectors; 800 are wanted"), "{doubt}");
    // Dirty data past the end cannot be written back.
    let smaller = kept(None, with(|s| s.sectors = 808)).unwrap_err();
    assert!(smaller.contains("`--discard` discards that"), "{smaller}");
}

/// Overtaken data is known for certain: the operator's request does not change that.
#[test]
fn nobody_can_ask_for_what_is_overtaken_or_somebody_elses() {
    let refused = |witness, found, why: &str| {
        let refusal = kept(witness, found).unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    };
    let knows = || superblock(None, 12, 3, [false, true]);
    refused(Some(knows()), [current(0), gone()], "is on ssd1");
    let image = device(superblock(Some(0), 9, 2, BOTH));
    refused(Some(witness()), [image, gone()], "is on ssd0 and ssd1");
    refused(Some(witness()), [gone(), gone()], "is on ssd0 and ssd1");
    refused(None, [current(0), current(0)], "hold the same copy");
    let mut other = superblock(Some(1), 30, 2, BOTH);
    other.log = Uuid(8);
    refused(
        None,
        [current(0), device(other)],
        "know nothing of each other",
    );
    let foreign = || CandidateState::Other("holds swap space".into());
    refused(Some(witness()), [foreign(), gone()], "holds swap space");
    refused(Some(knows()), [current(0), foreign()], "holds swap space");
    let nothing = "no record of dirty data of volume db";
    refused(None, [blank(), blank()], nothing);
    refused(Some(clean(witness())), [blank(), blank()], nothing);
}

/// Each refusal names its remedy.
#[test]
fn each_refusal_names_the_command_that_accepts_it() {
    let with = |change: fn(&mut LogSuperblock)| {
        let mut all = [0, 1].map(|copy| superblock(Some(copy), 10, 2, BOTH));
        all.iter_mut().for_each(change);
        all.map(device)
    };
    let mut other = superblock(Some(1), 30, 2, BOTH);
    other.log = Uuid(8);
    for (witness, found, keeps) in [
        (None, [current(0), gone()], true),
        (None, with(|s| s.identity = b"other".to_vec()), true),
        (None, with(|s| s.sectors = 792), true),
        (None, with(|s| s.sectors = 808), false),
        (Some(witness()), [gone(), gone()], false),
        (None, [current(0), current(0)], false),
        (None, [current(0), device(other)], false),
    ] {
        let refusal = chosen(witness, found).err().expect("it is refused");
        let named = |text: &str| refusal.contains(text);
        assert!(named("db is not served"), "{refusal}");
        assert!(named("`hotset pool recover db`"), "{refusal}");
        assert!(named("`--discard`"), "{refusal}");
        assert_eq!(named("`--write-back`"), keeps, "{refusal}");
    }
}
