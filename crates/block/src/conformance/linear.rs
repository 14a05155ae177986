//! Checks that concurrent requests on bytes could have run one after another.
//!
//! Every request of a round was called before any returned, so every order is
//! allowed; one must explain each read and the bytes left behind. All orders are
//! tried: exact, and quick for the five or six requests of a round.

use std::ops::Range;

/// A request of a round, and the bytes that a read returned.
pub(super) enum LinearEvent {
    Read(Range<usize>, Vec<u8>),
    Write(Range<usize>, Vec<u8>),
}

/// True if some order of `events` turns `before` into `after`.
pub(super) fn explains(before: &[u8], events: &[LinearEvent], after: &[u8]) -> bool {
    let mut left: Vec<_> = events.iter().collect();
    search(before, &mut left, after)
}

fn search(bytes: &[u8], left: &mut Vec<&LinearEvent>, after: &[u8]) -> bool {
    if left.is_empty() {
        return bytes == after;
    }
    for i in 0..left.len() {
        let event = left.swap_remove(i);
        let explained = match event {
            LinearEvent::Read(range, seen) => {
                bytes[range.clone()] == **seen && search(bytes, left, after)
            }
            LinearEvent::Write(range, data) => {
                let mut next = bytes.to_vec();
                next[range.clone()].copy_from_slice(data);
                search(&next, left, after)
            }
        };
        left.push(event);
        let last = left.len() - 1;
        left.swap(i, last);
        if explained {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(range: Range<usize>, byte: u8) -> LinearEvent {
        let data = vec![byte; range.len()];
        LinearEvent::Write(range, data)
    }

    #[test]
    fn accepts_what_an_order_explains() {
        let events = [
            write(0..4, 1),
            LinearEvent::Read(1..3, vec![1, 1]),
            write(2..6, 2),
            LinearEvent::Read(0..6, vec![0, 0, 2, 2, 2, 2]),
        ];
        assert!(!explains(&[0; 6], &events, &[1, 1, 2, 2, 2, 2]));
        assert!(explains(&[0; 6], &events[..3], &[1, 1, 2, 2, 2, 2]));
        assert!(explains(&[0; 6], &events[..3], &[1, 1, 1, 1, 2, 2]));
    }

    #[test]
    fn refuses_a_torn_overlap() {
        let events = [write(0..4, 1), write(0..4, 2)];
        assert!(!explains(&[0; 4], &events, &[1, 1, 2, 2]));
    }

    #[test]
    fn refuses_a_read_that_sees_half_a_write() {
        let events = [write(0..4, 1), LinearEvent::Read(0..4, vec![0, 0, 1, 1])];
        assert!(!explains(&[0; 4], &events, &[1; 4]));
    }
}
