//! The parts of the model.

use super::scale::Scale;
use crate::ablation::Part;
use crate::replay::Client;
use block::Nanos;

/// The parts of the model that can be left out.
pub const PARTS: [Part<Scale>; 7] = [
    Part {
        name: "the server's processor time",
        without: |scale| Scale {
            processor: Nanos::ZERO,
            ..scale
        },
    },
    Part {
        name: "the client's own time",
        without: |scale| Scale {
            client: Client {
                answer: Nanos::ZERO,
                between: Nanos::ZERO,
            },
            ..scale
        },
    },
    Part {
        name: "the way's time for a connection and an answer",
        without: |scale| Scale {
            has_way: false,
            ..scale
        },
    },
    Part {
        name: "directories and inodes",
        without: |scale| Scale {
            has_metadata: false,
            ..scale
        },
    },
    Part {
        name: "the server's own log",
        without: |scale| Scale {
            has_log: false,
            ..scale
        },
    },
    Part {
        name: "the survey of the disks at the start, which leaves their heads far out",
        without: |scale| Scale {
            heads_far: false,
            ..scale
        },
    },
    Part {
        name: "the server's page cache",
        without: |scale| Scale {
            memory_pages: 64,
            ..scale
        },
    },
];
