//! Service time of a disk's operations: a span, or a model's decision.

use crate::rng::Rng;
use block::Nanos;

/// A span of time drawn for each operation, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The shortest.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Span {
    /// Always `at`.
    pub const fn exactly(at: Nanos) -> Span {
        Span { min: at, max: at }
    }

    #[inline]
    pub(crate) fn draw(self, rng: &mut Rng) -> Nanos {
        if self.min == self.max {
            return self.min;
        }
        Nanos(rng.between(self.min.0, self.max.0))
    }
}

/// Service time of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Drawn for each operation alone, with no queue and no limit of parallelism.
    Fixed {
        /// Reads.
        read: Span,
        /// Writes, zeroing and discards.
        write: Span,
        /// Flushes.
        flush: Span,
    },
    /// Decided by a model of the world, in which the disk is this unit.
    Model {
        /// The model, from [`crate::World::add_model`].
        model: ModelId,
        /// Index of the drive; ignored by a drive alone in its model.
        unit: u32,
    },
}

/// Names a service-time model of a world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModelId(pub(crate) u32);

impl Service {
    /// Every operation takes `span`.
    pub const fn uniform(span: Span) -> Service {
        Service::Fixed {
            read: span,
            write: span,
            flush: span,
        }
    }
}
