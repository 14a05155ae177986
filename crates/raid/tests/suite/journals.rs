//! Records of RAID 5 journals that rot or cannot be read: an unreadable record is not an absent
//! one.

use crate::common::{Bench, drive, options, refused, run, spoil, strike};
use block::{BoxDevice, Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use futures_util::future::join;
use raid::{Array, ArrayStart, Level, assemble};
use sim::{Domain, FaultEffect, FaultRule, OpFilter, SimHost, When};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Sectors of a record, on three members with chunks of 64 sectors.
const SLOT: u64 = 8 + 3 * 64;
const SLOTS: u64 = 16;
const REDO: u8 = 1;
const RETIRE: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    slot: u64,
    number: u64,
    kind: u8,
}

impl Found {
    /// Returns the first sector of the record.
    fn at(&self) -> u64 {
        32 + self.slot * SLOT
    }
}

async fn sectors(device: &BoxDevice, at: u64, bytes: usize, bench: &Bench) -> Option<block::Buf> {
    let buf = bench.env.pool.get(bytes).await;
    let (buf, result) = device.read(Lba(at), buf).await;
    result.ok().map(|()| buf)
}

/// Reads the records of a disk, the newest last.
async fn records(bench: &Bench, disk: usize) -> Vec<Found> {
    let device = bench.candidate(disk).device;
    let mut all = Vec::new();
    for slot in 0..SLOTS {
        let buf = sectors(&device, 32 + slot * SLOT, 4096, bench).await;
        if let Some(buf) = buf.filter(|buf| &buf[..8] == b"hotsetJR") {
            let number = u64::from_le_bytes(buf[32..40].try_into().unwrap());
            let kind = buf[56];
            all.push(Found { slot, number, kind });
        }
    }
    all.sort_by_key(|found| found.number);
    all
}

/// Damage of a record.
#[derive(Clone, Copy, Debug)]
enum Rot {
    /// One bit of these sectors is flipped.
    Bits(&'static [u64]),
    /// These sectors cannot be read.
    Unreadable(&'static [u64]),
}

/// The header, its copy, both, the bytes.
const ROTS: [Rot; 8] = [
    Rot::Bits(&[0]),
    Rot::Bits(&[8]),
    Rot::Bits(&[0, 8]),
    Rot::Bits(&[17]),
    Rot::Unreadable(&[0]),
    Rot::Unreadable(&[8]),
    Rot::Unreadable(&[0, 8]),
    Rot::Unreadable(&[17]),
];

async fn flip(bench: &Bench, disk: usize, at: u64) {
    let device = bench.candidate(disk).device;
    let mut buf = sectors(&device, at, 512, bench).await.unwrap();
    buf[100] ^= 1;
    device.write(Lba(at), buf.share(), Fua::Yes).await.unwrap();
}

/// Lets the record at `at` of `disk` rot, and restores the power.
fn befall(sim: &mut SimHost, disks: &[TargetId], disk: usize, at: u64, rot: Rot) {
    sim.world().control().power_on(Domain(0));
    match rot {
        Rot::Unreadable(sectors) => {
            let lost = |sector: &u64| (disks[disk], Extent::new(Lba(at + sector), Sectors(1)));
            spoil(sim, sectors.iter().map(lost).collect());
        }
        Rot::Bits(sectors) => drive(sim, disks, async move |bench| {
            bench.sleep(1).await;
            for sector in sectors {
                flip(&bench, disk, at + sector).await;
            }
        }),
    }
}

/// Writes to one place twice, flushing each, then cuts the power after `idle` milliseconds. Returns
/// the records of that stripe's journal.
fn written_twice(lost: Option<usize>, idle: u64) -> (SimHost, Vec<TargetId>, Vec<Found>) {
    let found = Rc::new(RefCell::new(Vec::new()));
    let all = found.clone();
    let (mut sim, disks) = run(1, 1, &[8; 3], async move |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        assert_eq!(array.shape().stripe(0).parity, 2);
        bench.write(&array, 0, 128, 7).await.unwrap();
        array.flush().await.unwrap();
        if let Some(lost) = lost {
            array.fail(lost).await.unwrap();
        }
        for byte in [1, 2] {
            bench.write(&array, 0, 8, byte).await.unwrap();
            array.flush().await.unwrap();
        }
        bench.sleep(idle).await;
        bench.cut_power().await;
    });
    sim.world().control().power_on(Domain(0));
    drive(&mut sim, &disks, async move |bench| {
        bench.sleep(1).await;
        *all.borrow_mut() = records(&bench, 2).await;
    });
    let found = found.take();
    (sim, disks, found)
}

#[test]
fn a_record_that_rots_brings_nothing_older_back() {
    for (idle, rot) in [0, 3_600_000]
        .into_iter()
        .flat_map(|idle| ROTS.map(|rot| (idle, rot)))
    {
        let (_, _, found) = written_twice(None, idle);
        for record in found {
            let (mut sim, disks, _) = written_twice(None, idle);
            befall(&mut sim, &disks, 2, record.at(), rot);
            // The second start shows the remains of the first one.
            for start in 0..2 {
                drive(&mut sim, &disks, async move |bench| {
                    bench.sleep(1).await;
                    let array = bench.assemble(&[0, 1, 2]).await.unwrap();
                    let what = format!("{rot:?} of {record:?}, idle {idle}, start {start}");
                    assert!(bench.holds(&array, 0, 8, 2).await, "{what}");
                    assert!(bench.holds(&array, 8, 120, 7).await, "{what}");
                    let report = array.scrub(false).await.unwrap();
                    assert_eq!(report.mismatches, 0, "{what}");
                    assert!(array.report().bad.is_empty(), "{what}");
                });
            }
        }
    }
}

/// One sector of a header, with the member of the other chunk missing.
#[test]
fn a_header_that_rots_is_found_by_its_copy_without_a_member() {
    for (lost, rot) in [0, 1]
        .into_iter()
        .flat_map(|lost| ROTS.map(|rot| (lost, rot)))
    {
        let one = matches!(rot, Rot::Bits([0 | 8]) | Rot::Unreadable([0 | 8]));
        if !one {
            continue;
        }
        let (_, _, found) = written_twice(Some(lost), 0);
        for record in found.into_iter().filter(|found| found.kind == REDO) {
            let (mut sim, disks, _) = written_twice(Some(lost), 0);
            befall(&mut sim, &disks, 2, record.at(), rot);
            drive(&mut sim, &disks, async move |bench| {
                bench.sleep(1).await;
                let left: Vec<_> = (0..3).filter(|disk| *disk != lost).collect();
                let array = bench.assemble(&left).await.unwrap();
                let what = format!("{rot:?} of {record:?} without {lost}");
                assert!(bench.holds(&array, 0, 8, 2).await, "{what}");
                assert!(bench.holds(&array, 8, 120, 7).await, "{what}");
            });
        }
    }
}

/// The record may announce a write to any stripe, and without all data parity cannot be computed.
#[test]
fn a_header_that_cannot_be_read_without_a_member_is_refused_until_confirmed() {
    let (_, _, all) = written_twice(Some(0), 0);
    for record in all {
        let (mut sim, disks, _) = written_twice(Some(0), 0);
        befall(&mut sim, &disks, 2, record.at(), Rot::Unreadable(&[0, 8]));
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let what = refused(bench.assemble(&[1, 2]).await);
            assert!(what.contains("journal of member 2"), "{what}");
            assert!(what.contains("start it degraded"), "{what}");
            let array = confirmed(&bench).await;
            let message = array.events().0;
            let of_journal = message
                .iter()
                .any(|e| e.what.contains("journal of member 2"));
            assert!(of_journal, "{message:?}");
            array.close().await.unwrap();
            drop(array);
            // The slot was written again.
            bench.assemble(&[1, 2]).await.unwrap();
        });
    }
}

/// A start tries such a read again.
#[test]
fn a_header_that_is_not_read_once_without_a_member_is_no_reason_to_refuse() {
    let (mut sim, disks, found) = written_twice(Some(0), 0);
    let newest = *found.last().unwrap();
    let rule = |at| FaultRule {
        disk: disks[2],
        ops: OpFilter::Reads,
        within: Some(Extent::new(Lba(at), Sectors(8))),
        when: When::Nth(1),
        effect: FaultEffect::Fail(IoErrorKind::Media),
    };
    strike(&mut sim, vec![rule(newest.at()), rule(newest.at() + 8)]);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[1, 2]).await.unwrap();
        assert!(bench.holds(&array, 0, 8, 2).await);
    });
}

/// Of two records that no flush has covered, the later one says that the other was durable: the
/// loss of power has not torn that.
#[test]
fn a_record_that_was_durable_and_is_gone_does_not_count_as_torn() {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        array.fail(0).await.unwrap();
        // Three stripes further parity is on the same member.
        for at in [0, 3 * 128] {
            bench.write(&array, at, 8, 1).await.unwrap();
        }
        bench.cut_power().await;
    });
    sim.world().control().power_on(Domain(0));
    let first = Found {
        slot: 1,
        number: 1,
        kind: REDO,
    };
    befall(&mut sim, &disks, 2, first.at(), Rot::Bits(&[0, 8]));
    drive(&mut sim, &disks, async move |bench| {
        bench.sleep(1).await;
        let what = refused(bench.assemble(&[1, 2]).await);
        assert!(what.contains("journal of member 2"), "{what}");
        confirmed(&bench).await;
    });
}

/// Starts the array without its first member, although its journal cannot be known.
async fn confirmed(bench: &Bench) -> Array {
    let start = ArrayStart::Degraded;
    let (name, members) = (Some("array"), bench.candidates(&[1, 2]));
    let array = assemble(&bench.env, name, bench.uuid(), members, start, options()).await;
    array.unwrap()
}

/// The record's stripe is known, its bytes are not.
#[test]
fn bytes_of_a_record_that_cannot_be_read_without_a_member_are_reported_lost() {
    let (mut sim, disks, found) = written_twice(Some(0), 0);
    let newest = *found.last().unwrap();
    befall(&mut sim, &disks, 2, newest.at(), Rot::Unreadable(&[17]));
    drive(&mut sim, &disks, async move |bench| {
        bench.sleep(1).await;
        let array = bench.assemble(&[1, 2]).await.unwrap();
        let lost = Extent::new(Lba(0), Sectors(8));
        assert_eq!(array.report().bad, [lost]);
        assert!(bench.read(&array, 0, 8).await.is_err());
        assert!(bench.holds(&array, 8, 120, 7).await);
        bench.write(&array, 0, 8, 3).await.unwrap();
        assert!(bench.holds(&array, 0, 8, 3).await);
    });
}

#[test]
fn an_idle_array_announces_nothing() {
    for lost in [None, Some(0)] {
        let (_, _, found) = written_twice(lost, 5000);
        assert_eq!(
            found.last().unwrap().kind,
            RETIRE,
            "without {lost:?}: {found:?}"
        );
        // Not every flush is followed by a record of its own.
        let retired = found.iter().filter(|record| record.kind == RETIRE).count();
        assert!(retired <= 2, "{found:?}");
    }
}

/// Power goes amid a write of a part, and at the next start a read of its record fails, once or for
/// good. No member is missing.
#[test]
fn a_record_that_is_not_read_leaves_data_and_parity_that_fit() {
    let mut tries = 0;
    let cases = (0..40).flat_map(|seed| [(seed, When::Nth(1)), (seed, When::Always)]);
    for (seed, when) in cases {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 128, 1).await.unwrap();
            bench.write(&array, 64, 64, 7).await.unwrap();
            array.close().await.unwrap();
        });
        let control = sim.world().control();
        let cut_after = Nanos::from_micros(150 + seed * 20);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            bench.write(&array, 30, 8, 1).await.unwrap();
            array.flush().await.unwrap();
            array.close().await.unwrap();
            drop(array);
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            let cut = async {
                bench.env.timer.sleep(cut_after).await;
                bench.cut_power().await;
            };
            let _ = join(bench.write(&array, 3, 20, 9), cut).await;
        });
        control.power_on(Domain(0));
        let newest = Rc::new(Cell::new(None));
        let set = newest.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            set.set(records(&bench, 2).await.last().copied());
        });
        let Some(newest) = newest.get().filter(|found| found.kind == REDO) else {
            continue;
        };
        tries += 1;
        let rule = FaultRule {
            disk: disks[2],
            ops: OpFilter::Reads,
            within: Some(Extent::new(Lba(newest.at()), Sectors(32))),
            when,
            effect: FaultEffect::Fail(IoErrorKind::Media),
        };
        strike(&mut sim, vec![rule]);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "seed {seed}, {when:?}");
            // The disk of the other column, which was never written.
            let other = array.shape().stripe(0).data(1);
            array.fail(other).await.unwrap();
            let kept = bench.holds(&array, 64, 64, 7).await;
            assert!(kept, "seed {seed}, {when:?}");
        });
    }
    assert!(tries > 20, "only {tries} cuts left a record");
}

/// A stripe was written whole, and of two members a sector of it cannot be read: a data member, and
/// the parity member, from which that data would be computed.
#[test]
fn a_chunk_is_not_computed_without_the_parity_of_its_stripe() {
    for column in 0..2 {
        let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let mut buf = bench.env.pool.get(128 * 512).await;
            for (sector, bytes) in (1..).zip(buf.chunks_mut(512)) {
                bytes.fill(sector);
            }
            array.write(Lba(0), buf.share(), Fua::Yes).await.unwrap();
            bench.cut_power().await;
        });
        sim.world().control().power_on(Domain(0));
        let data = Rc::new(Cell::new(0));
        let data_at = data.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let examined = raid::examine(&bench.env, &bench.candidate(0).device).await;
            data_at.set(examined.unwrap().unwrap().data_at.0);
        });
        let sector = |disk: usize| (disks[disk], Extent::new(Lba(data.get() + 5), Sectors(1)));
        // Parity of the first stripe is on the last disk, its data on those before it.
        spoil(&mut sim, vec![sector(column), sector(2)]);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            let mut lost = 0;
            for at in 0..128 {
                match bench.read(&array, at, 1).await {
                    Ok(buf) => {
                        let kept = buf.iter().all(|byte| *byte == at as u8 + 1);
                        assert!(kept, "sector {at} holds {}", buf[0]);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), IoErrorKind::Media);
                        assert_eq!(at / 64, column as u64, "sector {at} was whole");
                        lost += 1;
                    }
                }
            }
            assert!(lost > 0, "the sector that no member holds was not lost");
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        });
    }
}

/// Rewrites a record as versions before wrote it: one header, without the number of the first
/// record that was not durable.
async fn make_old(bench: &Bench, disk: usize, record: Found) {
    let device = bench.candidate(disk).device;
    let bytes = SLOT as usize * 512;
    let mut buf = sectors(&device, record.at(), bytes, bench).await.unwrap();
    buf.copy_within(8192.., 4096);
    buf[58] = 0;
    buf[64..72].fill(0);
    buf[8..12].fill(0);
    let sum = crc32c::crc32c(&buf[..4096]);
    buf[8..12].copy_from_slice(&sum.to_le_bytes());
    let written = device.write(Lba(record.at()), buf.share(), Fua::Yes).await;
    written.unwrap();
}

/// Power goes before the announced write.
#[test]
fn a_record_of_the_version_before_is_done_again() {
    let mut done = 0;
    for (cut, lost) in (0..24).flat_map(|cut| [(cut, None), (cut, Some(0))]) {
        let (mut sim, disks) = run(cut, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 128, 7).await.unwrap();
            array.flush().await.unwrap();
            let cut = async {
                let timer = &bench.env.timer;
                timer.sleep(Nanos::from_micros(150 + cut * 15)).await;
                bench.cut_power().await;
            };
            let _ = join(bench.write(&array, 0, 8, 2), cut).await;
        });
        sim.world().control().power_on(Domain(0));
        let made = Rc::new(Cell::new(false));
        let is_made = made.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let newest = records(&bench, 2).await.last().copied();
            if let Some(newest) = newest.filter(|found| found.kind == REDO) {
                make_old(&bench, 2, newest).await;
                is_made.set(true);
            }
        });
        if !made.get() {
            continue;
        }
        drive(&mut sim, &disks, async move |bench| {
            let left: Vec<_> = (0..3).filter(|disk| Some(*disk) != lost).collect();
            let array = bench.assemble(&left).await.unwrap();
            let message = array.events().0;
            assert!(message.iter().any(|e| e.what.contains("from the journal")));
            for sector in 0..8 {
                let buf = bench.read(&array, sector, 1).await.unwrap();
                let whole = buf.iter().all(|byte| *byte == buf[0]);
                assert!(whole && [2, 7].contains(&buf[0]), "cut {cut} {lost:?}");
            }
            assert!(bench.holds(&array, 8, 120, 7).await, "cut {cut} {lost:?}");
        });
        done += 1;
    }
    assert!(done > 10, "only {done} cuts left a record");
}
