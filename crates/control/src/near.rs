//! Names near a name that nothing has.

/// The likeness from which on a name counts as near, as for options of the command line.
const LIKENESS_MIN: f64 = 0.7;

/// A question for the one of `names` that is nearest to `wanted`, to append to a clause. Empty if
/// none is near.
pub fn meant<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let likeness = |name: &'a str| (strsim::jaro(wanted, name), name);
    let others = names.into_iter().filter(|name| *name != wanted);
    let near = others.map(likeness).filter(|near| near.0 > LIKENESS_MIN);
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, name)) => format!(" (did you mean {name}?)"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_asked_for_and_a_far_one_is_not() {
        let names = ["db", "archive", "archive2", "web"];
        for (wanted, expected) in [
            ("dbb", " (did you mean db?)"),
            ("archiv", " (did you mean archive?)"),
            ("archve2", " (did you mean archive2?)"),
            ("mail", ""),
            ("", ""),
        ] {
            assert_eq!(meant(wanted, names), expected, "{wanted}");
        }
        assert_eq!(meant("db", ["db"]), "");
        assert_eq!(meant("db", []), "");
    }
}
