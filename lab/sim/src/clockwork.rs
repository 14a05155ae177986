//! Times at which disk operations are served: fixed spans, or service-time models, which are
//! advanced at each of their events.

use crate::flight::FlightId;
use crate::plan::check_span;
use crate::rng::SimRng;
use crate::service::{ModelId, ServiceTime};
use crate::verb::SimVerb;
use block::{Extent, Fua, IoError, IoErrorKind, IoResult, Nanos};
use drives::{Completed, DriveModel, DriveOp, DriveRequest};

/// The next event for the world to schedule.
pub(crate) enum Wake {
    /// The operation is served then.
    Served(Nanos),
    /// The model asks to be advanced then, earlier than asked before.
    Model(Nanos, u32),
    /// The model will be advanced early enough.
    Nothing,
}

struct RunningClock {
    model: Box<dyn DriveModel>,
    /// Time of the model's next advance; `MAX` if none.
    wake: Nanos,
}

pub(crate) struct Clockwork {
    running: Vec<RunningClock>,
    rng: SimRng,
}

impl Clockwork {
    pub fn new(rng: SimRng) -> Clockwork {
        Clockwork {
            running: Vec::new(),
            rng,
        }
    }

    pub fn add(&mut self, model: Box<dyn DriveModel>) -> ModelId {
        self.running.push(RunningClock {
            model,
            wake: Nanos::MAX,
        });
        ModelId(self.running.len() as u32 - 1)
    }

    pub fn check(&self, service: &ServiceTime) -> IoResult {
        match *service {
            ServiceTime::Fixed { read, write, flush } => [read, write, flush]
                .into_iter()
                .try_for_each(|span| check_span(span, "a service time")),
            ServiceTime::Model { model, .. } if model.0 as usize >= self.running.len() => {
                let what = "a model of another world; add it to this one";
                Err(IoError::new(IoErrorKind::Invalid, what))
            }
            ServiceTime::Model { .. } => Ok(()),
        }
    }

    /// Takes an operation that begins now.
    #[inline]
    pub fn begin(
        &mut self,
        service: ServiceTime,
        verb: SimVerb,
        fua: Fua,
        extent: Extent,
        id: FlightId,
        now: Nanos,
    ) -> Wake {
        let (model, unit) = match service {
            ServiceTime::Fixed { read, write, flush } => {
                let span = match verb {
                    SimVerb::Read => read,
                    SimVerb::Flush => flush,
                    _ => write,
                };
                return Wake::Served(now + span.draw(&mut self.rng));
            }
            ServiceTime::Model { model, unit } => (model.0, unit),
        };
        let running = &mut self.running[model as usize];
        running.model.arrive(
            now,
            DriveRequest {
                id: id.pack(),
                unit,
                op: match verb {
                    SimVerb::Read => DriveOp::Read,
                    SimVerb::Flush => DriveOp::Flush,
                    SimVerb::Discard => DriveOp::Discard,
                    _ => DriveOp::Write,
                },
                extent,
                fua,
            },
        );
        match running.model.next_event() {
            Some(at) if at < running.wake => {
                running.wake = at;
                Wake::Model(at, model)
            }
            _ => Wake::Nothing,
        }
    }

    /// Advances a model at the time it asked for; returns the next such time. A call for a time
    /// that an earlier one replaced does nothing.
    pub fn advance(
        &mut self,
        model: u32,
        now: Nanos,
        served: &mut Vec<Completed>,
    ) -> Option<Nanos> {
        let running = &mut self.running[model as usize];
        if now < running.wake {
            return None;
        }
        running.model.advance(now, served);
        let next = running.model.next_event();
        running.wake = next.unwrap_or(Nanos::MAX);
        next
    }
}
