//! The parts of the model.

use super::scale::RedskinScale;
use crate::ablation::AblationPart;
use crate::replay::ReplayClient;
use block::Nanos;

/// The parts of the model that can be left out.
pub const PARTS: [AblationPart<RedskinScale>; 7] = [
    AblationPart {
        name: "the server's processor time",
        without: |scale| RedskinScale {
            processor: Nanos::ZERO,
            ..scale
        },
    },
    AblationPart {
        name: "the client's own time",
        without: |scale| RedskinScale {
            client: ReplayClient {
                answer: Nanos::ZERO,
                between: Nanos::ZERO,
            },
            ..scale
        },
    },
    AblationPart {
        name: "the way's time for a connection and an answer",
        without: |scale| RedskinScale {
            has_way: false,
            ..scale
        },
    },
    AblationPart {
        name: "directories and inodes",
        without: |scale| RedskinScale {
            has_metadata: false,
            ..scale
        },
    },
    AblationPart {
        name: "the server's own log",
        without: |scale| RedskinScale {
            has_log: false,
            ..scale
        },
    },
    AblationPart {
        name: "the survey of the disks at the start, which leaves their heads far out",
        without: |scale| RedskinScale {
            heads_far: false,
            ..scale
        },
    },
    AblationPart {
        name: "the server's page cache",
        without: |scale| RedskinScale {
            memory_pages: 64,
            ..scale
        },
    },
];
