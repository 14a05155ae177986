//! The driver and host suites and their canaries.

use super::caught;
use super::queue::{DISK, Flaw, LISTENER, Queue, address};
use super::wire;
use crate::conformance::{DriverRig, driver, host, run};
use crate::{Host, IoResult, Nanos, ShardId, ShardTurn, TurnProgress};

fn drive(block: u64, flaw: Flaw, seed: u64) {
    let rig = DriverRig {
        disk: DISK,
        listener: Some((LISTENER, address())),
    };
    run(driver(Queue::new(block, flaw), rig, seed));
}

#[test]
fn a_sound_driver_passes() {
    for seed in 0..4 {
        drive(1, Flaw::None, seed);
        drive(8, Flaw::None, seed);
    }
}

#[test]
fn every_flaw_is_caught() {
    for (flaw, message) in [
        (Flaw::CompletesTwice, "completes twice"),
        (Flaw::LosesACompletion, "is in flight since"),
        (Flaw::InventsACompletion, "was never submitted"),
        (Flaw::SwapsBuffers, "owned Buf"),
        (Flaw::DropsBufferOnError, "returns Nothing"),
        (Flaw::KeepsABuffer, "came back to the pool"),
        (Flaw::ClockGoesBack, "the clock goes from"),
        (Flaw::OversleepsDeadlines, "with deadline"),
        (Flaw::ForgetsUnpark, "a park after an unpark slept"),
        (Flaw::IgnoresBounds, "not with an Invalid error"),
        (Flaw::WritesBeforeChecking, "must hold"),
        (Flaw::ServesUnknownTargets, "wrong targets: "),
        (Flaw::CountsDiskBytes, "not with 0"),
        (Flaw::Spins, "times before its deadline"),
        (Flaw::Wire(wire::Flaw::SwapsParts), "is not what was sent"),
        (Flaw::Wire(wire::Flaw::LosesTheTail), "end of stream"),
        (Flaw::Wire(wire::Flaw::NeverEnds), "is in flight since"),
        (
            Flaw::Wire(wire::Flaw::SendsAfterTheEnd),
            "after the close succeeds",
        ),
        (
            Flaw::Wire(wire::Flaw::AnyoneAnswers),
            "connecting to nobody",
        ),
        (Flaw::Wire(wire::Flaw::ListensForEver), "is in flight since"),
    ] {
        caught(message, || drive(8, flaw, 1));
    }
}

/// Runs shards in turn on one thread, each with a clock of its own.
struct Shards {
    flaw: Flaw,
    /// Number of each shard at its boot.
    ids: Vec<u32>,
    /// The most turns.
    turns: u32,
}

impl Host for Shards {
    type Driver = Queue;

    fn run<B>(&mut self, _shards: u32, boot: B) -> IoResult
    where
        B: Fn(ShardId, Queue) -> Box<dyn ShardTurn> + Send + Sync + 'static,
    {
        let boot = |&id: &u32| boot(ShardId(id), Queue::new(1, self.flaw));
        let mut turns: Vec<_> = self.ids.iter().map(boot).collect();
        for _ in 0..self.turns {
            turns.retain_mut(|turn| {
                let going = turn.run_once() != TurnProgress::Done;
                if going {
                    turn.park(Nanos::ZERO);
                }
                going
            });
        }
        Ok(())
    }
}

#[test]
fn a_sound_host_passes_and_flawed_ones_do_not() {
    let run = |flaw, ids: &[u32], turns| {
        let ids = ids.to_vec();
        host(&mut Shards { flaw, ids, turns }, 2, 1)
    };
    run(Flaw::None, &[0, 1], 1000);
    caught("boots again", || run(Flaw::None, &[0, 0], 1000));
    caught("boots again", || run(Flaw::None, &[0, 2], 1000));
    caught("0 of 2 shards ended", || run(Flaw::None, &[0], 1000));
    caught("0 of 2 shards ended", || run(Flaw::None, &[0, 1], 50));
    caught("after another", || run(Flaw::ClockGoesBack, &[0, 1], 1000));
}
