//! Cuts a stream of bytes into lines, within a bound.

/// The longest line on the control socket, in bytes, without its end.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes received and not yet cut.
#[derive(Default)]
pub(crate) struct LineBuffer {
    pending: Vec<u8>,
}

/// A line is longer than [`LINE_BYTES_MAX`].
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

impl LineBuffer {
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole line, without its end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        match self.pending.iter().position(|byte| *byte == b'\n') {
            Some(end) if end > LINE_BYTES_MAX => Err(TooLong),
            Some(end) => {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                Ok(Some(line))
            }
            None if self.pending.len() > LINE_BYTES_MAX => Err(TooLong),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let mut lines = LineBuffer::default();
        lines.push(b"one\ntw");
        assert_eq!(lines.next(), Ok(Some(b"one".to_vec())));
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"o\n\n");
        assert_eq!(lines.next(), Ok(Some(b"two".to_vec())));
        assert_eq!(lines.next(), Ok(Some(Vec::new())));
        assert_eq!(lines.next(), Ok(None));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut lines = LineBuffer::default();
        lines.push(&vec![b'x'; LINE_BYTES_MAX]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"x");
        assert_eq!(lines.next(), Err(TooLong));
        let mut lines = LineBuffer::default();
        lines.push(&vec![b'x'; LINE_BYTES_MAX + 1]);
        lines.push(b"\n");
        assert_eq!(lines.next(), Err(TooLong));
    }
}
