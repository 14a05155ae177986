//! A flash drive: a front end, channels that work side by side, one bus.
//!
//! The front end takes each command in turn. A read then senses its 4 KiB pages
//! on their channels (page modulo channels) and sends them over the bus; a write
//! comes in over the bus, and any free channels program its pages, as with
//! flash translation layers. A channel prefers reads to writes.
//!
//! Writes stream at the rate of a fresh drive until as many bytes as the spare
//! area holds have been written. From then on a page that does not continue one
//! of the last few writes takes `1/steady IOPS` of the whole drive: the cost of
//! the page and of its garbage collection. That work is itself made of page programs, and
//! gives way to waiting reads after each such time.
//!
//! Invariants: a write completes when its last page is programmed, so a flush
//! has nothing to wait for beyond the front end; a channel is idle only if no
//! page waits for it.
//!
//! Left out: a volatile write buffer (put a [`Controller`](super::Controller) in
//! front), suspended programs, garbage collection in idle time, discarded
//! extents returning to the spare, wear.

mod parameters;

pub use parameters::SsdParameters;

use super::agenda::{Agenda, SerialResource};
use super::{Completed, DriveModel, DriveOp, DriveRequest};
use block::{IoResult, Nanos, SECTOR_BYTES};
use parameters::{PAGE_BYTES, SsdShape};
use slab::Slab;
use std::collections::VecDeque;

const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;

/// State of a drive's spare area: fresh, or written through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SsdWear {
    /// Fresh: as unpacked or erased. Writes are fast until the spare area is used up.
    Fresh,
    /// Steady: the state in the long run.
    Steady,
}

/// A flash drive.
#[derive(Debug)]
pub struct SsdModel {
    shape: SsdShape,
    front: SerialResource,
    bus: SerialResource,
    channels: Vec<FlashChannel>,
    /// Pages to program, on any channel.
    programs: VecDeque<Program>,
    /// Channel at which the search for an idle one begins.
    cursor: usize,
    flights: Slab<SsdRequest>,
    agenda: Agenda<SsdEvent>,
    spare_bytes: u64,
    streams: WriteStreams,
}

#[derive(Clone, Debug, Default)]
struct FlashChannel {
    busy: bool,
    /// Flights with pages that wait to be sensed.
    reads: VecDeque<usize>,
    /// A program begun that gives way to reads.
    begun: Option<Program>,
}

#[derive(Clone, Copy, Debug)]
struct Program {
    flight: usize,
    /// Time left on the channel.
    left: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct SsdRequest {
    request: DriveRequest,
    pages_left: u64,
}

#[derive(Clone, Copy, Debug)]
enum SsdEvent {
    /// The front end has taken the command.
    Decoded(usize),
    /// The data of a write have come in.
    Received(usize),
    /// A channel has sensed or programmed a page.
    Paged { flight: usize, channel: usize },
    /// A channel has done a part of a program.
    Begun { channel: usize },
    /// All is done.
    Done(usize),
}

impl SsdModel {
    /// An idle drive.
    ///
    /// `Err` names the parameter that no drive can have, its range and the remedy.
    pub fn new(parameters: &SsdParameters, wear: SsdWear) -> IoResult<SsdModel> {
        let shape = parameters.shape()?;
        Ok(SsdModel {
            front: SerialResource::default(),
            bus: SerialResource::default(),
            channels: vec![FlashChannel::default(); shape.channels],
            programs: VecDeque::new(),
            cursor: 0,
            flights: Slab::new(),
            agenda: Agenda::new(),
            spare_bytes: match wear {
                SsdWear::Fresh => shape.spare_bytes,
                SsdWear::Steady => 0,
            },
            streams: WriteStreams::default(),
            shape,
        })
    }

    fn handle(&mut self, now: Nanos, event: SsdEvent, done: &mut Vec<Completed>) {
        match event {
            SsdEvent::Decoded(flight) => self.decoded(now, flight),
            SsdEvent::Received(flight) => self.received(now, flight),
            SsdEvent::Paged { flight, channel } => {
                self.channels[channel].busy = false;
                self.work(now, channel);
                self.paged(now, flight, done);
            }
            SsdEvent::Begun { channel } => {
                self.channels[channel].busy = false;
                self.work(now, channel);
            }
            SsdEvent::Done(flight) => self.complete(now, flight, done),
        }
    }

    fn decoded(&mut self, now: Nanos, flight: usize) {
        let SsdRequest { request, .. } = self.flights[flight];
        match request.op {
            DriveOp::Read => {
                for page in pages(request) {
                    let channel = page as usize % self.channels.len();
                    self.channels[channel].reads.push_back(flight);
                    self.work(now, channel);
                }
            }
            DriveOp::Write => {
                let at = self.bus.serve(now, self.shape.on_bus(request));
                self.agenda.enter(at, SsdEvent::Received(flight));
            }
            DriveOp::Flush | DriveOp::Discard => self.agenda.enter(now, SsdEvent::Done(flight)),
        }
    }

    fn received(&mut self, now: Nanos, flight: usize) {
        let SsdRequest { request, .. } = self.flights[flight];
        let bytes = request.extent.len.bytes();
        let streams = self.streams.continues(request);
        for _ in pages(request) {
            let left = if streams || self.spare_bytes > 0 {
                self.shape.program_streaming
            } else {
                self.shape.program_steady
            };
            self.programs.push_back(Program { flight, left });
        }
        self.spare_bytes = self.spare_bytes.saturating_sub(bytes);
        for _ in 0..self.channels.len() {
            if self.programs.is_empty() {
                break;
            }
            self.cursor = (self.cursor + 1) % self.channels.len();
            self.work(now, self.cursor);
        }
    }

    /// One page of `flight` is done.
    fn paged(&mut self, now: Nanos, flight: usize, done: &mut Vec<Completed>) {
        let SsdRequest {
            request,
            pages_left,
        } = &mut self.flights[flight];
        *pages_left -= 1;
        if *pages_left > 0 {
            return;
        }
        if request.op == DriveOp::Write {
            self.complete(now, flight, done);
        } else {
            let at = self.bus.serve(now, self.shape.on_bus(*request));
            self.agenda.enter(at, SsdEvent::Done(flight));
        }
    }

    /// Gives an idle channel its next work, if some waits.
    fn work(&mut self, now: Nanos, channel: usize) {
        let idle = &mut self.channels[channel];
        if idle.busy {
            return;
        }
        let (takes, event) = if let Some(flight) = idle.reads.pop_front() {
            (self.shape.sense, SsdEvent::Paged { flight, channel })
        } else if let Some(program) = idle.begun.take().or_else(|| self.programs.pop_front()) {
            let Program { flight, left } = program;
            let part = left.min(self.shape.program_streaming);
            if part == left {
                (part, SsdEvent::Paged { flight, channel })
            } else {
                let left = left - part;
                idle.begun = Some(Program { flight, left });
                (part, SsdEvent::Begun { channel })
            }
        } else {
            return;
        };
        idle.busy = true;
        self.agenda.enter(now + takes, event);
    }

    fn complete(&mut self, now: Nanos, flight: usize, done: &mut Vec<Completed>) {
        let SsdRequest { request, .. } = self.flights.remove(flight);
        done.push(Completed {
            at: now,
            id: request.id,
        });
    }
}

impl DriveModel for SsdModel {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        request.assert_inside(self.shape.sectors);
        let flight = self.flights.insert(SsdRequest {
            request,
            pages_left: pages(request).count() as u64,
        });
        let at = self.front.serve(now, self.shape.front);
        self.agenda.enter(at, SsdEvent::Decoded(flight));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.agenda.next_at()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some((at, event)) = self.agenda.take_due(now) {
            self.handle(at, event, done);
        }
    }
}

/// The pages that a request touches.
fn pages(request: DriveRequest) -> std::ops::Range<u64> {
    let extent = request.extent;
    extent.start.0 / PAGE_SECTORS..extent.end().0.div_ceil(PAGE_SECTORS)
}

/// Ends of the last few writes, to distinguish streams from random writes.
#[derive(Debug, Default)]
struct WriteStreams {
    ends: [u64; 8],
    oldest: usize,
}

impl WriteStreams {
    /// True if a write continues a recent one. Remembers the end of the write.
    fn continues(&mut self, write: DriveRequest) -> bool {
        let (start, end) = (write.extent.start.0, write.extent.end().0);
        let found = self.ends.iter().position(|known| *known == start);
        let place = found.unwrap_or(self.oldest);
        if found.is_none() {
            self.oldest = (self.oldest + 1) % self.ends.len();
        }
        self.ends[place] = end;
        found.is_some()
    }
}
