//! Puts the faults of many mutations into one build: a function that some of them change has a
//! body for each, and a variable of the environment chooses.
//!
//! Invariant: with nothing chosen each function has its own body.

use super::mutation::Mutation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The variable that has the place of the mutation chosen.
pub(super) const CHOICE: &str = "HOTSET_MUTATION";

/// Sources with many mutations.
#[derive(Default)]
pub(super) struct Woven {
    /// The text of each file that has some.
    pub files: BTreeMap<PathBuf, String>,
    /// The mutations in them, by their places in the set.
    pub chosen: BTreeSet<usize>,
    functions: Vec<Function>,
}

/// A function of a file, its lines once woven, and its mutations.
struct Function {
    file: PathBuf,
    lines: Range<usize>,
    mutations: Vec<usize>,
}

impl Woven {
    /// Weaves `mutations` into the workspace at `root`, but for those `apart` and those that lie
    /// outside of a function or around another's.
    pub fn new(
        root: &Path,
        mutations: &[Mutation],
        apart: &BTreeSet<usize>,
    ) -> Result<Woven, String> {
        let mut woven = Woven::default();
        let files: BTreeSet<_> = mutations.iter().map(|m| &m.file).collect();
        for file in files {
            let path = root.join(file);
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let all = mutations.iter().enumerate();
            let here = all.filter(|(i, m)| m.file == *file && !apart.contains(i));
            woven.add(file, &text, here)?;
        }
        Ok(woven)
    }

    /// Adds a file and its mutations.
    fn add<'a>(
        &mut self,
        file: &Path,
        text: &str,
        mutations: impl Iterator<Item = (usize, &'a Mutation)>,
    ) -> Result<(), String> {
        let bodies = bodies(text);
        // By the start of each function: its end, and the bodies that may take its body's place.
        let mut functions: BTreeMap<usize, (usize, Vec<(usize, String)>)> = BTreeMap::new();
        for (index, mutation) in mutations {
            let place = mutation.place(text)?;
            let is_around = |body: &&Range<usize>| body.start < place.start && place.end < body.end;
            let Some(body) = bodies.iter().find(is_around) else {
                continue;
            };
            let before = &text[body.start..place.start];
            let changed = [before, &mutation.replace, &text[place.end..body.end]].concat();
            let (_, all) = functions
                .entry(body.start)
                .or_insert((body.end, Vec::new()));
            all.push((index, changed));
        }
        let (mut done, mut at) = (String::new(), 0);
        for (start, (end, all)) in functions {
            if start < at {
                continue;
            }
            done.push_str(&text[at..start]);
            let first = lines_of(&done);
            done.push_str(&side_by_side(&text[start..end], &all));
            let mutations: Vec<_> = all.iter().map(|(index, _)| *index).collect();
            self.chosen.extend(&mutations);
            self.functions.push(Function {
                file: file.to_path_buf(),
                lines: first..lines_of(&done) + 1,
                mutations,
            });
            at = end;
        }
        if at > 0 {
            done.push_str(&text[at..]);
            self.files.insert(file.to_path_buf(), done);
        }
        Ok(())
    }

    /// The mutations of the functions in which the compiler found errors; all mutations if the
    /// errors are elsewhere.
    pub fn blamed(&self, log: &str) -> BTreeSet<usize> {
        let mut blamed = BTreeSet::new();
        for place in log
            .lines()
            .filter_map(|l| l.trim_start().strip_prefix("--> "))
        {
            let mut parts = place.split(':');
            let (Some(file), Some(Ok(line))) = (parts.next(), parts.next().map(str::parse)) else {
                continue;
            };
            for function in &self.functions {
                if function.file == Path::new(file) && function.lines.contains(&line) {
                    blamed.extend(&function.mutations);
                }
            }
        }
        match blamed.is_empty() {
            true => self.chosen.clone(),
            false => blamed,
        }
    }
}

/// The number of the line on which a text ends.
fn lines_of(text: &str) -> usize {
    1 + text.matches('\n').count()
}

/// A body that is `sound` unless a mutation of the body is chosen.
fn side_by_side(sound: &str, changed: &[(usize, String)]) -> String {
    // A fault may leave code unused or never true.
    let mut body = "{ #![allow(warnings)] ".to_string();
    for (index, changed) in changed {
        body.push_str(&format!(
            "if {{ static CHOSEN: ::std::sync::LazyLock<bool> = ::std::sync::LazyLock::new(|| \
             ::std::env::var(\"{CHOICE}\").is_ok_and(|chosen| chosen == \"{index}\")); *CHOSEN }} \
             {changed} else "
        ));
    }
    body + sound + " }"
}

/// The bodies of functions, with their braces; a nested body comes before the outer one.
fn bodies(text: &str) -> Vec<Range<usize>> {
    let code = blank(text.as_bytes());
    let (mut bodies, mut open) = (Vec::new(), Vec::new());
    // The depth in parentheses, and the depth at which a function's body is expected.
    let (mut depth, mut expected) = (0, None);
    for at in 0..code.len() {
        match code[at] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if expected == Some(depth) => expected = None,
            b'f' if begins_function(&code, at) => expected = Some(depth),
            b'{' => {
                let is_body = expected == Some(depth);
                if is_body {
                    expected = None;
                }
                open.push((at, is_body));
            }
            b'}' => {
                if let Some((start, true)) = open.pop() {
                    bodies.push(start..at + 1);
                }
            }
            _ => {}
        }
    }
    bodies
}

fn begins_function(code: &[u8], at: usize) -> bool {
    let is_apart = at
        .checked_sub(1)
        .is_none_or(|before| !is_word(code[before]));
    is_apart && code[at..].starts_with(b"fn ") && code.get(at + 3).is_some_and(|c| is_word(*c))
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_'
}

/// The text with spaces for comments, strings and characters.
fn blank(text: &[u8]) -> Vec<u8> {
    let mut code = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let len = literal(text, at);
        code[at..at + len].fill(b' ');
        at += len.max(1);
    }
    code
}

/// The length of the comment, string or character that begins at `at`; none is 0.
fn literal(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let to = |end: &[u8], from: usize| {
        let found = rest[from..].windows(end.len()).position(|w| w == end);
        found.map_or(rest.len(), |found| from + found + end.len())
    };
    match rest {
        [b'/', b'/', ..] => to(b"\n", 2) - 1,
        [b'/', b'*', ..] => to(b"*/", 2),
        [b'"', ..] => 1 + quoted(&rest[1..], b'"'),
        [b'r', after @ ..] if at == 0 || !is_word(text[at - 1]) || text[at - 1] == b'b' => {
            let marks = after.iter().take_while(|c| **c == b'#').count();
            match after.get(marks) {
                Some(b'"') => {
                    let end = [&b"\""[..], &vec![b'#'; marks]].concat();
                    to(&end, 2 + marks)
                }
                _ => 0,
            }
        }
        [b'\'', b'\\', ..] => 1 + quoted(&rest[1..], b'\''),
        // A lifetime has no second mark.
        [b'\'', first, ..] => {
            let len = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if rest.get(1 + len) == Some(&b'\'') {
                2 + len
            } else {
                0
            }
        }
        _ => 0,
    }
}

/// The length of a literal that ends with `mark`, which a backslash may precede.
fn quoted(rest: &[u8], mark: u8) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != mark {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r##"
/// Says "fn none() {" and isn't one.
const TEXT: &str = "fn none() {"; // '{'
impl<'a> A<'a> {
    fn outer(&self, f: impl Fn(u8) -> [u8; 2]) -> char {
        async fn inner() { one(r#"}"#) }
        match f(b'{') { _ => '}' }
    }
}
trait B { fn without(&self); fn with(&self) { two('\'') } }
"##;

    #[test]
    fn the_bodies_of_functions_are_found() {
        let of = |range: &Range<usize>| SOURCE[range.clone()].to_string();
        let found: Vec<_> = bodies(SOURCE).iter().map(of).collect();
        assert_eq!(found.len(), 3, "{found:#?}");
        assert_eq!(found[0], r##"{ one(r#"}"#) }"##);
        assert!(
            found[1].starts_with("{\n        async fn inner"),
            "{}",
            found[1]
        );
        assert!(found[1].ends_with("'}' }\n    }"), "{}", found[1]);
        assert_eq!(found[2], r"{ two('\'') }");
    }

    fn mutation(find: &str, replace: &str) -> Mutation {
        Mutation {
            name: find.into(),
            file: "source.rs".into(),
            find: find.into(),
            replace: replace.into(),
            with: Vec::new(),
            test: None,
        }
    }

    #[test]
    fn mutations_lie_side_by_side_and_the_compiler_blames_those_of_a_function() {
        let set = [
            mutation("two('\\'')", "three()"),
            mutation("const TEXT", "static TEXT"),
            mutation("one(r#", "1 + one(r#"),
            mutation("_ => '}'", "_ => 'x'"),
            mutation("two(", "four("),
        ];
        let file = Path::new("source.rs");
        let mut woven = Woven::default();
        woven.add(file, SOURCE, set.iter().enumerate()).unwrap();
        // The constant is of no function, and a mutation within another's body waits.
        assert_eq!(woven.chosen, BTreeSet::from([0, 3, 4]));
        let text = &woven.files[file];
        assert!(text.contains("*CHOSEN } { three() } else if"), "{text}");
        assert!(
            text.contains(r"*CHOSEN } { four('\'') } else { two('\'') } }"),
            "{text}"
        );
        let line = 1 + text.lines().position(|l| l.contains("three()")).unwrap();
        let log = format!("error: no\n   --> source.rs:{line}:9\n");
        assert_eq!(woven.blamed(&log), BTreeSet::from([0, 4]));
        assert_eq!(woven.blamed("error: elsewhere"), woven.chosen);
        let mut woven = Woven::default();
        woven.add(file, SOURCE, [(2, &set[2])].into_iter()).unwrap();
        assert_eq!(woven.chosen, BTreeSet::from([2]));
    }
}
