//! Decision support: queries of one user, each of which scans tables and looks rows up by
//! their indexes, one read after the other.
//!
//! The tables of a query are those that its text names; tables have the shares of TPC-H's rows
//! ("TPC Benchmark H", revision 2, clauses 2.4 and 4.2.5). A table's index lies with the table, and
//! is scanned along.
//!
//! Left out: hits in the database's own memory, parallel scans, and sorts on disk.

use crate::rig::Volume;
use block::{Boundary, Env, IoResult, Nanos};
use sim::SimRng;
use std::ops::AddAssign;

/// The purpose of a random stream.
const LOOKUPS: u64 = 7;
/// Bytes of a read of a scan.
pub const SCAN_BYTES: u64 = 128 << 10;
/// Bytes of a read of a look-up.
pub const LOOKUP_BYTES: u64 = 8 << 10;

/// A table, and its part of the database in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueryTable {
    Lineitem,
    Orders,
    Partsupp,
    Part,
    Customer,
    Supplier,
}
use QueryTable::{Customer, Lineitem, Orders, Part, Partsupp, Supplier};

/// Tables in their order on the volume, with their shares.
const TABLES: [(QueryTable, u64); 6] = [
    (Lineitem, 669),
    (Orders, 156),
    (Partsupp, 115),
    (Part, 31),
    (Customer, 27),
    (Supplier, 2),
];

/// Tables of each query; nations and regions are a few rows.
const QUERIES: [&[QueryTable]; 22] = [
    &[Lineitem],
    &[Part, Supplier, Partsupp],
    &[Customer, Orders, Lineitem],
    &[Orders, Lineitem],
    &[Customer, Orders, Lineitem, Supplier],
    &[Lineitem],
    &[Supplier, Lineitem, Orders, Customer],
    &[Part, Supplier, Lineitem, Orders, Customer],
    &[Part, Supplier, Lineitem, Partsupp, Orders],
    &[Customer, Orders, Lineitem],
    &[Partsupp, Supplier],
    &[Orders, Lineitem],
    &[Customer, Orders],
    &[Lineitem, Part],
    &[Lineitem, Supplier],
    &[Partsupp, Part, Supplier],
    &[Lineitem, Part],
    &[Customer, Orders, Lineitem],
    &[Lineitem, Part],
    &[Supplier, Partsupp, Lineitem, Part],
    &[Supplier, Lineitem, Orders],
    &[Customer, Orders],
];

/// A database, and the pattern of its reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueriesShape {
    /// All tables with their indexes.
    pub bytes: u64,
    /// The database lies in pieces so long on the volume.
    pub piece_bytes: u64,
    /// Distance from the start of one piece to the next.
    pub apart_bytes: u64,
    /// Look-ups for each read of a scan.
    pub lookups: f64,
    /// The processor's time for the data of a read.
    pub processor: Nanos,
}

impl QueriesShape {
    /// Place of this byte of the database on the volume.
    fn place(&self, at: u64) -> u64 {
        at / self.piece_bytes * self.apart_bytes + at % self.piece_bytes
    }

    /// Place of a table in the database, in whole reads of a scan.
    fn table(&self, wanted: QueryTable) -> (u64, u64) {
        let mut parts = 0;
        for (table, share) in TABLES {
            let reads = |parts: u64| self.bytes / 1000 * parts / SCAN_BYTES;
            if table == wanted {
                return (reads(parts) * SCAN_BYTES, reads(parts + share) * SCAN_BYTES);
            }
            parts += share;
        }
        unreachable!("every table has its share")
    }
}

/// Requests of one interval, or of all.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QueryReads {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Latencies of the reads, summed.
    pub taken: Nanos,
}

impl AddAssign for QueryReads {
    fn add_assign(&mut self, other: QueryReads) {
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.taken += other.taken;
    }
}

impl QueryReads {
    /// Mean latency of the reads.
    pub fn mean_ms(self) -> f64 {
        self.taken.0 as f64 / 1e6 / self.reads as f64
    }

    /// The mean in milliseconds, for a table; requests that took no time have none.
    pub(crate) fn mean_text(self) -> String {
        match self.taken.0 {
            0 => "-".to_owned(),
            _ => format!("{:.2}", self.mean_ms()),
        }
    }
}

/// Result of a run of all queries.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueriesMeasured {
    /// Time of each query, in order.
    pub queries: Vec<Nanos>,
    /// One an interval; the last is not a whole one.
    pub points: Vec<QueryReads>,
}

impl QueriesMeasured {
    /// Time of all queries.
    pub fn span(&self) -> Nanos {
        Nanos(self.queries.iter().map(|query| query.0).sum())
    }

    /// All reads.
    pub fn whole(&self) -> QueryReads {
        let mut sum = QueryReads::default();
        self.points.iter().for_each(|point| sum += *point);
        sum
    }
}

/// Runs all queries once.
pub async fn run(
    env: &Env,
    seed: u64,
    shape: QueriesShape,
    volume: &Volume,
    interval: Nanos,
) -> IoResult<QueriesMeasured> {
    let mut rng = SimRng::fork(seed, LOOKUPS);
    let began = env.timer.now();
    let mut measured = QueriesMeasured::default();
    for tables in QUERIES {
        let begun = env.timer.now();
        for table in tables {
            let (start, end) = shape.table(*table);
            for at in (start..end).step_by(SCAN_BYTES as usize) {
                let mut left = shape.lookups;
                let mut asked = vec![(at, SCAN_BYTES)];
                while left > 0.0 {
                    if (rng.below(1 << 20) as f64 / f64::from(1 << 20)) < left {
                        let row = rng.below((end - start) / LOOKUP_BYTES);
                        asked.push((start + row * LOOKUP_BYTES, LOOKUP_BYTES));
                    }
                    left -= 1.0;
                }
                for (at, bytes) in asked {
                    let asked = env.timer.now();
                    volume.read(shape.place(at), bytes as usize).await?;
                    let ended = env.timer.now();
                    let point = ((ended - began).0 / interval.0) as usize;
                    let most = measured.points.len().max(point + 1);
                    measured.points.resize(most, QueryReads::default());
                    let point = &mut measured.points[point];
                    point.reads += 1;
                    point.bytes += bytes;
                    point.taken += ended - asked;
                    env.timer.sleep(shape.processor).await;
                }
            }
        }
        measured.queries.push(env.timer.now() - begun);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;

    const READ: Nanos = Nanos::from_micros(500);
    const SHAPE: QueriesShape = QueriesShape {
        bytes: 64 << 20,
        piece_bytes: 8 << 20,
        apart_bytes: 16 << 20,
        lookups: 0.25,
        processor: Nanos::from_micros(100),
    };

    fn measured(shape: QueriesShape) -> QueriesMeasured {
        on_disk(READ, async move |gate, env| {
            let interval = Nanos::from_secs(1);
            run(&env, 1, shape, &gate, interval).await.unwrap()
        })
    }

    /// Reads of scans: for each query the shares of its tables.
    fn scans(shape: QueriesShape) -> u64 {
        let share = |wanted: &QueryTable| TABLES.iter().find(|(t, _)| t == wanted).unwrap().1;
        let shares: u64 = QUERIES
            .iter()
            .map(|q| q.iter().map(share).sum::<u64>())
            .sum();
        shape.bytes / 1000 * shares / SCAN_BYTES
    }

    /// Every read takes the disk and the processor; look-ups are a quarter of the scans'.
    fn near(found: &QueriesMeasured, shape: QueriesShape) -> bool {
        let reads = scans(shape) as f64 * 1.25;
        let span = reads * (READ + Nanos::from_micros(100)).0 as f64;
        (found.whole().reads as f64 / reads - 1.0).abs() < 0.03
            && (found.span().0 as f64 / span - 1.0).abs() < 0.03
    }

    #[test]
    fn a_run_takes_what_its_reads_take() {
        let found = measured(SHAPE);
        assert_eq!(found.queries.len(), 22);
        assert_eq!(TABLES.iter().map(|(_, share)| share).sum::<u64>(), 1000);
        assert!(near(&found, SHAPE), "{:?}", found.whole());
        let whole = found.whole();
        assert_eq!(whole.taken, Nanos(whole.reads * READ.0));
        // The sixth query scans the table of the first.
        let ratio = found.queries[5].0 as f64 / found.queries[0].0 as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn canary_a_parameter_that_is_wrong_is_seen() {
        let slower = QueriesShape {
            processor: Nanos::from_micros(130),
            ..SHAPE
        };
        let more = QueriesShape {
            lookups: 0.32,
            ..SHAPE
        };
        for wrong in [slower, more] {
            assert!(!near(&measured(wrong), SHAPE), "{wrong:?}");
        }
    }

    #[test]
    fn the_database_lies_in_pieces_and_no_two_share_a_place() {
        assert_eq!(SHAPE.place(0), 0);
        assert_eq!(SHAPE.place((8 << 20) - 1), (8 << 20) - 1);
        assert_eq!(SHAPE.place(8 << 20), 16 << 20);
        let (start, end) = SHAPE.table(Orders);
        assert_eq!(start, SHAPE.table(Lineitem).1);
        assert!(end > start && SHAPE.table(Supplier).1 <= SHAPE.bytes);
    }
}
