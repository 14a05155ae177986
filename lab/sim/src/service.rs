//! Service time of a disk's operations: a span, or a model's decision.

use crate::rng::SimRng;
use block::Nanos;

/// A span of time drawn for each operation, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceSpan {
    /// The shortest.
    pub min: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl ServiceSpan {
    /// Always `at`.
    pub const fn exactly(at: Nanos) -> ServiceSpan {
        ServiceSpan { min: at, max: at }
    }

    #[inline]
    pub(crate) fn draw(self, rng: &mut SimRng) -> Nanos {
        if self.min == self.max {
            return self.min;
        }
        Nanos(rng.between(self.min.0, self.max.0))
    }
}

/// Service time of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceTime {
    /// Drawn for each operation alone, with no queue and no limit of parallelism.
    Fixed {
        /// Reads.
        read: ServiceSpan,
        /// Writes, zeroing and discards.
        write: ServiceSpan,
        /// Flushes.
        flush: ServiceSpan,
    },
    /// Decided by a model of the world, in which the disk is this unit.
    Model {
        /// The model, from [`crate::SimWorld::add_model`].
        model: ModelId,
        /// Index of the drive; ignored by a drive alone in its model.
        unit: u32,
    },
}

/// Names a service-time model of a world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModelId(pub(crate) u32);

impl ServiceTime {
    /// Every operation takes `span`.
    pub const fn uniform(span: ServiceSpan) -> ServiceTime {
        ServiceTime::Fixed {
            read: span,
            write: span,
            flush: span,
        }
    }
}
