//! An opening writes nothing until it is established; an opening without room has a remedy.

use crate::journal::{WITNESS, all, candidate, standing};
use crate::rig::{Rig, config, run};
use block::{BoxDevice, Device, Fua, IoResult, Lba, Nanos};
use layout::Uuid;
use writelog::{
    LedgerWitness, LogCandidate, LogLedger, LogStanding, Members as _, OpenedLog, WantedLog,
};

fn away(name: &str) -> LogCandidate<BoxDevice> {
    LogCandidate {
        holes: Vec::new(),
        name: name.into(),
        domain: "".into(),
        device: Err("it is not there".into()),
    }
}

async fn found(rig: &Rig, copies: [LogCandidate<BoxDevice>; 2]) -> IoResult<OpenedLog<BoxDevice>> {
    let wanted = WantedLog {
        volume: "db".into(),
        sectors: 64 << 11,
        identity: b"archive".to_vec(),
        host: "here".into(),
        uuid: Uuid(77 + u128::from(rig.now().0)),
        now: rig.now(),
        is_forced: false,
    };
    let witness = LedgerWitness::Kept(BoxDevice::new(rig.leaf(WITNESS)));
    LogLedger::open(wanted, rig.local.env(), witness, copies, None).await
}

fn both(rig: &Rig) -> [LogCandidate<BoxDevice>; 2] {
    [candidate(rig, 1, "ssd0"), candidate(rig, 2, "ssd1")]
}

fn trusted(opened: &OpenedLog<BoxDevice>) -> [bool; 2] {
    let trusted = |copy: usize| opened.areas[copy].as_ref().is_some_and(|area| area.trusted);
    [trusted(0), trusted(1)]
}

/// Otherwise earlier writes would count as younger than they are, and the origin would lack more
/// than `max_lag`.
#[test]
fn the_clock_of_a_log_does_not_stand_while_it_is_opened() {
    run(|rig| async move {
        let began = rig.now();
        let opened = found(&rig, both(&rig)).await.unwrap();
        assert!(rig.now() > began, "reads take time");
        assert_eq!(opened.epoch, Nanos::ZERO, "the host's clock is the rig's");
    });
}

#[test]
fn an_attempt_that_is_refused_later_leaves_both_copies_as_they_were() {
    run(|rig| async move {
        let opened = found(&rig, both(&rig)).await.unwrap();
        opened.ledger.establish([true; 2]).await.unwrap();
        opened.ledger.record(standing(true)).await.unwrap();
        let before = [
            all(&rig, 1).await,
            all(&rig, 2).await,
            all(&rig, WITNESS).await,
        ];
        // One device is away for a moment, and the origin is refused then.
        let without = [candidate(&rig, 1, "ssd0"), away("ssd1")];
        assert_eq!(trusted(&found(&rig, without).await.unwrap()), [true, false]);
        let after = [
            all(&rig, 1).await,
            all(&rig, 2).await,
            all(&rig, WITNESS).await,
        ];
        assert!(before == after, "something was written");
        // The other device dies, and the one that was away has everything.
        let without = [away("ssd0"), candidate(&rig, 2, "ssd1")];
        assert_eq!(trusted(&found(&rig, without).await.unwrap()), [false, true]);
    });
}

#[test]
fn any_number_of_attempts_takes_no_room() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        log.write(Lba(0), rig.data(1, 1).await, Fua::Yes)
            .await
            .unwrap();
        log.close().await;
        let before = [all(&rig, 1).await, all(&rig, 2).await];
        for _ in 0..100 {
            let log = rig
                .attempt(rig.leaf(0), config(2), rig.both(), None)
                .await
                .unwrap();
            rig.expect(&log, 0, 1, 1).await;
        }
        assert!(before == [all(&rig, 1).await, all(&rig, 2).await]);
    });
}

/// A daemon that is killed again and again, each time before the origin takes anything.
#[test]
fn a_log_without_room_is_written_back_and_begun_again() {
    run(|rig| async move {
        let opened = found(&rig, both(&rig)).await.unwrap();
        let (ledger, uuid) = (opened.ledger, opened.log);
        ledger.establish([true; 2]).await.unwrap();
        ledger.record(standing(true)).await.unwrap();
        let log = rig
            .open_before(rig.leaf(0), config(1), rig.both(), None)
            .await
            .unwrap();
        log.write(Lba(800), rig.data(3, 7).await, Fua::Yes)
            .await
            .unwrap();
        let mut incarnation = 1;
        let log = loop {
            incarnation += 1;
            let log = rig
                .attempt(rig.leaf(0), config(incarnation), rig.both(), None)
                .await
                .unwrap();
            if log.is_full() {
                break log;
            }
            log.establish().await.unwrap();
        };
        assert!(incarnation > 1500, "{incarnation}");
        rig.expect(&rig.leaf(0), 100, 3, 0).await;
        assert_eq!(log.write_back_all().await.unwrap(), []);
        rig.expect(&rig.leaf(0), 100, 3, 7).await;
        for copies in [[true; 2], [false; 2]] {
            let ended = LogStanding {
                copies,
                ..standing(false)
            };
            ledger.record(ended).await.unwrap();
        }
        let next = found(&rig, both(&rig)).await.unwrap();
        assert!(next.log != uuid && !next.may_be_dirty);
    });
}
