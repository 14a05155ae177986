//! The figures of a span of time, of one volume or of all.

use serde::Serialize;
use utoipa::ToSchema;

/// Rules to merge the figures of several spans into one.
enum Merge {
    /// The mean.
    Mean,
    /// The largest.
    Max,
    /// The mean, each span weighted by its reads.
    ByReads,
    /// The mean, each span weighted by its writes.
    ByWrites,
}

macro_rules! sample {
    ($($figure:ident, $merge:ident, $help:literal;)*) => {
        /// The figures of a span of time; an unknown figure is left out.
        #[derive(Clone, Default, PartialEq, Debug, Serialize, ToSchema)]
        pub struct Sample {
            /// The start of the span, in seconds since 1970.
            pub at: u64,
            $(
                #[doc = $help]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $figure: Option<f32>,
            )*
        }

        /// Figures of a sample.
        pub const FIGURES: usize = [$($help),*].len();
        const MERGES: [Merge; FIGURES] = [$(Merge::$merge),*];

        impl Sample {
            /// Its figures in order.
            pub fn figures(&self) -> [Option<f32>; FIGURES] {
                [$(self.$figure),*]
            }

            /// The sample of these figures.
            pub fn new(at: u64, figures: [Option<f32>; FIGURES]) -> Sample {
                let [$($figure),*] = figures;
                Sample { at, $($figure),* }
            }
        }
    };
}

// The order is that of the file: another order is another version of the file.
sample! {
    reads_s, Mean, "Reads of clients a second.";
    writes_s, Mean, "Writes of clients a second.";
    read_bytes_s, Mean, "Bytes that clients read a second.";
    written_bytes_s, Mean, "Bytes that clients wrote a second.";
    hits_s, Mean, "4 KiB blocks found in the pool a second.";
    misses_s, Mean, "4 KiB blocks not found in the pool a second.";
    origin_s, Mean, "Reads and writes that origins served a second.";
    kept_s, Mean, "Requests a second that the pool or the log answered in place of the origin.";
    dirty_bytes, Max, "Bytes that the origins of write-back volumes did not have yet.";
    lag_s, Max, "The age of the oldest of them.";
    read_us_mean, ByReads, "What clients waited for a read on average.";
    read_us_p50, ByReads, "The latency that half of the reads of clients stayed within.";
    read_us_p99, Max, "The latency that 99% of the reads of clients stayed within; the longest of merged spans.";
    write_us_p50, ByWrites, "The latency that half of the writes of clients stayed within.";
    write_us_p99, Max, "The latency that 99% of the writes of clients stayed within; the longest of merged spans.";
    origin_read_us_mean, Mean, "What a read of the origins took on average.";
}

/// The sample of all of `samples`, as one that began at `at`.
pub fn merged(at: u64, samples: &[Sample]) -> Sample {
    let figures: [Option<f32>; FIGURES] = std::array::from_fn(|which| {
        let known = samples
            .iter()
            .filter_map(|sample| Some((sample, sample.figures()[which]?)));
        let mean = |weight: fn(&Sample) -> Option<f32>| {
            let (mut sum, mut weights) = (0.0, 0.0);
            for (sample, figure) in known.clone() {
                let weight = weight(sample).unwrap_or(0.0);
                sum += figure * weight;
                weights += weight;
            }
            (weights > 0.0).then(|| sum / weights)
        };
        match MERGES[which] {
            Merge::Mean => mean(|_| Some(1.0)),
            Merge::ByReads => mean(|sample| sample.reads_s),
            Merge::ByWrites => mean(|sample| sample.writes_s),
            Merge::Max => known.map(|(_, figure)| figure).reduce(f32::max),
        }
    });
    Sample::new(at, figures)
}
