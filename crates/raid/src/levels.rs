//! Where an array's sectors lie on its members: pure arithmetic.
//!
//! ```text
//! linear   one member after the other, each with its own size
//! RAID 0   chunk c is on member c mod n, in row c div n
//! RAID 1   every sector at the same place on each member
//! RAID 10  the copies of chunk c take the slots 2c and 2c + 1, and slot s is on member s mod n,
//!          in row s div n; n may be odd (the layout `n2` of Linux md)
//! RAID 5   left-symmetric: the parity of stripe s is on member n - 1 - (s mod n), and its data
//!          begins on the next member and wraps (the default layout of Linux md)
//! ```
//!
//! Invariants:
//!     the pieces of an extent cover it exactly, in order
//!     two different sectors of an array never share a sector of a member
//!     the legs of a piece lie on different members
//!     `can_run` ⟹ each sector can be had from the members that are present

#[cfg(test)]
mod tests;

use block::{Extent, IoError, IoErrorKind, IoResult, Lba, Sectors};
use layout::array::MEMBERS_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most copies of a sector.
pub const LEGS_MAX: usize = 4;

/// A place on a member, counted from the beginning of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leg {
    /// Role of the member.
    pub member: usize,
    /// Sector of the member's data.
    pub at: Lba,
}

/// A run of an array's sectors that is one run on each of its legs.
#[derive(Clone, Copy, Debug)]
pub struct LegPiece {
    /// The sectors of the array.
    pub extent: Extent,
    legs: [Leg; LEGS_MAX],
    copies: usize,
}

impl LegPiece {
    fn new(extent: Extent, legs: impl IntoIterator<Item = Leg>) -> LegPiece {
        let mut piece = LegPiece {
            extent,
            legs: [Leg::default(); LEGS_MAX],
            copies: 0,
        };
        for leg in legs {
            piece.legs[piece.copies] = leg;
            piece.copies += 1;
        }
        piece
    }

    /// Returns the legs that hold the piece.
    pub fn legs(&self) -> &[Leg] {
        &self.legs[..self.copies]
    }

    /// Returns the piece's bytes in a transfer that begins at `start`.
    pub fn bytes(&self, start: Lba) -> std::ops::Range<usize> {
        let from = (self.extent.start - start).bytes() as usize;
        from..from + self.extent.len.bytes() as usize
    }
}

/// Source of a lost member's data, and means to find differences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// No redundancy.
    None,
    /// The same sectors on other members.
    Copies,
    /// The other chunks of a stripe, one of which is parity.
    Parity,
}

/// Distribution of an array's data over its members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// One member after the other.
    Linear,
    /// Chunks in turn, no redundancy.
    Raid0,
    /// The same on each of 2 to 4 members.
    Raid1,
    /// Chunks in turn, each on two neighbouring members.
    Raid10,
    /// Chunks in turn, with a chunk of parity in each stripe.
    Raid5,
}

impl Level {
    /// Every level, by its number in superblocks, which never changes.
    pub const ALL: [Level; 5] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid10,
        Level::Raid5,
    ];

    /// Returns the number of the level in superblocks.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name of the level, in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid10 => "raid10",
            Level::Raid5 => "raid5",
        }
    }

    /// Returns the level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Returns the redundancy of the level.
    pub fn redundancy(self) -> Redundancy {
        match self {
            Level::Linear | Level::Raid0 => Redundancy::None,
            Level::Raid1 | Level::Raid10 => Redundancy::Copies,
            Level::Raid5 => Redundancy::Parity,
        }
    }

    /// True if the array survives the loss of a member.
    pub fn is_redundant(self) -> bool {
        self.redundancy() != Redundancy::None
    }

    /// True if stripes have parity, and changes of them go to a journal first.
    pub(crate) fn has_parity(self) -> bool {
        self.redundancy() == Redundancy::Parity
    }

    /// True if data is spread in chunks.
    pub fn is_striped(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid1)
    }

    /// True if members with neighbouring roles hold the same data.
    pub(crate) fn pairs_neighbours(self) -> bool {
        self == Level::Raid10
    }

    /// Returns the fewest and most members.
    pub fn members(self) -> (usize, usize) {
        match self {
            Level::Linear | Level::Raid0 => (1, MEMBERS_MAX),
            Level::Raid1 => (2, LEGS_MAX),
            Level::Raid10 => (2, MEMBERS_MAX),
            Level::Raid5 => (3, MEMBERS_MAX),
        }
    }
}

/// Copies of RAID 10.
const COPIES: u64 = 2;

/// The geometry of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayShape {
    level: Level,
    /// The sectors used of each member, by role.
    sizes: Box<[Sectors]>,
    chunk: Sectors,
}

impl ArrayShape {
    /// Makes an array over members with room for `sizes`; of striped and mirrored levels the
    /// smallest counts. `chunk` matters to striped levels alone.
    pub fn new(level: Level, sizes: &[Sectors], chunk: Sectors) -> IoResult<ArrayShape> {
        let invalid = |what: String| Err(IoError::new(IoErrorKind::Invalid, what));
        let (fewest, most) = level.members();
        if !(fewest..=most).contains(&sizes.len()) {
            return invalid(format!(
                "{} of {} members is not possible: give from {fewest} to {most}",
                level.name(),
                sizes.len()
            ));
        }
        let pages = chunk.0.is_multiple_of(8);
        if level.is_striped() && !(pages && (8..=8192).contains(&chunk.0)) {
            return invalid(format!(
                "a chunk of {} bytes is not possible: give a multiple of 4 KiB up to 4 MiB",
                chunk.bytes()
            ));
        }
        let unit = if level.is_striped() { chunk.0 } else { 8 };
        let whole = |size: &Sectors| Sectors(size.0 / unit * unit);
        let sizes: Box<[Sectors]> = if level == Level::Linear {
            sizes.iter().map(whole).collect()
        } else {
            let smallest = sizes.iter().map(whole).min().unwrap_or_default();
            vec![smallest; sizes.len()].into()
        };
        if let Some(role) = sizes.iter().position(|size| *size == Sectors::ZERO) {
            return invalid(format!(
                "member {role} is too small: it has no room for one unit of {} KiB",
                unit / 2
            ));
        }
        Ok(ArrayShape {
            level,
            sizes,
            chunk,
        })
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the number of members.
    pub fn members(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the sectors used of a member.
    pub fn member_sectors(&self, role: usize) -> Sectors {
        self.sizes[role]
    }

    /// Returns the sectors on one member before the next follows.
    pub fn chunk(&self) -> Sectors {
        self.chunk
    }

    /// Returns the size of the array.
    pub fn sectors(&self) -> Sectors {
        let (members, size) = (self.members() as u64, self.sizes[0].0);
        Sectors(match self.level {
            Level::Linear => self.sizes.iter().map(|size| size.0).sum(),
            Level::Raid0 => size * members,
            Level::Raid1 => size,
            Level::Raid10 => size / self.chunk.0 * members / COPIES * self.chunk.0,
            Level::Raid5 => size * (members - 1),
        })
    }

    /// Returns the sectors that are best transferred at once: a stripe's data.
    pub fn width(&self) -> Sectors {
        let (members, chunk) = (self.members() as u64, self.chunk.0);
        Sectors(match self.level {
            Level::Linear | Level::Raid1 => 8,
            Level::Raid0 => chunk * members,
            Level::Raid10 if members.is_multiple_of(COPIES) => chunk * members / COPIES,
            // Two rows, as one holds half a pair.
            Level::Raid10 => chunk * members,
            Level::Raid5 => chunk * (members - 1),
        })
    }

    /// Returns the longest piece from `extent`'s start on.
    pub fn first_piece(&self, extent: Extent) -> LegPiece {
        let (start, members) = (extent.start.0, self.members() as u64);
        let unit = self.unit();
        let (chunk, inside) = (start / unit, start % unit);
        let in_chunk = |legs: &mut dyn Iterator<Item = Leg>| {
            let len = extent.len.0.min(unit - inside);
            LegPiece::new(Extent::new(extent.start, Sectors(len)), legs)
        };
        let slot = |slot: u64| Leg {
            member: (slot % members) as usize,
            at: Lba(slot / members * self.chunk.0 + inside),
        };
        match self.level {
            Level::Linear => self.first_of_linear(extent),
            Level::Raid0 => in_chunk(&mut [slot(chunk)].into_iter()),
            Level::Raid1 => {
                let at = extent.start;
                in_chunk(&mut (0..self.members()).map(|member| Leg { member, at }))
            }
            Level::Raid10 => in_chunk(&mut (chunk * COPIES..).take(COPIES as usize).map(slot)),
            Level::Raid5 => {
                let stripe = self.stripe(chunk / (members - 1));
                let leg = Leg {
                    member: stripe.data((chunk % (members - 1)) as usize),
                    at: stripe.row() + Sectors(inside),
                };
                in_chunk(&mut [leg].into_iter())
            }
        }
    }

    /// Returns the sectors on one member before the next follows; no limit where data is not spread
    /// in chunks.
    fn unit(&self) -> u64 {
        match self.level.is_striped() {
            true => self.chunk.0,
            false => u64::MAX,
        }
    }

    fn first_of_linear(&self, extent: Extent) -> LegPiece {
        let mut begin = Lba::ZERO;
        for (member, size) in self.sizes.iter().enumerate() {
            if extent.start < begin + *size {
                let at = extent.start - begin;
                let len = extent.len.0.min((*size - at).0);
                let leg = Leg {
                    member,
                    at: Lba(at.0),
                };
                return LegPiece::new(Extent::new(extent.start, Sectors(len)), [leg]);
            }
            begin = begin + *size;
        }
        unreachable!("callers stay inside the array")
    }

    /// Returns the pieces of `extent`, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = LegPiece> + '_ {
        let mut left = extent;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let piece = self.first_piece(left);
            left = Extent::new(piece.extent.end(), left.len - piece.extent.len);
            Some(piece)
        })
    }

    /// Returns the sectors of the array with data in `extent` of a member's, chunk by chunk.
    pub(crate) fn sectors_at(&self, role: usize, extent: Extent) -> Vec<Extent> {
        let (mut at, mut found, unit) = (extent.start, Vec::new(), self.unit());
        while at < extent.end() {
            let end = Lba((at.0 / unit + 1) * unit).min(extent.end());
            let start = self.sector_at(role, at);
            found.extend(start.map(|start| Extent::new(start, end - at)));
            at = end;
        }
        found
    }

    /// Returns the sector of the array at `at` of a member's data. There is none where parity lies,
    /// behind the last chunk, and on a level without redundancy.
    fn sector_at(&self, role: usize, at: Lba) -> Option<Lba> {
        let (row, inside) = (at.0 / self.unit(), Sectors(at.0 % self.unit()));
        match self.level {
            Level::Linear | Level::Raid0 => None,
            Level::Raid1 => Some(at),
            Level::Raid10 => {
                let slot = row * self.members() as u64 + role as u64;
                let sector = Lba(slot / COPIES * self.chunk.0) + inside;
                (sector.0 < self.sectors().0).then_some(sector)
            }
            Level::Raid5 => {
                let stripe = self.stripe(row);
                let column = stripe.column(role)?;
                Some(stripe.place(column, inside, Sectors(1)).start)
            }
        }
    }

    /// True if the present members hold or can compute every sector.
    pub fn can_run(&self, present: impl Fn(usize) -> bool) -> bool {
        let members = self.members();
        match self.level {
            Level::Linear | Level::Raid0 => (0..members).all(present),
            Level::Raid1 => (0..members).any(present),
            Level::Raid10 => {
                let copies = COPIES as usize;
                let has =
                    |chunk| (0..copies).any(|copy| present((copies * chunk + copy) % members));
                (0..members).all(has)
            }
            Level::Raid5 => (0..members).filter(|role| !present(*role)).count() <= 1,
        }
    }

    /// Returns the stripe with parity that holds a sector.
    pub fn stripe_at(&self, at: Lba) -> ParityStripe {
        self.stripe(at.0 / self.width().0)
    }

    /// Returns the stripe of a number, with parity.
    pub fn stripe(&self, number: u64) -> ParityStripe {
        let members = self.members();
        ParityStripe {
            number,
            parity: members - 1 - (number % members as u64) as usize,
            members,
            chunk: self.chunk,
        }
    }
}

/// A stripe: one chunk on each member, one of them parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParityStripe {
    /// Number of the stripe, from 0.
    pub number: u64,
    /// The member that holds the parity.
    pub parity: usize,
    members: usize,
    chunk: Sectors,
}

impl ParityStripe {
    /// Returns the member that holds data chunk `column`.
    pub fn data(&self, column: usize) -> usize {
        (self.parity + 1 + column) % self.members
    }

    /// Returns the data chunk that `member` holds; `None` for the parity member.
    pub fn column(&self, member: usize) -> Option<usize> {
        (member + self.members - self.parity - 1)
            .checked_rem(self.members)
            .filter(|_| member != self.parity)
    }

    /// Returns the number of data chunks.
    pub fn columns(&self) -> usize {
        self.members - 1
    }

    /// Returns the beginning of the stripe's chunks, on every member.
    pub fn row(&self) -> Lba {
        Lba(self.number * self.chunk.0)
    }

    /// Returns the array's sectors in the stripe.
    pub fn extent(&self) -> Extent {
        let width = Sectors(self.columns() as u64 * self.chunk.0);
        Extent::new(Lba(self.number * width.0), width)
    }

    /// Returns the array's sectors of `len` sectors from `from` on in `column`.
    pub fn place(&self, column: usize, from: Sectors, len: Sectors) -> Extent {
        let start = self.extent().start + Sectors(column as u64 * self.chunk.0) + from;
        Extent::new(start, len)
    }
}

/// A set of an array's roles.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Roles(u32);

const _: () = assert!(MEMBERS_MAX <= u32::BITS as usize);

impl Roles {
    pub fn add(&mut self, role: usize) {
        self.0 |= 1 << role;
    }

    pub fn has(self, role: usize) -> bool {
        self.0 >> role & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |role| self.has(*role))
    }
}

/// Orders the roles for devices of these failure `domains`: neighbours, which hold each other's
/// copies, are in different domains where possible.
pub fn order(level: Level, domains: &[Arc<str>]) -> Vec<usize> {
    let all: Vec<usize> = (0..domains.len()).collect();
    if !level.pairs_neighbours() {
        return all;
    }
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in all.into_iter().rev() {
        groups.entry(&domains[index]).or_default().push(index);
    }
    let mut order: Vec<usize> = Vec::new();
    while order.len() < domains.len() {
        let last = order.last().map(|index| &*domains[*index]);
        let pairs = order.len() % 2 == 1;
        // The fullest domain first, so that it does not remain alone; the one just taken only if
        // there is no other.
        let next = groups
            .iter()
            .filter(|(_, left)| !left.is_empty())
            .max_by_key(|(name, left)| {
                let apart = !pairs || Some(**name) != last;
                (apart, left.len(), std::cmp::Reverse(**name))
            })
            .map(|(name, _)| *name);
        let group = next.and_then(|name| groups.get_mut(name));
        order.extend(group.and_then(Vec::pop));
    }
    order
}

/// Returns a sentence for each failure domain that would stop the array if lost, given the domains
/// of `members`.
pub fn warnings(shape: &ArrayShape, members: &[(usize, Arc<str>)]) -> Vec<String> {
    if !shape.level().is_redundant() {
        return Vec::new();
    }
    let mut domains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (role, domain) in members {
        domains.entry(domain).or_default().push(*role);
    }
    let takes_all = |roles: &Vec<usize>| {
        let stays = |role| members.iter().any(|(r, _)| *r == role) && !roles.contains(&role);
        !shape.can_run(stays)
    };
    let fatal = domains.iter().filter(|(_, roles)| takes_all(roles));
    fatal
        .map(|(domain, roles)| {
            let roles: Vec<_> = roles.iter().map(ToString::to_string).collect();
            let roles = roles.join(", ");
            format!("losing {domain} (members {roles}) stops the array; spread its members over more controllers")
        })
        .collect()
}
