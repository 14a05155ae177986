//! The learnt state of `auto`, as bytes that survive a restart.
//!
//! ```text
//! "hotauto4"  active: u8  shift: u8  misses: f32 x rules  sampled: f32
//! [reads, found]: f32 x 2 x parts held, for each number of uses
//! then for each row of observations that is not empty:
//!     position: u16   [left, reused]: f32 x 2 x buckets
//! ```
//! Little-endian. Which lines are resident is the engine's to remember.

use super::class::{BUCKETS, CLASSES, COARSE};
use super::expert::{EXPERTS, Expert};
use super::fills::{COLUMNS, Fills, ROWS as USES};
use super::hazard::Hazards;

const MAGIC: &[u8; 8] = b"hotauto4";
const HEADER_BYTES: usize = MAGIC.len() + 2 + 4 * (EXPERTS + 1);
const FILLS_BYTES: usize = 8 * USES * COLUMNS;
const ROW_BYTES: usize = 2 + 8 * BUCKETS;
const ROWS: usize = CLASSES + COARSE + 1;

/// The saved part of the policy.
pub(crate) struct AutoState {
    pub(crate) active: Expert,
    /// Scale of the ticks in which ages were counted: see [`super::scale::AgeScale`].
    pub(crate) shift: u8,
    pub(crate) misses: [f32; EXPERTS],
    pub(crate) sampled: f32,
    pub(crate) hazards: Hazards,
}

pub(crate) fn encode(state: &AutoState) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([state.active as u8, state.shift]);
    for value in state.misses.iter().chain([&state.sampled]) {
        out.extend(value.to_le_bytes());
    }
    for value in state.hazards.fills().cells().iter().flatten().flatten() {
        out.extend(value.to_le_bytes());
    }
    for (at, row) in state.hazards.rows().enumerate() {
        if row.iter().any(|[left, _]| *left > 0.0) {
            out.extend((at as u16).to_le_bytes());
            out.extend(row.iter().flatten().flat_map(|value| value.to_le_bytes()));
        }
    }
    out
}

/// `None` if the bytes are not such a state.
pub(crate) fn decode(bytes: &[u8]) -> Option<AutoState> {
    let body = bytes.strip_prefix(MAGIC)?;
    let (fills, rows) = bytes.get(HEADER_BYTES..)?.split_at_checked(FILLS_BYTES)?;
    if !rows.len().is_multiple_of(ROW_BYTES) {
        return None;
    }
    let active = *Expert::ALL.get(usize::from(body[0]))?;
    let shift = Some(body[1]).filter(|shift| u32::from(*shift) < u32::BITS)?;
    let mut header = [0.0; EXPERTS + 1];
    for (value, raw) in header.iter_mut().zip(body[2..].chunks_exact(4)) {
        *value = number(raw)?;
    }
    let mut cells = [[[0.0; 2]; COLUMNS]; USES];
    let values = cells.iter_mut().flatten().flatten();
    for (value, raw) in values.zip(fills.chunks_exact(4)) {
        *value = number(raw)?;
    }
    if cells.iter().flatten().any(|[reads, found]| found > reads) {
        return None;
    }
    let mut parsed = Vec::new();
    for raw in rows.chunks_exact(ROW_BYTES) {
        let at = usize::from(u16::from_le_bytes([raw[0], raw[1]]));
        let mut row = [[0.0; 2]; BUCKETS];
        for (value, raw) in row.iter_mut().flatten().zip(raw[2..].chunks_exact(4)) {
            *value = number(raw)?;
        }
        if at >= ROWS || row.iter().any(|[left, reused]| reused > left) {
            return None;
        }
        parsed.push((at, row));
    }
    let [misses @ .., sampled] = header;
    Some(AutoState {
        active,
        shift,
        misses,
        sampled,
        hazards: Hazards::from_rows(parsed.into_iter(), Fills::of(cells)),
    })
}

/// A count: finite and not negative.
fn number(raw: &[u8]) -> Option<f32> {
    let value = f32::from_le_bytes(raw.try_into().ok()?);
    (value.is_finite() && value >= 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LineParts;
    use crate::auto::class::LineClass;
    use crate::auto::line::PackedLine;

    fn state() -> AutoState {
        let mut hazards = Hazards::new();
        for i in 0..1000u16 {
            let class = LineClass(i * 7 % CLASSES as u16);
            hazards.left(class, usize::from(i) % BUCKETS, i % 3 == 0);
            let line = PackedLine::new(0, class, 1, LineParts::of(u32::from(i) % 16, 1, 4));
            hazards.read(line, LineParts::of(0, 1, 4));
        }
        AutoState {
            active: Expert::Frequency,
            shift: 3,
            misses: [1.0, 2.0, 3.0, 4.0],
            sampled: 10.0,
            hazards,
        }
    }

    #[test]
    fn survives_a_round_trip() {
        let bytes = encode(&state());
        let back = decode(&bytes).expect("decodes");
        assert_eq!(encode(&back), bytes);
        assert_eq!(
            (back.active, back.misses),
            (Expert::Frequency, [1.0, 2.0, 3.0, 4.0])
        );
    }

    #[test]
    fn refuses_damage() {
        let bytes = encode(&state());
        for cut in [0, 1, 8, HEADER_BYTES - 1, HEADER_BYTES + 1, bytes.len() - 1] {
            assert!(decode(&bytes[..cut]).is_none(), "{cut}");
        }
        let row = HEADER_BYTES + FILLS_BYTES;
        for (at, value) in [
            (0, 0),
            (8, 9),
            (9, 32),
            (HEADER_BYTES + 15, 255),
            (row + 1, 255),
        ] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(decode(&damaged).is_none(), "{at}");
        }
        let mut not_a_number = bytes.clone();
        not_a_number[10..14].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(decode(&not_a_number).is_none());
    }
}
