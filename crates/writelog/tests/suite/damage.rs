//! A block of one copy is damaged while the other copy is away, stale or blank: each acknowledged
//! block is right, or its read fails, or the log is refused.

use crate::rig::{Leaf, Rig, config, run};
use block::{
    Buf, Device, Extent, Fua, IoError, IoErrorKind, IoResult, Layer, Lba, Nanos, Sectors, SharedBuf,
};
use layout::{BLOCK_BYTES, SEGMENT_BLOCKS};
use std::cell::Cell;
use std::rc::Rc;
use writelog::{Config, CopyArea, Scrutiny, WriteBack};

/// Number of writes, of `BLOCKS` blocks each: a record has one write.
const WRITES: u64 = 60;
const BLOCKS: u64 = 9;
/// Blocks used by the records and headers of segments, the last record included.
const USED: u32 = 3 * SEGMENT_BLOCKS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    /// The bytes are changed.
    Rot,
    /// Reads of the block fail.
    Unreadable,
}

/// A copy with one damaged block.
#[derive(Clone)]
struct Spoiled {
    leaf: Rc<Leaf>,
    block: Rc<Cell<Option<(u64, Harm)>>>,
}

impl Spoiled {
    fn new(rig: &Rig, copy: usize) -> Spoiled {
        Spoiled {
            leaf: Rc::new(rig.leaf(1 + copy)),
            block: Rc::default(),
        }
    }

    fn area(&self, copy: usize, trusted: bool) -> Option<CopyArea<Spoiled>> {
        Some(CopyArea {
            device: self.clone(),
            base: Lba(0),
            segments: 16,
            member: copy as u16,
            domain: format!("pcie{copy}").into(),
            trusted,
            holes: Vec::new(),
        })
    }
}

impl Layer for Spoiled {
    type Below = Rc<Leaf>;

    fn below(&self) -> &Rc<Leaf> {
        &self.leaf
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let (mut buf, read) = self.leaf.read(at, buf).await;
        let first = at.0 / 8;
        let blocks = first..first + (buf.len() / BLOCK_BYTES) as u64;
        match self.block.get() {
            Some((block, Harm::Unreadable)) if blocks.contains(&block) => {
                let error = IoError::new(IoErrorKind::Media, "an unreadable sector");
                (buf, Err(error))
            }
            Some((block, Harm::Rot)) if blocks.contains(&block) => {
                let from = (block - first) as usize * BLOCK_BYTES;
                buf[from + 7..from + 600].fill(0xa5);
                (buf, read)
            }
            _ => (buf, read),
        }
    }
}

fn looked(incarnation: u32, scrutiny: Scrutiny) -> Config {
    Config {
        scrutiny,
        dirty_max: 64 << 20,
        ..config(incarnation)
    }
}

/// Acknowledged writes, each forced or all flushed at last, and an origin that takes none of them.
async fn written(rig: &Rig, copies: &[Spoiled; 2], fua: Fua) {
    written_by(1, 1, rig, copies, fua).await;
}

/// As [`written`], by an `incarnation`, of bytes from `first` on.
async fn written_by(incarnation: u32, first: u8, rig: &Rig, copies: &[Spoiled; 2], fua: Fua) {
    rig.control.kill(rig.disks[0]);
    writing_by(incarnation, first, rig, copies, fua)
        .await
        .close()
        .await;
    rig.control.revive(rig.disks[0]);
}

/// As [`written_by`], of a log that is still open. The origin is killed before.
async fn writing_by(
    incarnation: u32,
    first: u8,
    rig: &Rig,
    copies: &[Spoiled; 2],
    fua: Fua,
) -> WriteBack<Spoiled> {
    let areas = [copies[0].area(0, true), copies[1].area(1, true)];
    let config = looked(incarnation, Scrutiny::Usual);
    let log = rig.open_before(rig.leaf(0), config, areas, None);
    let log = log.await.unwrap();
    log.begin().await.unwrap();
    for nth in 0..WRITES {
        let data = rig.data(BLOCKS as usize, first + nth as u8).await;
        log.write(Lba(nth * BLOCKS * 8), data, fua).await.unwrap();
    }
    log.flush().await.unwrap();
    rig.local.env().timer.sleep(Nanos::from_millis(50)).await;
    log
}

#[derive(Default, Debug)]
struct Seen {
    refused: u32,
    right: u32,
    fails: u32,
    older: u32,
}

impl Seen {
    async fn attempt(&mut self, rig: &Rig, attempt: IoResult<WriteBack<Spoiled>>) {
        let log = match attempt {
            Ok(log) => log,
            Err(error) => {
                assert_eq!(error.kind(), IoErrorKind::Corrupt, "{error}");
                self.refused += 1;
                return;
            }
        };
        for nth in 0..WRITES {
            let buf = rig
                .local
                .env()
                .pool
                .get(BLOCKS as usize * BLOCK_BYTES)
                .await;
            match log.read(Lba(nth * BLOCKS * 8), buf).await {
                (_, Err(_)) => self.fails += 1,
                (buf, Ok(())) if buf.iter().all(|byte| *byte == 1 + nth as u8) => self.right += 1,
                _ => self.older += 1,
            }
        }
    }
}

/// The other copy is away, and would count no more.
#[test]
fn a_damaged_block_of_the_only_copy_is_never_taken_for_the_end() {
    [Fua::Yes, Fua::No].into_iter().for_each(sole_copy);
}

fn sole_copy(fua: Fua) {
    run(move |rig| async move {
        let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
        written(&rig, &copies, fua).await;
        for harm in [Harm::Rot, Harm::Unreadable] {
            let mut seen = Seen::default();
            // All of the first and the last records, and headers; else each fifth.
            let all = 0..u64::from(USED);
            let some = all.filter(|block| block % 256 < 2 || *block > 580 || block % 5 == 0);
            for block in some {
                copies[0].block.set(Some((block, harm)));
                let areas = [copies[0].area(0, true), None];
                let config = looked(2, Scrutiny::Alone);
                let log = rig.attempt(rig.leaf(0), config, areas, None).await;
                seen.attempt(&rig, log).await;
                assert_eq!(seen.older, 0, "{harm:?} of block {block}: {seen:?}");
            }
            assert!(seen.refused > 100 && seen.right > 0, "{seen:?}");
        }
    });
}

/// With both copies present nothing is lost.
#[test]
fn what_one_copy_has_whole_is_right_whatever_becomes_of_the_other() {
    run(|rig| async move {
        let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
        written(&rig, &copies, Fua::No).await;
        for harm in [Harm::Rot, Harm::Unreadable] {
            for block in (0..u64::from(USED)).step_by(3) {
                copies[0].block.set(Some((block, harm)));
                let areas = [copies[0].area(0, true), copies[1].area(1, true)];
                let config = looked(2, Scrutiny::Usual);
                let log = rig.attempt(rig.leaf(0), config, areas, None).await;
                let mut seen = Seen::default();
                seen.attempt(&rig, log).await;
                assert_eq!(
                    u64::from(seen.right),
                    WRITES,
                    "{harm:?} of {block}: {seen:?}"
                );
            }
        }
    });
}

/// The second copy was completed, and has everything without the first.
async fn completed_alone(rig: &Rig, copies: &[Spoiled; 2], harm: &str) {
    let areas = [None, copies[1].area(1, true)];
    let config = looked(3, Scrutiny::Alone);
    let log = rig.attempt(rig.leaf(0), config, areas, None).await;
    let mut seen = Seen::default();
    seen.attempt(rig, log).await;
    assert_eq!(u64::from(seen.right), WRITES, "{harm}: {seen:?}");
}

/// A record that the trusted copy has lost is taken from a copy that was overtaken later on.
#[test]
fn a_damaged_record_is_taken_from_a_copy_that_was_overtaken_after_it() {
    for block in (0..u64::from(USED)).step_by(97).chain([256, 257, 512]) {
        for harm in [Harm::Rot, Harm::Unreadable] {
            run(move |rig| async move {
                let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
                written(&rig, &copies, Fua::Yes).await;
                copies[0].block.set(Some((block, harm)));
                let areas = [copies[0].area(0, true), copies[1].area(1, false)];
                let config = looked(2, Scrutiny::Usual);
                let log = rig.attempt(rig.leaf(0), config, areas, None).await;
                let log = log.unwrap();
                log.establish().await.unwrap();
                let harm = format!("{harm:?} of block {block}");
                assert_eq!(log.online(), [true; 2], "{harm}");
                completed_alone(&rig, &copies, &harm).await;
            });
        }
    }
}

/// Blocks of the records before the last one, in a segment without a summary.
const UNSUMMARIZED: std::ops::Range<u64> = 513..603;
/// The place after the last record, where a note says that all was flushed.
const AFTER: Lba = Lba(613 * 8);

/// No record says that these were durable: only the overtaken copy shows that the log goes on.
#[test]
fn an_unflushed_record_is_taken_from_a_copy_that_was_overtaken_after_it() {
    for block in UNSUMMARIZED.step_by(7) {
        for harm in [Harm::Rot, Harm::Unreadable] {
            run(move |rig| async move {
                let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
                written(&rig, &copies, Fua::No).await;
                for disk in [1, 2] {
                    let none = rig.data(8, 0).await;
                    rig.leaf(disk).write(AFTER, none, Fua::Yes).await.unwrap();
                }
                copies[0].block.set(Some((block, harm)));
                let areas = [copies[0].area(0, true), copies[1].area(1, false)];
                let config = looked(2, Scrutiny::Usual);
                let log = rig.open_before(rig.leaf(0), config, areas, None);
                let log = log.await.unwrap();
                let harm = format!("{harm:?} of block {block}");
                assert_eq!(log.online(), [true; 2], "{harm}");
                completed_alone(&rig, &copies, &harm).await;
            });
        }
    }
}

/// The header of a torn record says that the records before were on both copies.
#[test]
fn a_torn_record_shows_that_the_record_before_is_damaged() {
    run(|rig| async move {
        let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
        written(&rig, &copies, Fua::No).await;
        let torn = Lba(605 * 8);
        let (old, none) = (rig.data(1, 200).await, rig.data(8, 0).await);
        rig.leaf(1).write(torn, old, Fua::Yes).await.unwrap();
        rig.leaf(1).write(AFTER, none, Fua::Yes).await.unwrap();
        let attempt = async |damage| {
            copies[0].block.set(damage);
            let areas = [copies[0].area(0, true), None];
            let config = looked(2, Scrutiny::Alone);
            let log = rig.attempt(rig.leaf(0), config, areas, None).await;
            let mut seen = Seen::default();
            seen.attempt(&rig, log).await;
            seen
        };
        let seen = attempt(None).await;
        assert_eq!((seen.right, seen.older), (WRITES as u32 - 1, 1), "{seen:?}");
        for block in UNSUMMARIZED {
            let seen = attempt(Some((block, Harm::Rot))).await;
            assert_eq!(seen.refused, 1, "block {block}: {seen:?}");
        }
    });
}

/// All bytes of the second copy, in pieces.
async fn saved(rig: &Rig) -> Vec<SharedBuf> {
    let mut pieces = Vec::new();
    for piece in 0..16 {
        let buf = rig.local.env().pool.get(1 << 20).await;
        let (buf, read) = rig.leaf(2).read(Lba(piece << 11), buf).await;
        read.unwrap();
        pieces.push(buf.share());
    }
    pieces
}

/// Writes records that the next incarnation makes void, with its numbers and in its places.
async fn void_records(rig: &Rig, copies: &[Spoiled; 2]) -> Vec<SharedBuf> {
    written_by(1, 101, rig, copies, Fua::Yes).await;
    let void = saved(rig).await;
    for disk in [1, 2] {
        let all = Extent::new(Lba(0), Sectors(16 << 11));
        rig.leaf(disk).zero(all).await.unwrap();
    }
    void
}

/// Leaves void records alone on the second copy, and damages the first.
async fn make_void(rig: &Rig, copies: &[Spoiled; 2], void: Vec<SharedBuf>, damage: (u64, Harm)) {
    for (piece, at) in void.into_iter().zip((0..).step_by(1 << 11)) {
        rig.leaf(2).write(Lba(at), piece, Fua::Yes).await.unwrap();
    }
    copies[0].block.set(Some(damage));
}

/// Cleans as much as can be, and finds no byte of a void record on the origin.
async fn cleans_nothing_void(rig: &Rig, log: &WriteBack<Spoiled>, damage: (u64, Harm)) {
    let timer = rig.local.env().timer;
    let _ = timer.timeout(Nanos::from_secs(60), log.drain()).await;
    for nth in 0..WRITES {
        let buf = rig.local.env().pool.get(BLOCK_BYTES).await;
        let (buf, read) = rig.leaf(0).read(Lba(nth * BLOCKS * 8), buf).await;
        read.unwrap();
        let held = [0, 1 + nth as u8].contains(&buf[0]);
        assert!(held, "{damage:?}: {} of {nth}", buf[0]);
    }
}

/// Headers of records, and data.
fn damages() -> impl Iterator<Item = (u64, Harm)> {
    let harms = [Harm::Rot, Harm::Unreadable];
    [2, 5, 12]
        .into_iter()
        .flat_map(move |block| harms.map(|harm| (block, harm)))
}

/// A copy that was overtaken may have a void record with the number, and in the place, of the
/// damaged one.
#[test]
fn a_damaged_record_is_never_taken_for_a_void_one_of_its_number() {
    for damage in damages() {
        run(move |rig| async move {
            let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
            let void = void_records(&rig, &copies).await;
            written_by(2, 1, &rig, &copies, Fua::Yes).await;
            make_void(&rig, &copies, void, damage).await;
            let areas = [copies[0].area(0, true), copies[1].area(1, false)];
            let config = looked(3, Scrutiny::Usual);
            let log = rig.open_before(rig.leaf(0), config, areas, None);
            let log = log.await.unwrap();
            log.begin().await.unwrap();
            cleans_nothing_void(&rig, &log, damage).await;
        });
    }
}

/// So may a copy whose writes have failed in service.
#[test]
fn the_cleaner_never_takes_a_void_record_for_a_damaged_one() {
    for damage in damages() {
        run(move |rig| async move {
            let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
            let void = void_records(&rig, &copies).await;
            rig.control.kill(rig.disks[0]);
            let log = writing_by(2, 1, &rig, &copies, Fua::Yes).await;
            make_void(&rig, &copies, void, damage).await;
            rig.control.revive(rig.disks[0]);
            cleans_nothing_void(&rig, &log, damage).await;
        });
    }
}

/// A copy that is not trusted is completed from the other. Unless the other gives everything, the
/// copy does not count.
#[test]
fn a_copy_that_is_made_whole_from_a_damaged_one_hides_nothing() {
    for block in (0..u64::from(USED)).step_by(97).chain([256, 257, 512]) {
        for harm in [Harm::Rot, Harm::Unreadable] {
            run(move |rig| async move {
                let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
                written(&rig, &copies, Fua::Yes).await;
                let stale = rig.leaf(2);
                stale
                    .zero(Extent::new(Lba(0), Sectors(16 << 11)))
                    .await
                    .unwrap();
                copies[0].block.set(Some((block, harm)));
                let areas = [copies[0].area(0, true), copies[1].area(1, false)];
                let config = looked(2, Scrutiny::Usual);
                let log = rig.attempt(rig.leaf(0), config, areas, None).await;
                let counts = match &log {
                    Ok(log) => log.establish().await.is_ok() && log.online()[1],
                    Err(_) => false,
                };
                let mut seen = Seen::default();
                seen.attempt(&rig, log).await;
                assert_eq!(seen.older, 0, "{harm:?} of block {block}: {seen:?}");
                if counts {
                    completed_alone(&rig, &copies, &format!("{harm:?} of block {block}")).await;
                }
            });
        }
    }
}

/// The operator gets all data but the damaged blocks, and their numbers.
#[test]
fn whoever_asks_gets_all_but_what_is_damaged() {
    for (block, fua) in [
        (100, Fua::No),
        (256, Fua::Yes),
        (300, Fua::Yes),
        (590, Fua::Yes),
    ] {
        run(move |rig| async move {
            let copies = [Spoiled::new(&rig, 0), Spoiled::new(&rig, 1)];
            written(&rig, &copies, fua).await;
            copies[0].block.set(Some((block, Harm::Unreadable)));
            let areas = [copies[0].area(0, true), None];
            let config = Config {
                asked: true,
                ..looked(2, Scrutiny::Alone)
            };
            let log = rig.attempt(rig.leaf(0), config, areas, None).await;
            let log = log.unwrap();
            let is_header = block % u64::from(SEGMENT_BLOCKS) == 0;
            assert_eq!(log.missing().is_none(), is_header, "{:?}", log.missing());
            log.write_back_all().await.unwrap();
            let mut there = 0;
            for nth in 0..WRITES {
                let buf = rig.local.env().pool.get(BLOCK_BYTES).await;
                let (buf, read) = rig.leaf(0).read(Lba(nth * BLOCKS * 8), buf).await;
                read.unwrap();
                there += u64::from(buf.iter().all(|byte| *byte == 1 + nth as u8));
            }
            assert!(there + 1 >= WRITES, "{there} of {WRITES}");
        });
    }
}
