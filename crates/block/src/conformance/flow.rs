//! The bytes that suites send over streams.

use super::rng::mix;
use crate::{Address, SharedBuf};

/// Byte `at` of the flow `id`.
pub(super) fn flow_byte(id: u64, at: u64) -> u8 {
    mix(id ^ mix(at / 8)).to_le_bytes()[(at % 8) as usize]
}

/// An address of the same kind as `address`, without a listener.
pub(super) fn nowhere(address: &Address) -> Address {
    match address {
        Address::Unix(path) => Address::Unix(format!("{path}.nobody").into()),
        Address::Tcp(_) => Address::Tcp("127.0.0.1:1".into()),
    }
}

/// Cuts `data` into parts of the lengths given, and the rest.
pub(super) fn cut(data: SharedBuf, lens: impl IntoIterator<Item = usize>) -> Vec<SharedBuf> {
    let mut from = 0;
    let mut parts = Vec::new();
    for len in lens {
        let to = (from + len).min(data.len());
        if to > from {
            parts.push(data.slice(from..to));
        }
        from = to;
    }
    if from < data.len() {
        parts.push(data.slice(from..data.len()));
    }
    parts
}
