//! A network between host and device: a rate each way, a round-trip time.
//!
//! A request travels half the round-trip time, behind the data of the writes
//! before it; the answer travels the other half, behind the data of the reads
//! before it. Of several links bonded together, one carries all requests to one
//! unit, as link aggregation keeps a flow on one link.
//!
//! Left out: headers and acknowledgements (the rate is that of payload), loss,
//! windows, the hosts' own time.

use super::agenda::{Agenda, SerialResource};
use super::{Completed, DriveModel, DriveOp, DriveRequest, Figure, nanos, transfer};
use block::{IoResult, Nanos};
use slab::Slab;

/// A link's description. MB are 10^6 bytes.
#[derive(Clone, Debug)]
pub struct LinkParameters {
    /// The model's name.
    pub name: &'static str,
    /// Payload a second, one way, on one link.
    pub rate_mb_s: Figure,
    /// Time to the device and back.
    pub round_trip_us: Figure,
    /// Links bonded together.
    pub links: Figure,
}

impl LinkParameters {
    /// Every number under its name, in the order of the fields.
    pub fn figures(&self) -> [(&'static str, Figure); 3] {
        [
            ("rate_mb_s", self.rate_mb_s),
            ("round_trip_us", self.round_trip_us),
            ("links", self.links),
        ]
    }
}

/// Links in front of a device.
#[derive(Debug)]
pub struct ModelledLink<M> {
    rate_mb_s: f64,
    one_way: Nanos,
    links: Vec<Lanes>,
    device: M,
    flights: Slab<DriveRequest>,
    agenda: Agenda<LinkEvent>,
    /// Requests that the device just completed; empty between calls.
    from_device: Vec<Completed>,
}

/// The two ways of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Lanes {
    to_device: SerialResource,
    to_host: SerialResource,
}

#[derive(Clone, Copy, Debug)]
enum LinkEvent {
    /// The request has reached the device.
    Delivered(usize),
    /// The answer has reached the host.
    Answered(usize),
}

impl<M: DriveModel> ModelledLink<M> {
    /// Idle links in front of `device`; the device receives [`DriveRequest::unit`] unchanged.
    ///
    /// `Err` names the parameter that no link can have, its range and the remedy.
    pub fn new(parameters: &LinkParameters, device: M) -> IoResult<ModelledLink<M>> {
        let check = |name, figure: Figure, least: f64, most: f64, remedy| {
            figure.within(parameters.name, name, least..=most, remedy)
        };
        let rate_mb_s = check(
            "rate_mb_s",
            parameters.rate_mb_s,
            0.001,
            1e6,
            "give the payload rate of one link in MB/s",
        )?;
        let round_trip_us = check(
            "round_trip_us",
            parameters.round_trip_us,
            0.0,
            10e6,
            "give the round-trip time in microseconds",
        )?;
        let links = check(
            "links",
            parameters.links,
            1.0,
            64.0,
            "give the number of links bonded together",
        )?;
        Ok(ModelledLink {
            rate_mb_s,
            one_way: nanos(round_trip_us * 1e3 / 2.0),
            links: vec![Lanes::default(); links as usize],
            device,
            flights: Slab::new(),
            agenda: Agenda::new(),
            from_device: Vec::new(),
        })
    }

    /// The time of `request`'s data on the wire: zero unless the request is an `op`, the operation
    /// that moves data this way.
    fn on_wire(&self, request: DriveRequest, op: DriveOp) -> Nanos {
        if request.op == op {
            transfer(request.extent.len.bytes(), self.rate_mb_s)
        } else {
            Nanos::ZERO
        }
    }

    fn lanes(&mut self, unit: u32) -> &mut Lanes {
        let index = unit as usize % self.links.len();
        &mut self.links[index]
    }
}

impl<M: DriveModel> DriveModel for ModelledLink<M> {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        let span = self.on_wire(request, DriveOp::Write);
        let sent = self.lanes(request.unit).to_device.serve(now, span);
        let flight = self.flights.insert(request);
        self.agenda
            .enter(sent + self.one_way, LinkEvent::Delivered(flight));
    }

    fn next_event(&self) -> Option<Nanos> {
        let device = self.device.next_event().into_iter();
        device.chain(self.agenda.next_at()).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            let mut completed = std::mem::take(&mut self.from_device);
            self.device.advance(at, &mut completed);
            for Completed { at, id } in completed.drain(..) {
                let flight = id as usize;
                let request = self.flights[flight];
                let span = self.on_wire(request, DriveOp::Read);
                let sent = self.lanes(request.unit).to_host.serve(at, span);
                self.agenda
                    .enter(sent + self.one_way, LinkEvent::Answered(flight));
            }
            self.from_device = completed;
            while let Some((at, event)) = self.agenda.take_due(at) {
                match event {
                    LinkEvent::Delivered(flight) => {
                        let delivered = DriveRequest {
                            id: flight as u64,
                            ..self.flights[flight]
                        };
                        self.device.arrive(at, delivered);
                    }
                    LinkEvent::Answered(flight) => {
                        let id = self.flights.remove(flight).id;
                        done.push(Completed { at, id });
                    }
                }
            }
        }
    }
}
