//! The archive: the parts as files of a compressed tar, below one folder.

use super::part::SupportPart;
use crate::platform::machine;
use amend::DraftFile;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io;
use std::path::Path;
use tar::{Builder, Header};

/// Writes the parts that are there to a new file, which then takes the place of `path`. Returns its
/// size.
pub fn write(path: &Path, parts: &[SupportPart]) -> io::Result<u64> {
    let (draft, file) = DraftFile::make(path)?;
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    let folder = folder(path);
    for part in parts {
        let Ok(text) = &part.text else {
            continue;
        };
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(machine::time_of_day());
        let name = format!("{folder}/{}", part.name);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    let file = archive.into_inner()?.finish()?;
    file.sync_all()?;
    draft.replace(path)?;
    Ok(file.metadata()?.len())
}

/// The name of the archive without its endings.
fn folder(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = [".gz", ".tgz", ".tar"].iter().fold(&*name, |name, ending| {
        name.strip_suffix(ending).unwrap_or(name)
    });
    match name.is_empty() {
        true => "hotset-support".into(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_name_without_endings() {
        for (path, expected) in [
            ("/tmp/a.tar.gz", "a"),
            ("a.tgz", "a"),
            ("a.b.tar", "a.b"),
            ("/tmp/.tar.gz", "hotset-support"),
        ] {
            assert_eq!(folder(Path::new(path)), expected);
        }
    }
}
