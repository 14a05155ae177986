//! Links, and streams that are cut, stalled and split.

use super::hand::Hand;
use crate::{
    Direction, FaultClass, FaultPlan, LinkSpec, ServiceSpan, SimHost, SimWorld, StreamEffect,
    StreamRule,
};
use block::{Address, Driver, DriverOp, IoErrorKind, IoResult, Nanos, TargetId};

const LATENCY: Nanos = Nanos::from_micros(100);

/// One byte a microsecond.
fn slow_link() -> LinkSpec {
    LinkSpec {
        latency: ServiceSpan::exactly(LATENCY),
        bytes_per_sec: 1_000_000,
        buffer_bytes: 4096,
        split: 0.0,
    }
}

struct Pair {
    sim: SimHost,
    hand: Hand,
    client: TargetId,
    server: TargetId,
}

fn connect(hand: &mut Hand, listener: TargetId, address: Address) -> (TargetId, TargetId) {
    let accept = hand.start(listener, DriverOp::Accept);
    let (connected, _) = hand.run(TargetId::NONE, DriverOp::Connect(address));
    let accepted = hand.wait(accept).0;
    let target = |id: IoResult<u64>| TargetId(id.unwrap() as u32);
    (target(connected), target(accepted))
}

fn pair(seed: u64, link: LinkSpec, fault: Option<(u64, StreamEffect)>) -> Pair {
    let mut world = SimWorld::new(seed);
    let address = Address::Unix("/pair".into());
    let listener = world.listen(address.clone(), link).unwrap();
    let rule = |(byte, effect)| StreamRule {
        connection: Some(0),
        direction: Direction::ToListener,
        byte,
        effect,
    };
    world
        .set_plan(FaultPlan {
            streams: fault.map(rule).into_iter().collect(),
            ..FaultPlan::default()
        })
        .unwrap();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let (client, server) = connect(&mut hand, listener, address);
    Pair {
        sim,
        hand,
        client,
        server,
    }
}

impl Pair {
    /// Receives all bytes until the end; returns them, and the error that ends the stream, if there
    /// is one.
    fn drain(&mut self) -> (Vec<u8>, Option<IoErrorKind>) {
        let mut all = Vec::new();
        loop {
            match self.hand.recv(self.server, 1000) {
                Ok(bytes) if bytes.is_empty() => return (all, None),
                Ok(bytes) => all.extend(bytes),
                Err(error) => return (all, Some(error.kind())),
            }
        }
    }
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

#[test]
fn bandwidth_and_latency_add_up() {
    let mut p = pair(1, slow_link(), None);
    let start = p.hand.driver.now();
    assert_eq!(start, LATENCY + LATENCY, "a connection takes a round trip");
    p.hand.send(p.client, &numbered(1000)).unwrap();
    assert_eq!(p.hand.driver.now(), start, "the buffer takes it at once");
    assert_eq!(p.hand.recv(p.server, 2000).unwrap(), numbered(1000));
    let took = p.hand.driver.now() - start;
    assert_eq!(took, Nanos::from_millis(1) + LATENCY);
}

#[test]
fn a_send_waits_while_the_buffer_is_full() {
    let mut p = pair(1, slow_link(), None);
    let mut buf = p.hand.buf(10_000);
    buf.copy_from_slice(&numbered(10_000));
    let send = p.hand.start(p.client, DriverOp::Send(vec![buf.share()]));
    p.hand.sleep(Nanos::from_secs(1));
    let mut all = p.hand.recv(p.server, 4000).unwrap();
    assert_eq!(all.len(), 4000);
    p.hand.sleep(Nanos::from_secs(1));
    all.extend(p.hand.recv(p.server, 9000).unwrap());
    assert_eq!(all.len(), 4096 + 4000, "no more than the buffer holds");
    while all.len() < 10_000 {
        all.extend(p.hand.recv(p.server, 9000).unwrap());
    }
    p.hand.wait(send).0.unwrap();
    assert_eq!(all, numbered(10_000));
}

#[test]
fn a_cut_at_any_byte_lets_pass_what_came_before() {
    for byte in [0, 1, 499, 500, 1999] {
        let mut p = pair(1, LinkSpec::local(), Some((byte, StreamEffect::Cut)));
        let sent = p.hand.send(p.client, &numbered(2000));
        let (got, end) = p.drain();
        assert_eq!(sent.unwrap_err().kind(), IoErrorKind::Stream, "byte {byte}");
        assert_eq!(got, numbered(byte as usize), "byte {byte}");
        assert_eq!(end, Some(IoErrorKind::Stream), "byte {byte}");
        let back = p.hand.recv(p.client, 10);
        assert_eq!(back.unwrap_err().kind(), IoErrorKind::Stream);
        let tally = p.sim.world().tally().clone();
        assert_eq!(tally.count(FaultClass::StreamCut), 1);
        assert_eq!(tally.landed()[0].place, byte);
    }
}

#[test]
fn a_stall_ends_by_time_or_by_release() {
    let span = Nanos::from_secs(7);
    for timed in [true, false] {
        let stall = StreamEffect::Stall(timed.then_some(span));
        let mut p = pair(1, LinkSpec::local(), Some((600, stall)));
        let mut buf = p.hand.buf(1000);
        buf.copy_from_slice(&numbered(1000));
        let send = p.hand.start(p.client, DriverOp::Send(vec![buf.share()]));
        let mut got = Vec::new();
        while got.len() < 600 {
            got.extend(p.hand.recv(p.server, 1000).unwrap());
        }
        assert_eq!(got.len(), 600);
        if !timed {
            p.hand.sleep(Nanos::from_secs(100));
            p.sim.world().control().release(p.server);
        }
        p.hand.wait(send).0.unwrap();
        assert!(!timed || p.hand.driver.now() >= span);
        while got.len() < 1000 {
            got.extend(p.hand.recv(p.server, 1000).unwrap());
        }
        assert_eq!(got, numbered(1000));
        assert_eq!(p.sim.world().tally().count(FaultClass::StreamStalled), 1);
    }
}

#[test]
fn the_end_of_a_stalled_stream_stalls_with_it() {
    let stall = StreamEffect::Stall(Some(Nanos::from_secs(7)));
    let mut p = pair(1, LinkSpec::local(), Some((10, stall)));
    p.hand.send(p.client, &numbered(10)).unwrap();
    p.hand.driver.close(p.client);
    assert_eq!(p.drain(), (numbered(10), None));
    assert!(p.hand.driver.now() > Nanos::from_secs(7));
}

#[test]
fn no_receive_spans_a_split() {
    let mut p = pair(1, slow_link(), Some((300, StreamEffect::Split)));
    p.hand.send(p.client, &numbered(1000)).unwrap();
    p.hand.sleep(Nanos::from_secs(1));
    assert_eq!(p.hand.recv(p.server, 1000).unwrap(), numbered(300));
    assert_eq!(p.hand.recv(p.server, 1000).unwrap(), numbered(1000)[300..]);
    assert_eq!(p.sim.world().tally().count(FaultClass::StreamSplit), 1);
}

#[test]
fn how_bytes_are_cut_into_pieces_is_drawn_by_seed() {
    let pieces = |seed| {
        let link = LinkSpec {
            split: 0.5,
            ..LinkSpec::local()
        };
        let mut p = pair(seed, link, None);
        p.hand.send(p.client, &numbered(1000)).unwrap();
        p.hand.driver.close(p.client);
        let mut lens = Vec::new();
        while lens.iter().sum::<usize>() < 1000 {
            lens.push(p.hand.recv(p.server, 1000).unwrap().len());
        }
        lens
    };
    let all: Vec<_> = (0..20).map(pieces).collect();
    assert!(all.iter().any(|p| p.len() == 1) && all.iter().any(|p| p.len() > 2));
    assert_eq!(all, (0..20).map(pieces).collect::<Vec<_>>());
}

#[test]
fn streams_end_with_their_boot_and_by_hand() {
    let mut p = pair(1, LinkSpec::local(), None);
    p.sim.world().control().break_stream(p.server);
    assert!(p.hand.send(p.client, &[1]).is_err());
    let mut hand = Hand::new(&mut p.sim);
    let address = Address::Unix("/pair".into());
    let (client, server) = connect(&mut hand, TargetId(0), address);
    assert!(hand.send(p.client, &[1]).is_err());
    hand.send(client, &[1]).unwrap();
    assert_eq!(hand.recv(server, 9).unwrap(), [1]);
}

#[test]
fn a_second_operation_of_one_sort_is_refused() {
    let mut p = pair(1, LinkSpec::local(), None);
    let buf = p.hand.buf(10);
    let first = p.hand.start(p.server, DriverOp::Recv(buf));
    let second = p.hand.recv(p.server, 10).unwrap_err();
    assert_eq!(second.kind(), IoErrorKind::Invalid);
    p.hand.send(p.client, &[5]).unwrap();
    assert_eq!(p.hand.wait(first).0.unwrap(), 1);
}
