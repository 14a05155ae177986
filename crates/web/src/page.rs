//! The page's files, which are built from `web/` and kept beside its source, so
//! that the binary is built without Node.

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};
use std::fmt::Write;

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
struct PageFiles;

/// The page itself.
pub async fn index(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

/// A file that the page loads.
pub async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(&format!("assets/{name}"), &headers)
}

fn answer(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = PageFiles::get(path) else {
        return crate::problem::no_such_address().into_response();
    };
    let tag = tag(&file);
    let same = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known == &*tag);
    let kind = match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    // Names stay when content changes, so that browsers have to ask.
    let sent = [
        (header::ETAG, &*tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_TYPE, kind),
    ];
    if same {
        (StatusCode::NOT_MODIFIED, sent).into_response()
    } else {
        (sent, file.data).into_response()
    }
}

fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let tag = hash[..16]
        .iter()
        .fold(String::from("W/\""), |mut tag, byte| {
            let _ = write!(tag, "{byte:02x}");
            tag
        });
    tag + "\""
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The list in `web/vite.config.js`.
    fn sources(root: &Path) -> Vec<String> {
        let mut found: Vec<String> = [
            "index.html",
            "package-lock.json",
            "package.json",
            "tsconfig.json",
            "vite.config.js",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut open = vec![PathBuf::from("src"), PathBuf::from("public")];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(root.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    open.push(path);
                } else {
                    found.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn the_built_page_is_that_of_its_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
        let mut hash = Sha256::new();
        for file in sources(&root) {
            hash.update(&file);
            hash.update([0]);
            hash.update(fs::read(root.join(file)).unwrap());
            hash.update([0]);
        }
        let digits = hash
            .finalize()
            .iter()
            .fold(String::new(), |text, b| text + &format!("{b:02x}"));
        let noted = fs::read_to_string(root.join("built.sha256")).unwrap();
        assert_eq!(noted.trim(), digits, "build it again: `make page`");
    }

    #[test]
    fn the_page_is_small_and_asks_no_other_host() {
        let bytes: usize = super::PageFiles::iter()
            .map(|name| super::PageFiles::get(&name).unwrap().data.len())
            .sum();
        assert!(bytes < 300 << 10, "{bytes} bytes even before compression");
        let index = super::PageFiles::get("index.html").unwrap();
        let index = std::str::from_utf8(&index.data).unwrap().to_owned();
        assert!(
            !index.contains("://") && !index.contains("<style"),
            "{index}"
        );
    }
}
