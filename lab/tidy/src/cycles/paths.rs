//! The paths that a file's code holds: those it imports, and those it names in place.

use crate::source::words;

/// An imported name, and its path.
pub(super) struct Import {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    /// The import is visible to modules that name this one.
    pub(super) is_public: bool,
}

/// Everything that the `use` declarations of `code` bring in.
pub(super) fn imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for at in words(code, "use") {
        let tree = &code[at + 3..];
        if let (false, Some(end)) = (tree.starts_with('<'), tree.find(';')) {
            let from = imports.len();
            spread(&tree[..end], &[], &mut imports);
            let before = code[..at].trim_end();
            let is_public = before.ends_with("pub") || before.ends_with(')');
            for import in &mut imports[from..] {
                import.is_public = is_public;
            }
        }
    }
    imports
}

/// The code without its imports.
pub(super) fn body(code: &str) -> String {
    let mut body = String::new();
    let mut from = 0;
    for at in words(code, "use") {
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        if at >= from && !code[at + 3..].starts_with('<') {
            body += &code[from..at];
            from = end;
        }
    }
    body + &code[from..]
}

/// Takes a tree of imports apart.
fn spread(tree: &str, above: &[String], imports: &mut Vec<Import>) {
    let tree = tree.trim().trim_start_matches("::");
    let (path, rest) = match tree.find('{') {
        Some(open) => (&tree[..open], Some(&tree[open + 1..])),
        None => (tree, None),
    };
    let (path, alias) = match path.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim())),
        None => (path, None),
    };
    let mut full = above.to_vec();
    let segments = path.split("::").map(str::trim);
    full.extend(segments.filter(|part| !part.is_empty()).map(str::to_string));
    let Some(rest) = rest else {
        if full.len() > above.len() && full.last().is_some_and(|last| last == "self") {
            full.pop();
        }
        if let Some(last) = full.last() {
            let name = alias.unwrap_or(last).to_string();
            imports.push(Import {
                name,
                path: full,
                is_public: false,
            });
        }
        return;
    };
    let mut depth = 0;
    let mut from = 0;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                spread(&rest[from..at], &full, imports);
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths that begin with `start` and go on, named anywhere in `code`.
pub(super) fn named(code: &str, start: &str) -> Vec<Vec<String>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let begins = words(code, start).filter(|&at| !code[..at].trim_end().ends_with("::"));
    let whole = |at: usize| {
        let rest = &code[at..];
        let end = rest.find(|c: char| !is_name(c) && c != ':');
        let path = rest[..end.unwrap_or(rest.len())].split("::");
        path.filter(|part| !part.is_empty())
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    begins.map(whole).filter(|path| path.len() > 1).collect()
}
