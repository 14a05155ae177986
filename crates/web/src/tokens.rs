//! The tokens that clients sign in with. The file keeps their hashes alone.
//!
//! A token has 256 random bits, so that a plain hash cannot be searched.

use control::replace::{PRIVATE, replace};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The rights of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenRole {
    /// Look.
    ReadOnly,
    /// Look, and change.
    Operator,
}

impl TokenRole {
    const ALL: [TokenRole; 2] = [TokenRole::Operator, TokenRole::ReadOnly];

    fn name(self) -> &'static str {
        match self {
            TokenRole::ReadOnly => "read-only",
            TokenRole::Operator => "operator",
        }
    }
}

/// The hash of a secret.
pub type Hash = [u8; 32];

/// Hashes a secret.
pub fn hash(secret: &str) -> Hash {
    Sha256::digest(secret).into()
}

/// A secret of 256 random bits, in hexadecimal.
pub fn secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    hex(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The tokens there are, one a role.
#[derive(Debug)]
pub struct Tokens(Vec<(TokenRole, Hash)>);

impl Tokens {
    /// Reads the file, or makes a new one. The lines are the new tokens, one a role.
    pub fn load_or_make(path: &Path) -> Result<(Tokens, Vec<String>), String> {
        let shown = path.display();
        match fs::read_to_string(path) {
            Ok(text) => {
                let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
                if mode & 0o077 != 0 {
                    return Err(format!(
                        "{shown} can be read by others; `chmod 600` it, or remove it for new tokens"
                    ));
                }
                let tokens = Tokens::parse(&text).ok_or_else(|| {
                    format!(
                        "{shown} holds no tokens of hotset, or not both; remove it for new ones"
                    )
                })?;
                Ok((tokens, Vec::new()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let fresh = TokenRole::ALL.map(|role| (role, secret()));
                let tokens = Tokens(fresh.iter().map(|(r, token)| (*r, hash(token))).collect());
                tokens.write(path).map_err(|error| {
                    format!(
                        "{shown} cannot be written ({error}); name another directory with --state"
                    )
                })?;
                let line =
                    |(role, token): &(TokenRole, String)| format!("{} token: {token}", role.name());
                Ok((tokens, fresh.iter().map(line).collect()))
            }
            Err(error) => Err(format!(
                "{shown} cannot be read ({error}); name another directory with --state"
            )),
        }
    }

    /// The tokens of a file.
    pub fn parse(text: &str) -> Option<Tokens> {
        let line = |line: &str| {
            let (name, digits) = line.split_once(' ')?;
            let role = TokenRole::ALL
                .into_iter()
                .find(|role| role.name() == name)?;
            let mut hash = [0; 32];
            if digits.len() != 64 || !digits.is_ascii() {
                return None;
            }
            for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            Some((role, hash))
        };
        let tokens: Option<Vec<_>> = text.lines().map(line).collect();
        let has_all = |tokens: &Vec<(TokenRole, Hash)>| {
            let has = |role| tokens.iter().any(|(other, _)| *other == role);
            TokenRole::ALL.into_iter().all(has)
        };
        tokens.filter(has_all).map(Tokens)
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        let line = |(role, hash): &(TokenRole, Hash)| format!("{} {}\n", role.name(), hex(hash));
        let lines: String = self.0.iter().map(line).collect();
        replace(path, PRIVATE, lines)
    }

    /// The role of a client with this token.
    pub fn role(&self, token: &str) -> Option<TokenRole> {
        let shown = hash(token);
        let found = self.0.iter().find(|(_, hash)| *hash == shown);
        found.map(|(role, _)| *role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_shown_once_and_kept_as_hashes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/tokens");
        let (made, shown) = Tokens::load_or_make(&path).unwrap();
        assert_eq!(shown.len(), 2);
        let token = |line: &String| line.rsplit_once(' ').unwrap().1.to_owned();
        let [operator, reader] = [token(&shown[0]), token(&shown[1])];
        assert_eq!(made.role(&operator), Some(TokenRole::Operator));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(!fs::read_to_string(&path).unwrap().contains(&operator));
        let (again, shown) = Tokens::load_or_make(&path).unwrap();
        assert!(shown.is_empty());
        assert_eq!(again.role(&reader), Some(TokenRole::ReadOnly));
        assert_eq!(again.role("guess"), None);
    }

    #[test]
    fn files_that_others_read_or_that_hold_something_else_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let with = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Tokens::load_or_make(&path).unwrap_err()
        };
        assert!(with(&format!("operator {}\n", "0".repeat(64)), 0o644).contains("chmod 600"));
        for text in [
            "",
            "operator",
            "operator 00\n",
            "admin 00\n",
            // One of the two is missing.
            &format!("operator {}\n", "0".repeat(64)),
            &format!("operator {}\n", "é".repeat(32)),
        ] {
            assert!(with(text, 0o600).contains("holds no tokens"), "{text}");
        }
    }
}
