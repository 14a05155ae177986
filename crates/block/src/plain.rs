//! Causes of failures in the words of the operating system, without its numbers.

use std::fmt;

/// The beginning of what the standard library appends to the text of an operating system's error.
const NUMBER: &str = " (os error ";

/// The text of `cause` for people, such as "No such file or directory". Numbers of errors are left
/// out, wherever in the text they are.
pub fn plain(cause: impl fmt::Display) -> String {
    let text = cause.to_string();
    let mut pieces = text.split(NUMBER);
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if is_number(number) => plain += rest,
            _ => plain = plain + NUMBER + piece,
        }
    }
    plain
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{IoError, IoErrorKind};
    use std::io;

    #[test]
    fn an_error_of_the_operating_system_has_no_number() {
        for (number, expected) in [
            (2, "No such file or directory"),
            (5, "Input/output error"),
            (13, "Permission denied"),
            (28, "No space left on device"),
            (111, "Connection refused"),
        ] {
            let cause = io::Error::from_raw_os_error(number);
            assert!(cause.to_string().contains("os error"), "{cause}");
            assert_eq!(plain(&cause), expected);
        }
    }

    #[test]
    fn a_number_inside_of_a_text_goes_and_the_rest_stays() {
        let cause = io::Error::from_raw_os_error(2);
        let around = io::Error::other(format!("a ({cause}), b ({cause}); c"));
        assert_eq!(
            plain(around),
            "a (No such file or directory), b (No such file or directory); c"
        );
        let nested = io::Error::other(cause);
        assert_eq!(plain(nested), "No such file or directory");
    }

    #[test]
    fn a_cause_without_a_number_stays_as_it_is() {
        for text in [
            "",
            "x",
            "a (b)",
            "a (os error ",
            "a (os error )",
            "a (os error x)",
        ] {
            assert_eq!(plain(io::Error::other(text)), text);
        }
    }

    #[test]
    fn a_source_of_an_error_has_no_number() {
        let cause = io::Error::from_raw_os_error(13);
        let error = IoError::new(IoErrorKind::Denied, "cannot be opened").because(cause);
        assert_eq!(error.to_string(), "cannot be opened: Permission denied");
        assert_eq!(error.duplicate().to_string(), error.to_string());
        let outer = IoError::new(IoErrorKind::Other, "no pool").because(error);
        assert_eq!(
            outer.to_string(),
            "no pool: cannot be opened: Permission denied"
        );
    }
}
