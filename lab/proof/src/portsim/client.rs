//! The clients and their expected answers. Each place has one request at a time, so that the order
//! of answers alone decides the content of a place.

use super::report::{Class, Report};
use block::{Extent, Fua, IoErrorKind, Lba, Nanos, Request, SECTOR_BYTES, Sectors};
use sim::{PortClient, PortRequest, SimRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The size of a place, which is that of the longest request.
pub(super) const PLACE: Sectors = Sectors(16);

/// The content that a place may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlaceContent {
    Bytes(Vec<u8>),
    /// A change failed, or the bytes were discarded: any bytes, until the next write.
    Anything,
}

/// The clients of one port over all lives of its servers.
pub(super) struct PortSimClients {
    rng: SimRng,
    /// Requests in flight at most.
    depth: usize,
    /// Requests that are yet to be made.
    left: u64,
    next: u64,
    pub places: Vec<PlaceContent>,
    open: BTreeMap<u64, (usize, PortRequest)>,
    pub report: Report,
}

/// The world's handle on the clients.
#[derive(Clone)]
pub(super) struct PortSimShared(pub Rc<RefCell<PortSimClients>>);

impl PortSimClients {
    pub fn new(mut rng: SimRng, places: usize, requests: u64) -> PortSimClients {
        PortSimClients {
            depth: 1 + rng.below(24) as usize,
            rng,
            left: requests,
            next: 0,
            places: vec![PlaceContent::Bytes(vec![0; PLACE.bytes() as usize]); places],
            open: BTreeMap::new(),
            report: Report::default(),
        }
    }

    /// True if every request was made and answered, or after a violation.
    pub fn is_done(&self) -> bool {
        (self.left == 0 && self.open.is_empty()) || self.report.violation.is_some()
    }

    /// Number of requests in flight.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    fn draw(&mut self) -> Option<PortRequest> {
        if self.left == 0 || self.open.len() >= self.depth {
            return None;
        }
        let place = self.rng.below(self.places.len() as u64) as usize;
        let flush = self.rng.chance(0.05);
        if !flush && self.open.values().any(|(other, _)| *other == place) {
            return None;
        }
        let from = self.rng.below(PLACE.0);
        let len = Sectors(1 + self.rng.below(PLACE.0 - from));
        let extent = Extent::new(Lba(place as u64 * PLACE.0 + from), len);
        let mut data = Vec::new();
        let request = match self.rng.below(10) {
            _ if flush => Request::Flush,
            0..=3 => Request::Read(extent),
            4..=7 => {
                let stamp = self.rng.bits();
                let word = |n: u64| stamp.wrapping_mul(2 * n + 1).to_ne_bytes();
                data.extend((0..len.bytes() / 8).flat_map(word));
                let fua = if stamp.is_multiple_of(4) {
                    Fua::Yes
                } else {
                    Fua::No
                };
                Request::Write(extent, fua)
            }
            8 => Request::Zero(extent),
            _ => Request::Discard(extent),
        };
        self.left -= 1;
        self.next += 1;
        let asked = PortRequest {
            id: self.next,
            request,
            data,
        };
        let place = if flush { usize::MAX } else { place };
        self.open.insert(asked.id, (place, asked.clone()));
        Some(asked)
    }

    fn answered(&mut self, id: u64, result: Result<(), IoErrorKind>, data: &[u8]) {
        let Some((place, asked)) = self.open.remove(&id) else {
            let what = format!("request {id} is answered twice, or was never asked");
            return self.report.violate(what);
        };
        self.report.operations += 1;
        let extent = match asked.request {
            Request::Flush => return,
            Request::Read(extent)
            | Request::Write(extent, _)
            | Request::Zero(extent)
            | Request::Discard(extent) => extent,
        };
        let from = (extent.start.0 % PLACE.0 * SECTOR_BYTES) as usize;
        let range = from..from + extent.len.bytes() as usize;
        let content = &mut self.places[place];
        if result.is_err() {
            self.report.meet(Class::Failed);
            if !matches!(asked.request, Request::Read(_)) {
                *content = PlaceContent::Anything;
            }
            return;
        }
        match asked.request {
            Request::Read(_) => {
                if let PlaceContent::Bytes(bytes) = content
                    && bytes[range] != *data
                {
                    let what = format!("request {id}, {:?}, has wrong bytes", asked.request);
                    self.report.violate(what);
                }
            }
            Request::Write(..) if range.len() == PLACE.bytes() as usize => {
                *content = PlaceContent::Bytes(asked.data);
            }
            Request::Write(..) | Request::Zero(_) => {
                if let PlaceContent::Bytes(bytes) = content {
                    match asked.data.is_empty() {
                        true => bytes[range].fill(0),
                        false => bytes[range].copy_from_slice(&asked.data),
                    }
                }
            }
            _ => *content = PlaceContent::Anything,
        }
    }
}

impl PortClient for PortSimShared {
    fn ask(&mut self, _now: Nanos) -> Option<PortRequest> {
        self.0.borrow_mut().draw()
    }

    fn answered(&mut self, id: u64, result: Result<(), IoErrorKind>, data: Vec<u8>) {
        self.0.borrow_mut().answered(id, result, &data);
    }
}
