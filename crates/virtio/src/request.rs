//! A request as its descriptors describe it: none of their values is trusted.
//!
//! Invariants:
//!     a chain without an end, or with too many descriptors to see one, is broken
//!     values are read once: the guest may change them afterwards
//!     extents lie inside the disk, and data is at most `REQUEST_MAX` bytes

use crate::layout::{
    DISCARD_MAX, GuestVerb, HEADER_BYTES, ID_BYTES, RANGE_BYTES, REQUEST_MAX, SEGMENTS_MAX,
};
use crate::shape::GuestDiskShape;
use block::{Extent, Fua, Lba, Request, SECTOR_BYTES, Sectors};
use virtio_bindings::bindings::virtio_blk as blk;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory};

/// Most descriptors of a chain: for the data, header and status, and for the small pieces that a
/// guest may use as buffers.
const DESCRIPTORS_MAX: usize = 4 * SEGMENTS_MAX as usize;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;

/// A part of the guest's memory, which may be unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryPiece {
    at: GuestAddress,
    len: u32,
}

/// Parts of the guest's memory, one after the other.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct MemoryPieces(Vec<MemoryPiece>);

/// An unmapped place in the guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unmapped;

impl MemoryPieces {
    fn len(&self) -> u64 {
        self.0.iter().map(|piece| u64::from(piece.len)).sum()
    }

    /// Takes the first `len` bytes off. The pieces must have that many.
    fn split_to(&mut self, len: usize) -> MemoryPieces {
        let (mut head, mut left) = (Vec::new(), len as u32);
        while left > 0 {
            let first = &mut self.0[0];
            let part = first.len.min(left);
            head.push(MemoryPiece {
                at: first.at,
                len: part,
            });
            left -= part;
            if part == first.len {
                self.0.remove(0);
            } else {
                // The place of an unmapped address does not matter.
                first.at = GuestAddress(first.at.raw_value().wrapping_add(part.into()));
                first.len -= part;
            }
        }
        MemoryPieces(head)
    }

    /// Takes the last byte off. The pieces must have one.
    fn split_last(&mut self) -> GuestAddress {
        while self.0.last().is_some_and(|piece| piece.len == 0) {
            self.0.pop();
        }
        let last = self.0.last_mut().expect("a byte is there");
        last.len -= 1;
        GuestAddress(last.at.raw_value().wrapping_add(last.len.into()))
    }

    /// Copies the bytes to `to`, which has the same length.
    pub(crate) fn read(&self, memory: &impl GuestMemory, to: &mut [u8]) -> Result<(), Unmapped> {
        let mut rest = to;
        for piece in &self.0 {
            let (part, after) = rest.split_at_mut(piece.len as usize);
            memory.read_slice(part, piece.at).map_err(|_| Unmapped)?;
            rest = after;
        }
        Ok(())
    }

    /// Copies `from`, which has the same length, to the pieces.
    pub(crate) fn write(&self, memory: &impl GuestMemory, from: &[u8]) -> Result<(), Unmapped> {
        let mut rest = from;
        for piece in &self.0 {
            let (part, after) = rest.split_at(piece.len as usize);
            memory.write_slice(part, piece.at).map_err(|_| Unmapped)?;
            rest = after;
        }
        Ok(())
    }
}

/// The operation of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChainRequest {
    /// A request for the volume, with the place of its data.
    Request(Request, MemoryPieces),
    /// The name of the disk.
    Id(MemoryPieces),
    /// An operation that is refused, with its status.
    Refused(u8),
}

/// A chain of descriptors with a place for its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parsed {
    pub(crate) asked: ChainRequest,
    pub(crate) status: GuestAddress,
}

/// A chain without a place for a status: its guest only gets the descriptors back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// Place of a ring's descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorTable {
    pub(crate) at: GuestAddress,
    pub(crate) len: u16,
}

/// Passes the descriptors of the chain that begins at `head` to `each`, in order.
///
/// `virtio-queue` has no chain for a head that is served again, and does not distinguish a chain
/// that has ended from a broken one.
fn walk(
    memory: &impl GuestMemory,
    mut table: DescriptorTable,
    head: u16,
    mut each: impl FnMut(Descriptor) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let (mut next, mut is_indirect) = (head, false);
    for _ in 0..DESCRIPTORS_MAX {
        if next >= table.len {
            return Err(Broken);
        }
        let at = table.at.checked_add(u64::from(next) * DESCRIPTOR_BYTES);
        let descriptor: Descriptor = at.and_then(|at| memory.read_obj(at).ok()).ok_or(Broken)?;
        if descriptor.refers_to_indirect_table() {
            let (count, rest) = (
                u64::from(descriptor.len()) / DESCRIPTOR_BYTES,
                u64::from(descriptor.len()) % DESCRIPTOR_BYTES,
            );
            if is_indirect || descriptor.has_next() || rest != 0 {
                return Err(Broken);
            }
            table = DescriptorTable {
                at: descriptor.addr(),
                len: u16::try_from(count).map_err(|_| Broken)?,
            };
            (next, is_indirect) = (0, true);
            continue;
        }
        each(descriptor)?;
        if !descriptor.has_next() {
            return Ok(());
        }
        next = descriptor.next();
    }
    Err(Broken)
}

/// Reads the chain that begins at `head`.
pub(crate) fn parse(
    memory: &impl GuestMemory,
    table: DescriptorTable,
    head: u16,
    shape: &GuestDiskShape,
    fua: Fua,
) -> Result<Parsed, Broken> {
    let (mut readable, mut writable) = (MemoryPieces::default(), MemoryPieces::default());
    walk(memory, table, head, |descriptor| {
        let piece = MemoryPiece {
            at: descriptor.addr(),
            len: descriptor.len(),
        };
        match descriptor.is_write_only() {
            true => writable.0.push(piece),
            false if writable.0.is_empty() => readable.0.push(piece),
            false => return Err(Broken),
        }
        Ok(())
    })?;
    if writable.len() == 0 {
        return Err(Broken);
    }
    let status = writable.split_last();
    let asked = ask(memory, readable, writable, shape, fua);
    let asked = asked.unwrap_or_else(|refusal| ChainRequest::Refused(refusal as u8));
    Ok(Parsed { asked, status })
}

fn ask(
    memory: &impl GuestMemory,
    mut readable: MemoryPieces,
    writable: MemoryPieces,
    shape: &GuestDiskShape,
    fua: Fua,
) -> Result<ChainRequest, u32> {
    let (error, unsupported) = (blk::VIRTIO_BLK_S_IOERR, blk::VIRTIO_BLK_S_UNSUPP);
    let mut header = [0; HEADER_BYTES];
    if readable.len() < HEADER_BYTES as u64 {
        return Err(error);
    }
    let bytes = readable.split_to(HEADER_BYTES);
    bytes.read(memory, &mut header).map_err(|Unmapped| error)?;
    let (kind, sector) = (word(&header, 0), long(&header, 8));
    let verb = GuestVerb::decode(kind).ok_or(unsupported)?;
    let data = match verb {
        GuestVerb::Read | GuestVerb::Id => writable,
        _ => readable,
    };
    let extent = |sector: u64, sectors: u64| {
        let extent = Extent::new(Lba(sector), Sectors(sectors));
        let end = sector.checked_add(sectors);
        let fits = sectors > 0 && end.is_some_and(|end| end <= shape.geometry.sectors.0);
        fits.then_some(extent).ok_or(error)
    };
    let transfer = || {
        let bytes = data.len();
        let whole = bytes.is_multiple_of(SECTOR_BYTES) && bytes <= REQUEST_MAX.into();
        whole.then_some(bytes / SECTOR_BYTES).ok_or(error)
    };
    let request = match verb {
        GuestVerb::Read => Request::Read(extent(sector, transfer()?)?),
        GuestVerb::Write => Request::Write(extent(sector, transfer()?)?, fua),
        GuestVerb::Flush => Request::Flush,
        GuestVerb::Id if data.len() == ID_BYTES as u64 => return Ok(ChainRequest::Id(data)),
        GuestVerb::Id => return Err(error),
        GuestVerb::Discard | GuestVerb::Zero => {
            let mut range = [0; RANGE_BYTES];
            // One range alone, as the disk announces.
            if data.len() != RANGE_BYTES as u64 {
                return Err(unsupported);
            }
            data.read(memory, &mut range).map_err(|Unmapped| error)?;
            let (sectors, flags) = (word(&range, 8), word(&range, 12));
            let known = match verb {
                GuestVerb::Zero => blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
                _ => 0,
            };
            if flags & !known != 0 {
                return Err(unsupported);
            }
            if sectors > DISCARD_MAX {
                return Err(error);
            }
            let extent = extent(long(&range, 0), sectors.into())?;
            match verb {
                GuestVerb::Zero => Request::Zero(extent),
                _ => Request::Discard(extent),
            }
        }
    };
    let data = match request {
        Request::Read(_) | Request::Write(..) => data,
        _ => MemoryPieces::default(),
    };
    Ok(ChainRequest::Request(request, data))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
