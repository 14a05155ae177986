//! The bytes that suites write and expect to read.
//!
//! Every sector written carries its address and a version in each of its words,
//! so that a wrong sector says where its bytes come from.

use super::rng::mix;
use crate::{Content, Extent, Lba, SECTOR_BYTES};
use std::collections::BTreeMap;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Fills `bytes`, which will lie at `at`, with the stamp of `version`.
pub(super) fn stamp(bytes: &mut [u8], at: Lba, version: u64) {
    for (lba, sector) in (at.0..).zip(bytes.chunks_mut(SECTOR)) {
        let key = mix(lba ^ mix(version));
        sector[..8].copy_from_slice(&lba.to_le_bytes());
        sector[8..16].copy_from_slice(&version.to_le_bytes());
        for (i, word) in sector.chunks_exact_mut(8).enumerate().skip(2) {
            word.copy_from_slice(&mix(key.wrapping_add(i as u64)).to_le_bytes());
        }
    }
}

/// The origin of a sector's bytes, by their content.
pub(super) fn describe(sector: &[u8]) -> String {
    if sector.iter().all(|&b| b == 0) {
        return "zeroes".into();
    }
    let word = |i: usize| u64::from_le_bytes(sector[i..i + 8].try_into().expect("8 bytes"));
    let (lba, version) = (word(0), word(8));
    let mut whole = [0; SECTOR];
    stamp(&mut whole, Lba(lba), version);
    let same = sector.iter().zip(&whole).filter(|(a, b)| a == b).count();
    match same {
        SECTOR => format!("sector {lba} of version {version}"),
        16..=32 => "bytes never written here".into(),
        _ => format!("{same} of {SECTOR} bytes of sector {lba} of version {version}"),
    }
}

enum SuiteSector {
    Zero,
    Bytes(Box<[u8]>),
}

/// The bytes a device must hold, sector by sector; absent sectors may hold
/// anything.
#[derive(Default)]
pub(super) struct ByteModel(BTreeMap<u64, SuiteSector>);

impl ByteModel {
    pub(super) fn write(&mut self, at: Lba, bytes: &[u8]) {
        for (lba, sector) in (at.0..).zip(bytes.chunks(SECTOR)) {
            self.0.insert(lba, SuiteSector::Bytes(sector.into()));
        }
    }

    pub(super) fn zero(&mut self, extent: Extent) {
        for lba in extent.start.0..extent.end().0 {
            self.0.insert(lba, SuiteSector::Zero);
        }
    }

    pub(super) fn forget(&mut self, extent: Extent) {
        for lba in extent.start.0..extent.end().0 {
            self.0.remove(&lba);
        }
    }

    /// The first sector of `bytes`, read from `at`, that is wrong.
    pub(super) fn verify(&self, at: Lba, bytes: &[u8]) -> Result<(), String> {
        for (lba, found) in (at.0..).zip(bytes.chunks(SECTOR)) {
            let expected: &[u8] = match self.0.get(&lba) {
                None => continue,
                Some(SuiteSector::Zero) => &[0; SECTOR],
                Some(SuiteSector::Bytes(bytes)) => bytes,
            };
            if found != expected {
                let (found, expected) = (describe(found), describe(expected));
                return Err(format!("sector {lba} holds {found}, must hold {expected}"));
            }
        }
        Ok(())
    }

    /// The first sector that a run of extents calls empty and that is not.
    pub(super) fn verify_content(&self, extent: Extent, content: Content) -> Result<(), String> {
        if content == Content::Data {
            return Ok(());
        }
        for (lba, sector) in self.0.range(extent.start.0..extent.end().0) {
            if let SuiteSector::Bytes(bytes) = sector
                && bytes.iter().any(|&b| b != 0)
            {
                return Err(format!("sector {lba} is called {content:?} and holds data"));
            }
        }
        Ok(())
    }

    /// The known sectors in runs of at most `most`, aligned to `most`.
    pub(super) fn runs(&self, most: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &lba in self.0.keys() {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == lba && !lba.is_multiple_of(most) => {
                    *len += 1
                }
                _ => runs.push((lba, 1)),
            }
        }
        runs
    }
}
