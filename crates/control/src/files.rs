//! The files of a configuration: one, and those of `conf.d` beside it.
//!
//! Lines are numbered through all files, one after the other, so that a number identifies the file
//! too; [`ConfigurationFiles::place`] shows the file.
//!
//! Invariant: each file is read by itself: parameters before its first title belong to no section
//! of the file before.

use crate::problem::ConfigurationProblem;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// The directory of further files.
pub(crate) const DIRECTORY: &str = "conf.d";

/// A file as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigurationFile {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

impl ConfigurationFile {
    fn read(path: &Path) -> Result<ConfigurationFile, Unreadable> {
        let fails = |cause| (path.to_owned(), cause);
        if path.to_str().is_none() {
            let what = "its name is not UTF-8; rename it";
            return Err(fails(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let text = fs::read_to_string(path).map_err(fails)?;
        let path = std::path::absolute(path).map_err(fails)?;
        Ok(ConfigurationFile { path, text })
    }

    pub(crate) fn lines(&self) -> u32 {
        self.text.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1
    }
}

/// A file that cannot be read, and why.
pub type Unreadable = (PathBuf, io::Error);

/// The files of a configuration, in the order in which they are read.
#[derive(Clone, Default, Debug)]
pub struct ConfigurationFiles(Arc<[ConfigurationFile]>);

impl From<&str> for ConfigurationFiles {
    /// One text without a file.
    fn from(text: &str) -> ConfigurationFiles {
        ConfigurationFiles::from(vec![ConfigurationFile {
            path: PathBuf::new(),
            text: text.to_owned(),
        }])
    }
}

impl From<&String> for ConfigurationFiles {
    fn from(text: &String) -> ConfigurationFiles {
        ConfigurationFiles::from(text.as_str())
    }
}

impl From<Vec<ConfigurationFile>> for ConfigurationFiles {
    fn from(files: Vec<ConfigurationFile>) -> ConfigurationFiles {
        ConfigurationFiles(files.into())
    }
}

/// The lines that a change writes to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FileDifference {
    /// Absolute path of the file.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
    /// Number of the first new line, from 1 on.
    pub line: usize,
    /// The lines that the file loses.
    pub lost: Vec<String>,
    /// The lines in their place.
    pub new: Vec<String>,
}

impl ConfigurationFiles {
    /// Reads the file at `path`, and the files of `conf.d` beside it.
    pub fn read(path: &Path) -> Result<ConfigurationFiles, Unreadable> {
        let mut files = vec![ConfigurationFile::read(path)?];
        let beside = path.parent().unwrap_or(Path::new("")).join(DIRECTORY);
        for path in dropped_in(&beside)? {
            files.push(ConfigurationFile::read(&path)?);
        }
        Ok(ConfigurationFiles::from(files))
    }

    /// The files, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigurationFile> {
        self.0.iter()
    }

    /// The file that was named by the caller of [`ConfigurationFiles::read`].
    pub fn main(&self) -> Option<&Path> {
        let first = self.0.first().map(|file| file.path.as_path());
        first.filter(|path| !path.as_os_str().is_empty())
    }

    /// The same files, with `text` in the file at `path`.
    pub fn with(&self, path: &Path, text: String) -> ConfigurationFiles {
        let mut files = self.0.to_vec();
        let changed = files.iter_mut().find(|file| file.path == path);
        if let Some(file) = changed {
            file.text = text;
        }
        ConfigurationFiles::from(files)
    }

    /// The first file of `now`, the same files after a change, that differs from this one.
    pub fn difference(&self, now: &ConfigurationFiles) -> Option<FileDifference> {
        let mut both = self.iter().zip(now.iter());
        let (before, after) = both.find(|(before, after)| before.text != after.text)?;
        let old: Vec<&str> = before.text.lines().collect();
        let new: Vec<&str> = after.text.lines().collect();
        let same = |(old, new): &(&&str, &&str)| old == new;
        let head = old.iter().zip(&new).take_while(same).count();
        let (old, rest) = (&old[head..], &new[head..]);
        let tail = old.iter().rev().zip(rest.iter().rev()).take_while(same);
        let tail = tail.count();
        let (lost, said) = (&old[..old.len() - tail], &rest[..rest.len() - tail]);
        let blank = said.iter().take_while(|line| line.trim().is_empty());
        let blank = blank.count();
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Some(FileDifference {
            path: after.path.clone(),
            line: head + blank + 1,
            lost: owned(lost),
            new: owned(&said[blank..]),
        })
    }

    /// The file and line of a line that is numbered through all files.
    pub fn place(&self, line: u32) -> String {
        let mut before = 0;
        for (n, file) in self.iter().enumerate() {
            let is_last = n + 1 == self.0.len();
            if line <= before + file.lines() || is_last {
                return match file.path.as_os_str().is_empty() {
                    true => format!("line {}", line - before),
                    false => format!("{}:{}", file.path.display(), line - before),
                };
            }
            before += file.lines();
        }
        format!("line {line}")
    }

    /// A problem with its file and line.
    pub fn show(&self, problem: &ConfigurationProblem) -> String {
        format!("{}: {}", self.place(problem.line), problem.text())
    }
}

/// The files of `directory`, if the directory exists, in the order of their names.
fn dropped_in(directory: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let fails = |cause| (directory.to_owned(), cause);
    let entries = match fs::read_dir(directory) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fails)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(fails)?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        if is_hidden || path.extension() != Some(OsStr::new("toml")) {
            continue;
        }
        // An open of a pipe would wait for the pipe's other end.
        if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            let what = "it is no regular file; remove it";
            return Err((path, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_as_text_is_refused_by_name() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("hotset.toml");
        fs::write(&main, "").unwrap();
        let beside = dir.path().join(DIRECTORY);
        fs::create_dir(&beside).unwrap();
        let odd = beside.join(OsStr::from_bytes(b"50-b\xfccher.toml"));
        fs::write(&odd, "").unwrap();
        let (path, why) = ConfigurationFiles::read(&main).unwrap_err();
        assert!(
            path == odd && why.to_string().contains("not UTF-8"),
            "{why}"
        );
        fs::remove_file(&odd).unwrap();
        // A reader of a pipe waits for its writer.
        let pipe = beside.join("pipe.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let (path, why) = ConfigurationFiles::read(&main).unwrap_err();
        assert!(
            path == pipe && why.to_string().contains("no regular file"),
            "{why}"
        );
    }

    #[test]
    fn a_change_is_found_with_the_lines_that_say_it() {
        let of = |text: &str| {
            let file = |path: &str, text: &str| ConfigurationFile {
                path: path.into(),
                text: text.to_owned(),
            };
            ConfigurationFiles::from(vec![file("first", "same\n"), file("second", text)])
        };
        let before = of("a\nb\n\nc\n");
        for (text, lines) in [
            ("a\nx\n\nc\n", 2..3),
            ("a\nb\n\nc\n\nd\ne\n", 6..8),
            ("a\n\nc\n", 2..2),
            ("b\n\nc\n", 1..1),
            ("", 1..1),
        ] {
            let now = of(text);
            let found = before.difference(&now).unwrap();
            let shown = (
                found.path.as_path(),
                found.line..found.line + found.new.len(),
            );
            assert_eq!(shown, (Path::new("second"), lines), "{text:?}");
            let mut replaced: Vec<&str> = "a\nb\n\nc\n".lines().collect();
            let new: Vec<&str> = text.lines().collect();
            let head = replaced
                .iter()
                .zip(&new)
                .take_while(|(a, b)| a == b)
                .count();
            let lost = head..head + found.lost.len();
            replaced.splice(lost, found.new.iter().map(String::as_str));
            let blank = |line: &&str| !line.trim().is_empty();
            assert!(
                replaced
                    .into_iter()
                    .filter(blank)
                    .eq(new.into_iter().filter(blank))
            );
        }
        assert_eq!(before.difference(&before.clone()), None);
    }
}
