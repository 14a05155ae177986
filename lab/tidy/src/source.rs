//! A Rust file taken apart: code without comments and literals, comments, and the modules that the
//! file declares.
//!
//! Invariant: `code` is the text with comments and the insides of literals blanked, byte by byte,
//! so a place in one is the same place in the other.

/// A comment: one line, or a block.
pub(crate) struct Comment {
    pub(crate) line: usize,
    /// After the slashes and the marks of documentation.
    pub(crate) text: String,
    pub(crate) is_doc: bool,
}

pub(crate) struct RustSource {
    pub(crate) code: String,
    pub(crate) comments: Vec<Comment>,
}

impl RustSource {
    pub(crate) fn parse(text: &str) -> RustSource {
        let bytes = text.as_bytes();
        let mut code = bytes.to_vec();
        let mut comments = Vec::new();
        let mut i = 0;
        while i < bytes.len() {
            let rest = &text.as_bytes()[i..];
            let len = if rest.starts_with(b"//") {
                let len = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                comments.push(Comment::new(text, i, len));
                len
            } else if rest.starts_with(b"/*") {
                let len = block_comment(rest);
                comments.push(Comment::new(text, i, len));
                len
            } else if let Some(len) = literal(rest, i.checked_sub(1).map(|p| bytes[p])) {
                len
            } else {
                i += 1;
                continue;
            };
            for byte in &mut code[i..i + len] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            i += len;
        }
        let code = String::from_utf8_lossy(&code).into_owned();
        RustSource { code, comments }
    }

    /// The code with modules under `#[cfg(test)]` blanked.
    pub(crate) fn shipped(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        let mut from = 0;
        while let Some(at) = self.code[from..].find("#[cfg(test)]").map(|at| from + at) {
            let item = &self.code[at..];
            let len = match (item.find('{'), item.find(';')) {
                (Some(open), end) if end.is_none_or(|end| open < end) => body(item, open),
                (_, Some(end)) => end + 1,
                _ => item.len(),
            };
            for byte in &mut code[at..at + len] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            from = at + len;
        }
        String::from_utf8_lossy(&code).into_owned()
    }
}

impl Comment {
    fn new(text: &str, at: usize, len: usize) -> Comment {
        let comment = &text[at..at + len];
        let is_doc = ["///", "//!", "/**", "/*!"]
            .iter()
            .any(|m| comment.starts_with(m));
        Comment {
            line: line_of(text, at),
            text: comment.trim_start_matches(['/', '*', '!']).trim().into(),
            is_doc,
        }
    }
}

/// The line, from 1, of the byte `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
        + 1
}

/// The length of `item` up to the brace that closes the one at `open`.
pub(crate) fn body(item: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, byte) in item.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    item.len()
}

/// Places of `word` in `code` outside of longer names.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = code[..at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            !before.is_some_and(is_name) && !after.is_some_and(is_name)
        })
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut i = 0;
    while i < rest.len() {
        match &rest[i..rest.len().min(i + 2)] {
            b"/*" => (depth, i) = (depth + 1, i + 2),
            b"*/" => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    rest.len()
}

/// The length of the string, character or raw string that starts here.
fn literal(rest: &[u8], before: Option<u8>) -> Option<usize> {
    let in_name = before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    match rest {
        [b'"', ..] => Some(quoted(rest, b'"')),
        [b'r', b'"' | b'#', ..] if !in_name => raw(rest, 1),
        [b'b', b'r', b'"' | b'#', ..] if !in_name => raw(rest, 2),
        [b'\'', b'\\', ..] => Some(quoted(rest, b'\'')),
        [b'\'', tail @ ..] => {
            // A lifetime has no closing quote after its first character.
            let first = std::str::from_utf8(tail).ok()?.chars().next()?.len_utf8();
            (tail.get(first) == Some(&b'\'')).then_some(first + 2)
        }
        _ => None,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            byte if byte == quote => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

fn raw(rest: &[u8], prefix: usize) -> Option<usize> {
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes)).into_bytes();
    let inside = &rest[open + 1..];
    let at = inside.windows(end.len()).position(|window| window == end);
    Some(at.map_or(rest.len(), |at| open + 1 + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let text = "let a = \"// no\"; // yes\nlet b = '\\''; /* x /* y */ */ let c: &'a str = r#\"\"q\"#;";
        let source = RustSource::parse(text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.comments.len(), 2);
        assert_eq!(
            (source.comments[0].line, source.comments[0].text.as_str()),
            (1, "yes")
        );
        assert!(source.code.contains("let c: &'a str ="));
        assert!(!source.code.contains('q') && !source.code.contains("no"));
    }

    #[test]
    fn test_modules_are_not_shipped() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c(); }\n}\nfn d() {}\n#[cfg(test)]\nmod e;\nfn f() {}";
        let shipped = RustSource::parse(text).shipped();
        let has = |name: &str| words(&shipped, name).next().is_some();
        assert!(has("a") && has("d") && has("f"));
        assert!(!has("b") && !has("c") && !has("e"));
    }
}
