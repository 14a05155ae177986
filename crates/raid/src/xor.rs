//! Parity: exclusive or, a word at a time in a form that compilers vectorise.

/// Computes `into ^= from`; panics if their lengths differ.
pub fn xor(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= *b;
    }
}

/// Computes chunk `lost` of `band`, chunks of `len`, from the others.
pub(crate) fn rebuild_in(band: &mut [u8], len: usize, lost: usize) {
    let Some(at) = lost.checked_mul(len).filter(|at| at + len <= band.len()) else {
        return;
    };
    let (before, rest) = band.split_at_mut(at);
    let (into, after) = rest.split_at_mut(len);
    into.fill(0);
    before.chunks_exact(len).for_each(|chunk| xor(into, chunk));
    after.chunks_exact(len).for_each(|chunk| xor(into, chunk));
}

#[cfg(test)]
mod tests {
    use super::xor;

    #[test]
    fn what_is_taken_twice_is_gone() {
        let (a, b): (Vec<u8>, Vec<u8>) = (0..4099_u32).map(|i| (i as u8, (i * 7) as u8)).unzip();
        let mut c = a.clone();
        xor(&mut c, &b);
        assert!(c.iter().zip(&a).zip(&b).all(|((c, a), b)| *c == a ^ b));
        xor(&mut c, &b);
        assert_eq!(c, a);
    }
}
