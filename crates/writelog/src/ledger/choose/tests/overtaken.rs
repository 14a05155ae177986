//! Logs of one volume, of which one was opened after the other.

use super::*;

/// A log was given up with its devices gone, another took its place, and they are back.
#[test]
fn a_log_that_was_given_up_never_overwrites_what_came_after_it() {
    let after = |copy| {
        let mut after = clean(superblock(copy, 6, 0, BOTH));
        (after.log, after.opened_at) = (Uuid(8), 3000);
        after
    };
    let why = "has a log of db that was given up, or overtaken";
    let refused = |witness: Option<LogSuperblock>, found: fn() -> [CandidateState; 2]| {
        for wanted in [
            wanted(),
            WantedLog {
                is_forced: true,
                ..wanted()
            },
        ] {
            let refusal = chosen_by(&wanted, witness.clone(), found()).err();
            let refusal = refusal.expect("it is refused");
            assert!(
                refusal.contains(why) && !refusal.contains("is lost"),
                "{refusal}"
            );
        }
    };
    refused(Some(after(None)), || [current(0), current(1)]);
    refused(Some(after(None)), || [current(0), gone()]);
    refused(Some(after(None)), || [blank(), current(1)]);
    let mixed = |old: u8| {
        [0, 1].map(|copy| match copy == old {
            true => current(copy),
            false => device(after(Some(copy))),
        })
    };
    for old in [0, 1] {
        for witness in [Some(after(None)), None] {
            let refusal = chosen(witness, mixed(old)).err().expect("it is refused");
            assert!(refusal.contains(why), "{refusal}");
        }
    }
    // The file alone is older: it was restored, or the clock was set back since.
    let mut before = after(None);
    before.opened_at = 1500;
    let refusal = chosen(Some(before.clone()), [current(0), current(1)]).err();
    let refusal = refusal.expect("it is refused");
    assert!(refusal.contains("is of another log of db"), "{refusal}");
    let (mask, doubt) = kept(Some(before), [current(0), current(1)]).unwrap();
    assert_eq!(mask, BOTH);
    assert!(doubt.contains("is of another log of db"), "{doubt}");
}
