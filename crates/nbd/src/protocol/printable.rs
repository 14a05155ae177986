//! Text of a peer, which ends on terminals and in logs.

/// Characters of a peer's text that are shown.
const CHARS_MAX: usize = 256;

/// `text` of a peer in one line of printable characters: all others are escaped. Text beyond
/// [`CHARS_MAX`] characters is left out.
pub fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        match c {
            _ if n == CHARS_MAX => {
                shown.push_str("...");
                break;
            }
            '"' | '\'' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_peer_moves_a_cursor_or_begins_a_line() {
        let evil =
            "\x1b]0;owned\x07\r\nhotset: volume v is served\0\u{9b}31m\u{202e} \"ä\"".as_bytes();
        let shown = printable(evil);
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert!(
            shown.starts_with("\\u{1b}]0;owned") && shown.ends_with("\\u{202e} \"ä\""),
            "{shown}"
        );
        assert!(printable(b"no \xff").ends_with('\u{fffd}'));
        assert_eq!(printable(&[b'A'; 3000]).len(), CHARS_MAX + 3);
    }
}
