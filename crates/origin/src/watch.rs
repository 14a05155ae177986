//! Keeps a record true while hotset itself writes to the origin.
//!
//! Invariant, at every instant, if records become durable in the order of [`WriteWatch::begin_write`]
//! and [`WriteWatch::narrow`]:
//!     a watched place may hold x, by a write of hotset ⟹ the durable record
//!     allows x there
//!
//! Only a record that grows must be durable before the write that made it grow. A place that would
//! allow more than [`VALUES_MAX`] values allows anything. So between two calls of `narrow`, a place
//! causes a bounded number of durable records, however often the place is written.
//!
//! A write that fails or is torn may leave a mixture that the record does not allow. The origin is
//! then taken for changed, which costs hits and no byte.

use crate::record::{Allowed, OriginRecord, VALUES_MAX, WatchedPlace, hash};
use block::{Extent, IoResult};

/// The possible contents of one watched place.
struct WatchedBytes {
    /// Content without the loose writes; `None` if unknown.
    settled: Option<u64>,
    /// Writes that no flush has covered, in the order of their beginnings.
    loose: Vec<Loose>,
    /// Number of the last write that began here.
    touched: u64,
}

/// The content that a change leaves in its extent.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// Known bytes for the whole extent.
    Bytes(&'a [u8]),
    /// Zeroes.
    Zeroes,
    /// Unknown content.
    Unknown,
}

/// A place of unknown content without a write of hotset in flight.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    place: usize,
    /// Extent of the place.
    pub extent: Extent,
    touched: u64,
}

struct Loose {
    /// Hash of the content; `None` if the write covers a part alone, or its content is unknown.
    value: Option<u64>,
    write: u64,
    /// Number of the acknowledgement, if there was one.
    acknowledged: Option<u64>,
}

/// Watches the writes to one origin.
pub struct WriteWatch {
    record: OriginRecord,
    places: Vec<WatchedBytes>,
    writes: u64,
    acknowledgements: u64,
}

/// A write that has begun.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct WriteMark(Option<u64>);

impl WriteMark {
    /// True if the write touches a watched place.
    pub fn is_watched(self) -> bool {
        self.0.is_some()
    }
}

/// A flush that has begun.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct FlushMark(u64);

impl WriteWatch {
    /// Starts to watch from `record`, which is durable and true.
    pub fn new(record: OriginRecord) -> WriteWatch {
        let place = |watched: &WatchedPlace| WatchedBytes {
            settled: match &watched.allowed {
                Allowed::These(values) if values.len() == 1 => Some(values[0]),
                _ => None,
            },
            loose: Vec::new(),
            touched: 0,
        };
        WriteWatch {
            places: record.watched.iter().map(place).collect(),
            record,
            writes: 0,
            acknowledgements: 0,
        }
    }

    /// The record to be made durable when [`WriteWatch::begin_write`] requires that.
    pub fn record(&self) -> &OriginRecord {
        &self.record
    }

    /// Begins a change of `extent`. `true`: the record has grown, and must be durable before the
    /// origin is touched.
    pub fn begin_write(&mut self, extent: Extent, left: Left<'_>) -> (WriteMark, bool) {
        let touched = self.touched(extent);
        if touched.is_empty() {
            return (WriteMark(None), false);
        }
        self.writes += 1;
        let mut grown = false;
        for i in touched {
            let watched = self.record.watched[i].extent;
            let len = watched.len.bytes() as usize;
            let value = match left {
                _ if !extent.contains(watched) => None,
                Left::Bytes(bytes) => {
                    let from = (watched.start - extent.start).bytes() as usize;
                    Some(hash(&bytes[from..][..len]))
                }
                Left::Zeroes => Some(hash(&vec![0; len])),
                Left::Unknown => None,
            };
            self.places[i].touched = self.writes;
            self.places[i].loose.push(Loose {
                value,
                write: self.writes,
                acknowledged: None,
            });
            grown |= self.grow(i, value);
        }
        (WriteMark(Some(self.writes)), grown)
    }

    /// The places that overlap `extent`, in order of their starts.
    #[inline]
    fn touched(&self, extent: Extent) -> Vec<usize> {
        let watched = &self.record.watched;
        let end = watched.partition_point(|w| w.extent.start < extent.end());
        let mut touched = Vec::new();
        for (i, place) in watched[..end].iter().enumerate() {
            if place.extent.overlaps(extent) {
                touched.push(i);
            }
        }
        touched
    }

    /// Allows `value` in place `i`. Returns true if the record has grown.
    fn grow(&mut self, i: usize, value: Option<u64>) -> bool {
        let allowed = &mut self.record.watched[i].allowed;
        let Allowed::These(values) = allowed else {
            return false;
        };
        match value {
            Some(value) if values.contains(&value) => return false,
            Some(value) if values.len() < VALUES_MAX => values.push(value),
            _ => *allowed = Allowed::Any,
        }
        true
    }

    /// Ends a write.
    pub fn end_write(&mut self, mark: WriteMark, result: &IoResult) {
        let (Some(write), Ok(())) = (mark.0, result) else {
            return;
        };
        self.acknowledgements += 1;
        let loose = self.places.iter_mut().flat_map(|p| &mut p.loose);
        for loose in loose.filter(|l| l.write == write) {
            loose.acknowledged = Some(self.acknowledgements);
        }
    }

    /// Ends a write that is durable.
    pub fn end_durable(&mut self, mark: WriteMark) {
        let Some(write) = mark.0 else { return };
        for place in &mut self.places {
            let Some(at) = place.loose.iter().position(|l| l.write == write) else {
                continue;
            };
            place.settled = place.loose[at].value;
            let mut earlier = 0;
            place.loose.retain(|loose| {
                earlier += 1;
                // A write without acknowledgement may still reach the device.
                earlier > at + 1 || loose.acknowledged.is_none()
            });
        }
    }

    /// Begins a flush of the origin.
    pub fn begin_flush(&self) -> FlushMark {
        FlushMark(self.acknowledgements)
    }

    /// Ends a successful flush: writes acknowledged before its beginning are durable.
    pub fn end_flush(&mut self, mark: FlushMark) {
        for place in &mut self.places {
            let covered = |l: &Loose| l.acknowledged.is_some_and(|at| at <= mark.0);
            if let Some(last) = place.loose.iter().rposition(covered) {
                place.settled = place.loose[last].value;
                place.loose.drain(..=last);
            }
        }
    }

    /// Ends a flush that failed: a write acknowledged before its beginning may be lost for good, so
    /// that no later flush shows the content.
    pub fn fail_flush(&mut self, mark: FlushMark) {
        for loose in self.places.iter_mut().flat_map(|place| &mut place.loose) {
            if loose.acknowledged.is_some_and(|at| at <= mark.0) {
                loose.value = None;
            }
        }
    }

    /// The number of each place's last write.
    pub fn touches(&self) -> Vec<u64> {
        self.places.iter().map(|place| place.touched).collect()
    }

    /// True if a write of the place at `extent` may be half done or forgotten, or has begun since
    /// `touches` was taken.
    pub fn is_unsteady(&self, extent: Extent, touches: &[u64]) -> bool {
        let places = self.places.iter().zip(&self.record.watched).zip(touches);
        let mut here = places.filter(|((_, watched), _)| watched.extent == extent);
        here.any(|((place, _), touched)| !place.loose.is_empty() || place.touched != *touched)
    }

    /// The places to read for [`WriteWatch::settle`].
    pub fn unsettled(&self) -> Vec<Unsettled> {
        let places = self.places.iter().zip(&self.record.watched).enumerate();
        let unknown = places.filter(|(_, (p, _))| p.settled.is_none() && p.loose.is_empty());
        let place = |(place, (p, watched)): (usize, (&WatchedBytes, &WatchedPlace))| Unsettled {
            place,
            extent: watched.extent,
            touched: p.touched,
        };
        unknown.map(place).collect()
    }

    /// Takes `bytes`, read from a place since [`WriteWatch::unsettled`], as its content, unless a write
    /// touched the place meanwhile.
    pub fn settle(&mut self, read: Unsettled, bytes: &[u8]) {
        let is_there = self.record.watched.get(read.place).map(|w| w.extent) == Some(read.extent);
        if is_there
            && let Some(place) = self.places.get_mut(read.place)
            && place.touched == read.touched
            && place.loose.is_empty()
        {
            place.settled = Some(hash(bytes));
        }
    }

    /// Narrows the record to the values that it must allow. Returns true if it allows less than
    /// before, and is worth a durable write.
    pub fn narrow(&mut self) -> bool {
        let mut narrower = false;
        for (watched, place) in self.record.watched.iter_mut().zip(&self.places) {
            let allowed = place.allowed();
            narrower |= allowed != watched.allowed;
            watched.allowed = allowed;
        }
        narrower
    }
}

impl WatchedBytes {
    fn allowed(&self) -> Allowed {
        let all = std::iter::once(self.settled).chain(self.loose.iter().map(|l| l.value));
        let mut values = Vec::new();
        for value in all {
            match value {
                Some(value) if values.contains(&value) => {}
                Some(value) if values.len() < VALUES_MAX => values.push(value),
                _ => return Allowed::Any,
            }
        }
        Allowed::These(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::What;
    use block::{IoError, IoErrorKind, Lba, Sectors};
    use layout::DeviceIdentity;
    use proptest::prelude::*;

    fn watch(places: &[u64]) -> WriteWatch {
        let place = |start: &u64| WatchedPlace {
            what: What::Sample,
            extent: Extent::new(Lba(*start), Sectors(2)),
            allowed: Allowed::These(vec![hash(&[0; 1024])]),
        };
        WriteWatch::new(OriginRecord {
            identity: DeviceIdentity::default(),
            sectors: Sectors(1000),
            block: Sectors(1),
            watched: places.iter().map(place).collect(),
        })
    }

    #[test]
    fn writes_elsewhere_cost_nothing() {
        let mut watch = watch(&[0, 80]);
        for at in [2, 40, 78, 82] {
            let data = vec![1; 1024];
            let extent = Extent::new(Lba(at), Sectors(2));
            assert!(!watch.begin_write(extent, Left::Bytes(&data)).1);
        }
    }

    #[test]
    fn a_place_costs_a_bounded_number_of_records_until_it_is_narrowed() {
        let mut watch = watch(&[80]);
        let extent = Extent::new(Lba(80), Sectors(2));
        let write = |watch: &mut WriteWatch, byte| {
            let (mark, grown) = watch.begin_write(extent, Left::Bytes(&[byte; 1024]));
            watch.end_write(mark, &Ok(()));
            u32::from(grown)
        };
        let records: u32 = (1..100).map(|i| write(&mut watch, i)).sum();
        assert_eq!(records, VALUES_MAX as u32);
        assert_eq!(watch.record().watched[0].allowed, Allowed::Any);
        let flush = watch.begin_flush();
        watch.end_flush(flush);
        assert!(watch.narrow());
        let last = Allowed::These(vec![hash(&[99; 1024])]);
        assert_eq!(watch.record().watched[0].allowed, last);
        assert!(!watch.narrow());
        assert_eq!(write(&mut watch, 3), 1);
    }

    #[test]
    fn a_write_before_a_failed_flush_may_be_lost_whatever_is_flushed_later() {
        let mut watch = watch(&[80]);
        let extent = Extent::new(Lba(80), Sectors(2));
        let (mark, _) = watch.begin_write(extent, Left::Bytes(&[1; 1024]));
        watch.end_write(mark, &Ok(()));
        let failed = watch.begin_flush();
        watch.fail_flush(failed);
        let flush = watch.begin_flush();
        watch.end_flush(flush);
        watch.narrow();
        assert_eq!(watch.record().watched[0].allowed, Allowed::Any);
        // A read decides.
        let unsettled = watch.unsettled();
        watch.settle(unsettled[0], &[0; 1024]);
        watch.narrow();
        let former = Allowed::These(vec![hash(&[0; 1024])]);
        assert_eq!(watch.record().watched[0].allowed, former);
    }

    #[test]
    fn a_durable_write_settles_what_came_before_it_and_was_acknowledged() {
        let mut watch = watch(&[80]);
        let extent = Extent::new(Lba(80), Sectors(2));
        let begin = |watch: &mut WriteWatch, byte: u8| {
            let (mark, _) = watch.begin_write(extent, Left::Bytes(&[byte; 1024]));
            mark
        };
        let (first, late) = (begin(&mut watch, 1), begin(&mut watch, 2));
        watch.end_write(first, &Ok(()));
        let durable = begin(&mut watch, 3);
        watch.end_write(durable, &Ok(()));
        let touches = watch.touches();
        assert!(watch.is_unsteady(extent, &touches));
        watch.end_durable(durable);
        watch.narrow();
        let of = |byte: u8| hash(&[byte; 1024]);
        let allowed = |watch: &WriteWatch| watch.record().watched[0].allowed.clone();
        assert_eq!(allowed(&watch), Allowed::These(vec![of(3), of(2)]));
        watch.end_write(late, &Ok(()));
        watch.end_durable(late);
        watch.narrow();
        assert_eq!(allowed(&watch), Allowed::These(vec![of(2)]));
        assert!(!watch.is_unsteady(extent, &touches));
        assert!(watch.is_unsteady(extent, &[0]));
    }

    #[test]
    fn what_is_zeroed_is_known_and_what_is_discarded_is_read_again() {
        let mut watch = watch(&[80, 90]);
        let all = Extent::new(Lba(0), Sectors(1000));
        let end = |watch: &mut WriteWatch, mark| {
            watch.end_write(mark, &Ok(()));
            let flush = watch.begin_flush();
            watch.end_flush(flush);
        };
        let (mark, grown) = watch.begin_write(all, Left::Zeroes);
        assert!(!grown, "it held zeroes before");
        end(&mut watch, mark);
        assert!(watch.unsettled().is_empty());

        let (mark, grown) = watch.begin_write(all, Left::Unknown);
        assert!(grown && watch.unsettled().is_empty(), "it is on its way");
        end(&mut watch, mark);
        let unsettled = watch.unsettled();
        assert_eq!(unsettled.len(), 2);
        // A write touches one place during the read.
        let second = Extent::new(Lba(90), Sectors(1));
        let (mark, _) = watch.begin_write(second, Left::Bytes(&[1; 512]));
        end(&mut watch, mark);
        for place in unsettled {
            watch.settle(place, &[7; 1024]);
        }
        watch.narrow();
        let allowed = |at: usize| watch.record().watched[at].allowed.clone();
        assert_eq!(allowed(0), Allowed::These(vec![hash(&[7; 1024])]));
        assert_eq!(allowed(1), Allowed::Any);
    }

    proptest! {
        /// A device of one place: the record durable at a loss of power allows every content that
        /// the place may then have.
        #[test]
        fn what_may_be_there_is_allowed(steps in prop::collection::vec((0u8..8, 0u8..6), 1..80)) {
            let mut watch = watch(&[80]);
            let extent = Extent::new(Lba(80), Sectors(2));
            let mut durable = watch.record().clone();
            let (mut held, mut loose): (u8, Vec<(u8, bool)>) = (0, Vec::new());
            let mut in_flight = None;
            let mut flush = None;
            for (step, byte) in steps {
                match (step, in_flight.take()) {
                    (0..4, None) => {
                        let (mark, grown) = watch.begin_write(extent, Left::Bytes(&[byte; 1024]));
                        if grown {
                            durable = watch.record().clone();
                        }
                        in_flight = Some(mark);
                        loose.push((byte, false));
                    }
                    (_, Some(mark)) => {
                        let failed = step == 7;
                        let error = IoError::new(IoErrorKind::Media, "a failure");
                        let result = if failed { Err(error) } else { Ok(()) };
                        watch.end_write(mark, &result);
                        loose.last_mut().unwrap().1 = !failed;
                    }
                    (4, None) => flush = Some((watch.begin_flush(), loose.len())),
                    (5, None) => if let Some((mark, covers)) = flush.take() {
                        watch.end_flush(mark);
                        if let Some(last) = loose[..covers].iter().rposition(|l| l.1) {
                            held = loose[last].0;
                            loose.drain(..=last);
                        }
                    },
                    _ => if watch.narrow() {
                        durable = watch.record().clone();
                    },
                }
                for byte in loose.iter().map(|l| l.0).chain([held]) {
                    let value = hash(&[byte; 1024]);
                    let allowed = match &durable.watched[0].allowed {
                        Allowed::Any => true,
                        Allowed::These(values) => values.contains(&value),
                    };
                    prop_assert!(allowed, "{byte} is not among {:?}", durable.watched[0]);
                }
            }
        }
    }
}
