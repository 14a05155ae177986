//! The files under check, and the findings.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold no source of ours.
const SKIPPED: [&str; 5] = ["target", "fuzz", "node_modules", "dist", "var"];
/// Files worth reading, by the end of their names.
const READ: [&str; 13] = [
    ".rs", ".toml", ".md", ".sh", ".py", ".yml", ".yaml", ".ts", ".tsx", ".css", ".html", ".cff",
    "Makefile",
];

/// Paths relative to the root, with `/`; and the texts of those that are read.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Tree {
    /// A tree made of texts, for canaries.
    pub fn from_texts(files: &[(&str, &str)]) -> Tree {
        let own = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
        Tree {
            files: files.iter().map(own).collect(),
            others: Vec::new(),
        }
    }

    /// Reads the tree under `root`.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) && name != ".git" {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if READ.iter().any(|end| name.ends_with(end)) {
                self.files.insert(path, fs::read_to_string(entry.path())?);
            } else {
                self.others.push(path);
            }
        }
        Ok(())
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The tree's own copy of a path that is read.
    pub(crate) fn path(&self, path: &str) -> Option<&str> {
        self.files
            .get_key_value(path)
            .map(|(path, _)| path.as_str())
    }

    /// True if a file or a folder has this path, whatever its contents.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let is = |other: &String| other == path || other.starts_with(&folder);
        self.files.keys().chain(&self.others).any(is)
    }

    /// Files with a path that ends in `end`, in order of path.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self
            .files
            .iter()
            .filter(move |(path, _)| path.ends_with(end));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every file that was read.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("")
    }
}

/// The folders of the workspace's crates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// `crates/`.
    Product,
    /// `lab/`.
    Laboratory,
}

/// The room of a path, or none outside of both.
pub(crate) fn room(path: &str) -> Option<Room> {
    match path.split_once('/')?.0 {
        "crates" => Some(Room::Product),
        "lab" => Some(Room::Laboratory),
        _ => None,
    }
}

/// The crate of a path, and the path inside the crate.
pub(crate) fn in_crate(path: &str) -> Option<(&str, &str)> {
    room(path)?;
    path.split_once('/')?.1.split_once('/')
}

/// A fault to mend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    /// `what` is the fault and its remedy; lines count from 1.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.into(),
            line,
            what: what.into(),
        }
    }

    /// The fault and its remedy.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}
