//! The journal: its device, its replay, and its loss.

use crate::rig::{Leaf, Rig, run};
use block::{BoxDevice, Device, Fua, IoErrorKind, IoResult, Lba, Nanos};
use layout::{JOURNAL_HALF_MIN, JournalCommit, JournalSuperblock, Uuid};
use writelog::{
    LedgerWitness, LogCandidate, LogLedger, LogStanding, Members as _, OpenedLog, WantedLog,
    WriteBack, WriteJournal,
};

const JOURNAL: usize = 3;
pub const WITNESS: usize = 4;

fn superblock(volume: &str, log: Uuid) -> JournalSuperblock {
    JournalSuperblock {
        journal: Uuid(9),
        log,
        sequence: 1,
        retired: 0,
        half: JOURNAL_HALF_MIN,
        sectors: 64 << 11,
        volume: volume.into(),
        identity: Vec::new(),
    }
}

async fn format(rig: &Rig, superblock: JournalSuperblock) -> WriteJournal<Leaf> {
    let memory = rig.local.env().pool;
    let journal = WriteJournal::format(rig.leaf(JOURNAL), memory, superblock);
    journal.await.unwrap()
}

async fn reopened(rig: &Rig) -> WriteJournal<Leaf> {
    let journal = WriteJournal::open(rig.leaf(JOURNAL), rig.local.env().pool).await;
    journal.unwrap().unwrap()
}

pub fn candidate(rig: &Rig, disk: usize, name: &str) -> LogCandidate<BoxDevice> {
    LogCandidate {
        holes: Vec::new(),
        name: name.into(),
        domain: name.into(),
        device: Ok(BoxDevice::new(rig.leaf(disk))),
    }
}

/// Opens the log of `db`, with the `journal` on that disk.
async fn open(
    rig: &Rig,
    journal: Option<LogCandidate<BoxDevice>>,
) -> IoResult<OpenedLog<BoxDevice>> {
    let wanted = WantedLog {
        volume: "db".into(),
        sectors: 64 << 11,
        identity: b"archive".to_vec(),
        host: "here".into(),
        uuid: Uuid(77 + u128::from(rig.now().0)),
        now: Nanos(1),
        is_forced: false,
    };
    let copies = [candidate(rig, 1, "ssd0"), candidate(rig, 2, "ssd1")];
    let witness = LedgerWitness::Kept(BoxDevice::new(rig.leaf(WITNESS)));
    let opened = LogLedger::open(wanted, rig.local.env(), witness, copies, journal).await?;
    if let Some(journal) = &opened.journal {
        journal.establish().await?;
    }
    let established = opened.ledger.establish([true; 2]).await;
    established.expect("it can be written");
    Ok(opened)
}

async fn put(rig: &Rig, disk: usize, block: u64, bytes: impl FnOnce(&mut [u8])) {
    let mut buf = rig.local.env().pool.get(4096).await;
    buf.fill(0);
    bytes(&mut buf);
    let disk = rig.leaf(disk);
    let written = disk.write(Lba(block * 8), buf.share(), Fua::Yes);
    written.await.unwrap();
}

pub async fn all(rig: &Rig, disk: usize) -> Vec<u8> {
    let buf = rig.local.env().pool.get(1 << 20).await;
    let (buf, read) = rig.leaf(disk).read(Lba(0), buf).await;
    read.unwrap();
    buf.to_vec()
}

async fn refused(rig: &Rig, journal: Option<LogCandidate<BoxDevice>>, expected: &str) {
    let mut before = Vec::new();
    for disk in 1..=WITNESS {
        before.push(all(rig, disk).await);
    }
    let error = open(rig, journal).await.err().expect("it is refused");
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    assert!(error.to_string().contains(expected), "{error}");
    for (disk, before) in (1..).zip(before) {
        assert!(all(rig, disk).await == before, "disk {disk} was written");
    }
}

#[test]
fn what_cannot_be_a_journal_is_left_as_it_is() {
    run(|rig| async move {
        let journal = || Some(candidate(&rig, JOURNAL, "hdd9"));
        let small = Some(candidate(&rig, WITNESS, "tiny"));
        refused(&rig, small, "tiny is too small: a journal needs 9 MiB").await;
        let away = LogCandidate {
            holes: Vec::new(),
            device: Err("it is not there".into()),
            ..candidate(&rig, JOURNAL, "hdd9")
        };
        let what = "the log of db needs its journal at first: hdd9: it is not there";
        refused(&rig, Some(away), what).await;
        put(&rig, JOURNAL, 0, |block| {
            block[..4].copy_from_slice(b"XFSB")
        })
        .await;
        refused(
            &rig,
            journal(),
            "hdd9 holds an XFS file system: it cannot have",
        )
        .await;
        format(&rig, superblock("mail", Uuid(5))).await;
        refused(&rig, journal(), "hdd9 has the journal of volume mail").await;
        // A journal without a pending group is reinitialised; one with a pending group is not.
        format(&rig, superblock("db", Uuid(5))).await;
        let commit = JournalCommit {
            group: 1,
            incarnation: 1,
            to: 7,
            written_at: 0,
            records: 1,
            blocks: 2,
        };
        let half = superblock("db", Uuid(5)).half_at(1);
        put(&rig, JOURNAL, half, |block| commit.encode(Uuid(9), block)).await;
        refused(
            &rig,
            journal(),
            "of a log that is not here; `hotset pool recover db --discard`",
        )
        .await;
        reopened(&rig).await.retire().await.unwrap();
        let opened = open(&rig, journal()).await.unwrap();
        assert_eq!(opened.journal.unwrap().superblock().log, opened.log);
    });
}

#[test]
fn a_log_with_dirty_data_keeps_its_journal_and_one_that_is_away_is_given_up_durably() {
    run(|rig| async move {
        let journal = || Some(candidate(&rig, JOURNAL, "hdd9"));
        let opened = open(&rig, journal()).await.unwrap();
        opened.ledger.record(standing(true)).await.unwrap();
        let what = "db is not served: hdd9 is its journal";
        refused(&rig, None, what).await;
        opened.ledger.record(standing(false)).await.unwrap();
        let first = opened.journal.unwrap().superblock().journal;
        let again = open(&rig, journal()).await.unwrap();
        assert_eq!(again.journal.unwrap().superblock().journal, first);
        let away = LogCandidate {
            holes: Vec::new(),
            device: Err("it is not there".into()),
            ..candidate(&rig, JOURNAL, "hdd9")
        };
        again.ledger.record(standing(true)).await.unwrap();
        let without = open(&rig, Some(away)).await.unwrap();
        assert!(without.journal.is_none());
        assert_eq!(without.absent, [("hdd9".into(), "it is not there".into())]);
        // The groups are void once the journal is back: the origin has been written without them.
        let journal = journal_of(open(&rig, journal()).await.unwrap());
        assert_ne!(journal, first);
        opened.ledger.record(standing(false)).await.unwrap();
    });
}

pub fn standing(may_be_dirty: bool) -> LogStanding {
    LogStanding {
        copies: [true; 2],
        may_be_dirty,
        forsaken: false,
        watched: 0,
    }
}

fn journal_of(opened: OpenedLog<BoxDevice>) -> Uuid {
    let journal = opened.journal.expect("it takes part");
    journal.superblock().journal
}

/// Writes that go to the origin in four groups. The last, of block 300, is pending.
async fn groups(rig: &Rig) {
    let journal = format(rig, superblock("db", Uuid(1))).await;
    let log = rig.open_by(1, rig.both(), Some(journal)).await.unwrap();
    for byte in [1, 2] {
        for block in [0, 300] {
            let data = rig.data(200, byte).await;
            log.write(Lba(block * 8), data, Fua::No).await.unwrap();
        }
        log.drain().await.unwrap();
    }
    log.close().await;
}

#[test]
fn a_group_is_replayed_as_a_whole_or_not_at_all() {
    run(|rig| async move {
        groups(&rig).await;
        let origin = rig.leaf(0);
        let data = rig.data(200, 7).await;
        origin.write(Lba(300 * 8), data, Fua::No).await.unwrap();
        let replayed = reopened(&rig).await.replay(&origin).await.unwrap();
        let group = replayed.expect("one is pending");
        assert_eq!((group.group, group.records), (4, 2));
        for block in [0, 300] {
            rig.expect(&origin, block, 200, 2).await;
        }
        // The last block of the last record, in the first half.
        let half = superblock("db", Uuid(1)).half_at(0);
        let last = half + 2 + group.blocks - 1;
        put(&rig, JOURNAL, last, |block| block.fill(3)).await;
        let data = rig.data(200, 7).await;
        origin.write(Lba(300 * 8), data, Fua::No).await.unwrap();
        let error = reopened(&rig).await.replay(&origin).await.err().unwrap();
        assert_eq!(error.kind(), IoErrorKind::Corrupt);
        rig.expect(&origin, 300, 200, 7).await;
        reopened(&rig).await.retire().await.unwrap();
        let replayed = reopened(&rig).await.replay(&origin).await.unwrap();
        assert_eq!(replayed, None);
    });
}

#[test]
fn a_journal_of_another_log_or_of_what_the_log_does_not_have_is_refused() {
    run(|rig| async move {
        let journal = format(&rig, superblock("db", Uuid(2))).await;
        let refused = rig.open_by(1, rig.both(), Some(journal)).await.err();
        assert_eq!(refused.unwrap().kind(), IoErrorKind::Invalid);
        groups(&rig).await;
        for disk in [1, 2] {
            for segment in 0..8 {
                put(&rig, disk, segment * 256, |_| {}).await;
            }
        }
        let journal = reopened(&rig).await;
        let refused = rig.open_by(2, rig.both(), Some(journal)).await.err();
        let what = refused.unwrap();
        assert_eq!(what.kind(), IoErrorKind::Corrupt);
        // The caller, who knows the devices, adds the remedy.
        assert!(what.to_string().ends_with("which was there"), "{what}");
    });
}

#[test]
fn a_group_that_a_former_incarnation_committed_is_carried_out_as_it_is() {
    run(|rig| async move {
        let journal = format(&rig, superblock("db", Uuid(1))).await;
        let areas = || rig.areas(16, |leaf| leaf);
        let log = rig.open_by(1, areas(), Some(journal)).await.unwrap();
        let write = async |log: &WriteBack<Leaf>, block: u64, byte: u8| {
            let data = rig.data(200, byte).await;
            log.write(Lba(block * 8), data, Fua::No).await.unwrap();
        };
        // At first a group has one write. Once the origin's rate is known, a group has more.
        for block in [0, 300] {
            write(&log, block, 1).await;
        }
        log.drain().await.unwrap();
        rig.control.kill(rig.disks[0]);
        for block in [0, 300] {
            write(&log, block, 2).await;
        }
        rig.local.env().timer.sleep(Nanos::from_secs(5)).await;
        log.close().await;
        let journal = reopened(&rig).await;
        let log = rig.open_by(2, areas(), Some(journal)).await.unwrap();
        rig.local.env().timer.sleep(Nanos::from_secs(5)).await;
        log.close().await;
        rig.control.revive(rig.disks[0]);
        let replayed = reopened(&rig).await.replay(&rig.leaf(0)).await.unwrap();
        assert_eq!(replayed.expect("one is pending").group, 3);
        for block in [0, 300] {
            rig.expect(&rig.leaf(0), block, 200, 2).await;
        }
    });
}

#[test]
fn the_origin_gets_nothing_directly_before_groups_are_void() {
    run(|rig| async move {
        let journal = format(&rig, superblock("db", Uuid(1))).await;
        let log = rig.open_by(1, rig.both(), Some(journal)).await.unwrap();
        let (env, timer) = (rig.local.env(), rig.local.env().timer);
        rig.control.kill(rig.disks[2]);
        let (data, first) = (rig.data(1, 1).await, log.clone());
        env.spawn
            .spawn(async move { first.write(Lba(0), data, Fua::No).await.unwrap() });
        // The group is committed, and in flight to the origin.
        timer.sleep(Nanos::from_millis(3)).await;
        rig.control.hang(rig.disks[JOURNAL]);
        timer.sleep(Nanos::from_secs(1)).await;
        rig.expect(&rig.leaf(0), 0, 1, 1).await;
        assert_eq!(log.status().dirty_bytes, 0);
        let write = log.write(Lba(0), rig.data(1, 2).await, Fua::No);
        let answered = timer.timeout(Nanos::from_secs(1), write).await;
        assert!(answered.is_none(), "a replay would undo it");
        rig.expect(&rig.leaf(0), 0, 1, 1).await;
        rig.control.release(rig.disks[JOURNAL]);
        log.write(Lba(0), rig.data(1, 3).await, Fua::No)
            .await
            .unwrap();
        rig.expect(&rig.leaf(0), 0, 1, 3).await;
        log.close().await;
    });
}

#[test]
fn without_its_journal_a_log_goes_on_in_order_once_that_is_durable() {
    run(|rig| async move {
        let journal = format(&rig, superblock("db", Uuid(1))).await;
        let log = rig.open_by(1, rig.both(), Some(journal)).await.unwrap();
        rig.control.kill(rig.disks[JOURNAL]);
        rig.reported.stuck.set(true);
        log.write(Lba(0), rig.data(2, 1).await, Fua::No)
            .await
            .unwrap();
        rig.local.env().timer.sleep(Nanos::from_secs(20)).await;
        rig.expect(&rig.leaf(0), 0, 2, 0).await;
        assert!(!log.status().forsaken && !rig.reported.forsaken.get());
        rig.reported.stuck.set(false);
        log.drain().await.unwrap();
        assert!(log.status().forsaken && rig.reported.forsaken.get());
        rig.expect(&rig.leaf(0), 0, 2, 1).await;
        log.close().await;
    });
}
