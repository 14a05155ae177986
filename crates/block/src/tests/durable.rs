//! Every short story of state that is written to two holders. A story has changes before and while
//! an image is written; writes that land, that fail, and that fail and have landed all the same;
//! and images given up. The power is cut after each step.
//!
//! A holder keeps two copies, and writes the worse one; a write that is cut leaves that copy torn.
//! After a cut a holder has the newest that is whole. A fact with a proof at the time of the cut
//! must hold on each, with any of the writes in flight landed or torn.

use crate::{Durable, StateImage, Version};

const HOLDERS: usize = 2;
/// Steps of the longest story.
const STEPS: usize = 9;

/// `count` only grows, as a count of ids given away; `mark` comes and goes, as a bit of intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    count: u8,
    mark: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Count,
    Mark,
    Begin,
    /// The write to a holder ends.
    Lands(usize),
    Fails(usize),
    LandsAndFails(usize),
    /// All have answered.
    End,
}

/// A user's mistake with the type, for a canary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// An image counts as written although a holder has failed.
    MadeUp,
    /// The image for the last holder is encoded after the first has answered.
    EncodedLate,
}

#[derive(Clone, Debug, Default)]
struct Holder {
    /// Number and state; `None` is torn, or was never written.
    copies: [Option<(u64, State, Version)>; 2],
    worse: usize,
}

impl Holder {
    fn newest(&self) -> Option<(u64, State, Version)> {
        self.copies.iter().flatten().copied().max_by_key(|c| c.0)
    }

    fn land(&mut self, image: (u64, State, Version)) {
        self.copies[self.worse] = Some(image);
        self.worse = 1 - self.worse;
    }
}

#[derive(Default)]
struct Seen {
    stories: u64,
    proofs: u64,
    /// Proofs of facts that also hold in an image in flight, or in one that failed.
    proofs_meanwhile: u64,
    refused: u64,
}

/// The writes of an image in flight, and true if all so far have succeeded.
struct Writing<'a> {
    image: StateImage<'a, State>,
    version: Version,
    open: [bool; HOLDERS],
    good: bool,
}

/// Plays a story from its beginning, and cuts the power after its last step. `Ok(false)`: its last
/// step is impossible.
fn play(story: &[Step], fault: Fault, seen: &mut Seen) -> Result<bool, String> {
    let durable = Durable::new(State::default(), 7);
    let mut holders: [Holder; HOLDERS] = Default::default();
    let mut writing: Option<Writing> = None;
    for (at, step) in story.iter().enumerate() {
        match (*step, &mut writing) {
            (Step::Count, _) => durable.change(|state| state.count += 1),
            (Step::Mark, _) => durable.change(|state| state.mark = !state.mark),
            (Step::Begin, None) => {
                let version = durable.version();
                writing = Some(Writing {
                    image: durable.begin(),
                    version,
                    open: [true; HOLDERS],
                    good: true,
                });
            }
            (Step::Lands(n) | Step::Fails(n) | Step::LandsAndFails(n), Some(now))
                if now.open[n] =>
            {
                now.open[n] = false;
                now.good &= matches!(step, Step::Lands(_));
                let late = fault == Fault::EncodedLate && n == HOLDERS - 1;
                let state = if late { *durable.now() } else { *now.image };
                match step {
                    // A failed write may have torn the copy, which stays the worse one.
                    Step::Fails(_) => holders[n].copies[holders[n].worse] = None,
                    Step::LandsAndFails(_) => {
                        let worse = holders[n].worse;
                        holders[n].copies[worse] = Some((now.image.number(), state, now.version));
                    }
                    _ => holders[n].land((now.image.number(), state, now.version)),
                }
            }
            (Step::End, Some(now)) if now.open == [false; HOLDERS] => {
                let now = writing.take().expect("it is there");
                let newest = now.image.is_newest();
                if now.good || fault == Fault::MadeUp {
                    let _proof = now.image.written();
                    if durable.is_due() == newest {
                        return Err(format!("what is due is mistaken after {:?}", &story[..=at]));
                    }
                } else {
                    drop(now);
                    if !durable.is_due() {
                        return Err(format!("an image given up is not due: {:?}", &story[..=at]));
                    }
                }
            }
            _ => return Ok(false),
        }
        if at + 1 == story.len() {
            seen.stories += 1;
            cut(&durable, &holders, writing.as_ref(), fault, seen)
                .map_err(|what| format!("{what} after {story:?}"))?;
        }
    }
    Ok(true)
}

/// Compares the proved facts with the state of each holder after a cut now.
fn cut(
    durable: &Durable<State>,
    holders: &[Holder; HOLDERS],
    writing: Option<&Writing>,
    fault: Fault,
    seen: &mut Seen,
) -> Result<(), String> {
    let mut left: Vec<Option<(u64, State, Version)>> = Vec::new();
    for (n, holder) in holders.iter().enumerate() {
        let Some(now) = writing.filter(|now| now.open[n]) else {
            left.push(holder.newest());
            continue;
        };
        let (mut torn, mut landed) = (holder.clone(), holder.clone());
        torn.copies[torn.worse] = None;
        let late = fault == Fault::EncodedLate && n == HOLDERS - 1;
        let state = if late { *durable.now() } else { *now.image };
        landed.land((now.image.number(), state, now.version));
        left.extend([holder.newest(), torn.newest(), landed.newest()]);
    }
    type Fact = (&'static str, fn(&State) -> bool);
    let facts: [Fact; 4] = [
        ("one", |state| state.count >= 1),
        ("two", |state| state.count >= 2),
        ("marked", |state| state.mark),
        ("not marked", |state| !state.mark),
    ];
    let everywhere =
        |fact: &dyn Fn(&State) -> bool| left.iter().all(|l| l.is_some_and(|l| fact(&l.1)));
    for (name, fact) in facts {
        match durable.proof(fact) {
            Some(_) if !everywhere(&fact) => {
                return Err(format!("\"{name}\" is proved and not so"));
            }
            Some(_) => {
                seen.proofs += 1;
                seen.proofs_meanwhile += u64::from(writing.is_some());
            }
            None => seen.refused += 1,
        }
    }
    let version = durable.version();
    if durable.proof_of(version).is_some() {
        let has = |l: &Option<(u64, State, Version)>| l.is_some_and(|l| l.2 >= version);
        if !left.iter().all(has) || !everywhere(&|state| *state == *durable.now()) {
            return Err("the last change is proved and not there".to_owned());
        }
    }
    Ok(())
}

/// Plays every story of up to [`STEPS`] steps; the first wrong one ends that.
fn explore(fault: Fault) -> (Seen, Result<(), String>) {
    let mut seen = Seen::default();
    let mut steps = vec![Step::Count, Step::Mark, Step::Begin, Step::End];
    for n in 0..HOLDERS {
        steps.extend([Step::Lands(n), Step::Fails(n), Step::LandsAndFails(n)]);
    }
    let mut stories = vec![Vec::new()];
    while let Some(story) = stories.pop() {
        for step in &steps {
            let longer = [&story[..], &[*step]].concat();
            match play(&longer, fault, &mut seen) {
                Err(what) => return (seen, Err(what)),
                Ok(true) if longer.len() < STEPS => stories.push(longer),
                Ok(_) => {}
            }
        }
    }
    (seen, Ok(()))
}

#[test]
fn what_is_proved_is_there_after_every_cut() {
    let (seen, result) = explore(Fault::None);
    result.unwrap();
    println!(
        "{} stories, {} proofs ({} meanwhile), {} refused",
        seen.stories, seen.proofs, seen.proofs_meanwhile, seen.refused
    );
    assert!(seen.stories > 100_000 && seen.refused > 0);
    assert!(seen.proofs > 10_000 && seen.proofs_meanwhile > 1_000);
}

#[test]
fn a_proof_that_is_made_up_is_seen() {
    explore(Fault::MadeUp).1.unwrap_err();
}

#[test]
fn an_image_that_is_encoded_after_a_wait_is_seen() {
    explore(Fault::EncodedLate).1.unwrap_err();
}

#[test]
fn a_failed_write_leaves_the_old_proof() {
    let durable = Durable::new(State::default(), 0);
    assert!(durable.proof(|_| true).is_none(), "nobody holds anything");
    let _proof = durable.begin().written();
    durable.change(|state| state.count = 1);
    let first = durable.version();
    let _proof = durable.begin().written();
    durable.change(|state| {
        *state = State {
            count: 2,
            mark: true,
        }
    });
    drop(durable.begin());
    assert!(durable.proof(|state| state.count >= 1).is_some());
    assert!(durable.proof_of(first).is_some());
    assert!(durable.proof(|state| state.count >= 2).is_none());
    assert!(
        durable.proof(|state| !state.mark).is_none(),
        "it may have landed"
    );
    assert!(durable.is_due());
    assert_eq!(durable.number(), 3);
}
