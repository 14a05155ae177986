//! Times at which disk operations are served: fixed spans, or service-time models, which are
//! advanced at each of their events.

use crate::flight::FlightId;
use crate::plan::check_span;
use crate::rng::Rng;
use crate::service::{ModelId, Service};
use crate::verb::Verb;
use block::{Extent, Fua, IoError, IoResult, Kind, Nanos};
use drives::{Completed, Model, Op, Request};

/// The next event for the world to schedule.
pub(crate) enum Wake {
    /// The operation is served then.
    Served(Nanos),
    /// The model asks to be advanced then, earlier than asked before.
    Model(Nanos, u32),
    /// The model will be advanced early enough.
    Nothing,
}

struct Running {
    model: Box<dyn Model>,
    /// Time of the model's next advance; `MAX` if none.
    wake: Nanos,
}

pub(crate) struct Clockwork {
    running: Vec<Running>,
    rng: Rng,
}

impl Clockwork {
    pub fn new(rng: Rng) -> Clockwork {
        Clockwork {
            running: Vec::new(),
            rng,
        }
    }

    pub fn add(&mut self, model: Box<dyn Model>) -> ModelId {
        self.running.push(Running {
            model,
            wake: Nanos::MAX,
        });
        ModelId(self.running.len() as u32 - 1)
    }

    pub fn check(&self, service: &Service) -> IoResult {
        match *service {
            Service::Fixed { read, write, flush } => [read, write, flush]
                .into_iter()
                .try_for_each(|span| check_span(span, "a service time")),
            Service::Model { model, .. } if model.0 as usize >= self.running.len() => {
                let what = "a model of another world; add it to this one";
                Err(IoError::new(Kind::Invalid, what))
            }
            Service::Model { .. } => Ok(()),
        }
    }

    /// Takes an operation that begins now.
    #[inline]
    pub fn begin(
        &mut self,
        service: Service,
        verb: Verb,
        fua: Fua,
        extent: Extent,
        id: FlightId,
        now: Nanos,
    ) -> Wake {
        let (model, unit) = match service {
            Service::Fixed { read, write, flush } => {
                let span = match verb {
                    Verb::Read => read,
                    Verb::Flush => flush,
                    _ => write,
                };
                return Wake::Served(now + span.draw(&mut self.rng));
            }
            Service::Model { model, unit } => (model.0, unit),
        };
        let running = &mut self.running[model as usize];
        running.model.arrive(
            now,
            Request {
                id: id.pack(),
                unit,
                op: match verb {
                    Verb::Read => Op::Read,
                    Verb::Flush => Op::Flush,
                    Verb::Discard => Op::Discard,
                    _ => Op::Write,
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
