//! All input of an operator is read or refused, without a panic.

use crate::drive::drive;
use proptest::collection::vec;
use proptest::prelude::*;

const GOOD: &str = r#"[daemon]
buffers = "64MiB"
[[device]]
name = "a"
path = "/a"
model = "SAS15K"
[[device]]
name = "b"
nbd = "nbd+unix:///v?socket=/s"
[[pool]]
name = "p"
devices = ["b"]
line_size = "64KiB"
[[volume]]
name = "v"
origin = "a"
pool = "p"
size = 4096
[[listen]]
tcp = "127.0.0.1:1"
"#;

/// A piece of a configuration, for any place.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("[[device]]\n".to_owned()),
        Just("= ".to_owned()),
        Just("\"".to_owned()),
        Just("[".to_owned()),
        Just("\n".to_owned()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("name = \"a\"\n".to_owned()),
        "\\PC{0,8}",
    ]
}

proptest! {
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        drive(&bytes);
    }

    #[test]
    fn any_text(text in "\\PC{0,100}") {
        drive(text.as_bytes());
    }

    #[test]
    fn a_good_configuration_changed(
        changes in vec((0..GOOD.len(), 0..20_usize, piece()), 1..4),
    ) {
        let mut text = GOOD.to_owned();
        for (at, cut, piece) in changes {
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &piece);
            }
        }
        drive(text.as_bytes());
    }

    #[test]
    fn uris(rest in "[a-z0-9/?=%:\\[\\]]{0,30}", scheme in prop_oneof!["nbd://", "nbd\\+unix:///"]) {
        drive(format!("{scheme}{rest}").as_bytes());
    }
}

#[test]
fn the_good_one_is_good() {
    let mut problems = Vec::new();
    let config = control::config::parse(GOOD, &mut problems);
    control::check::agreement(&config, &["SAS15K"], &mut problems);
    assert_eq!(problems, []);
    drive(GOOD.as_bytes());
}
