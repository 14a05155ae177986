//! Collects a message of known size from a stream split anywhere.

/// The first bytes of an incomplete message, up to `N`.
#[derive(Clone, Debug)]
pub struct Gather<const N: usize> {
    held: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Gather<N> {
    fn default() -> Self {
        Gather {
            held: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> Gather<N> {
    /// The next `N` bytes, taken off `input`; `None` once `input` is used up.
    #[inline]
    pub fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if self.len == 0
            && let Some((whole, rest)) = input.split_first_chunk::<N>()
        {
            *input = rest;
            return Some(*whole);
        }
        self.take_first(N, input)
    }

    /// The next `want` bytes (`want <= N`) at the front of an array; its further bytes are
    /// unspecified. A caller asks for the same `want` until all bytes have arrived.
    pub fn take_first(&mut self, want: usize, input: &mut &[u8]) -> Option<[u8; N]> {
        let n = input.len().min(want - self.len);
        let (part, rest) = input.split_at(n);
        self.held[self.len..self.len + n].copy_from_slice(part);
        self.len += n;
        *input = rest;
        if self.len < want {
            return None;
        }
        self.len = 0;
        Some(self.held)
    }

    /// True if part of a message is held.
    pub fn is_partial(&self) -> bool {
        self.len > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn splits_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(0usize..40, 0..40)) {
            let mut gather = Gather::<7>::default();
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (mut piece, tail) = rest.split_at(cut.min(rest.len()));
                rest = tail;
                while let Some(message) = gather.take(&mut piece) {
                    got.extend(message);
                }
                prop_assert!(piece.is_empty());
            }
            prop_assert_eq!(&got[..], &bytes[..bytes.len() / 7 * 7]);
            prop_assert_eq!(gather.is_partial(), bytes.len() % 7 != 0);
        }
    }
}
