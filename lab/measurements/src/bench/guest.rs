//! Measurements of the guest of `vm/`: hotset beside the caches of its kernel.

use super::BenchRow;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `script`, which prints a row a line, with the program `hotset`.
pub fn rows(script: &Path, hotset: &Path) -> io::Result<Vec<BenchRow>> {
    let explain = |what: String| io::Error::other(format!("{}: {what}", script.display()));
    let output = Command::new(script)
        .arg("--binary")
        .arg(hotset)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| explain(e.to_string()))?;
    if !output.status.success() {
        return Err(explain(output.status.to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // The packages that the script installs are listed there too.
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let rows: Result<Vec<BenchRow>, _> = lines.map(serde_json::from_str).collect();
    match rows {
        Ok(rows) if rows.is_empty() => Err(explain("it printed no row".into())),
        Ok(rows) => Ok(rows),
        Err(error) => Err(explain(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn rows_are_read_and_all_else_is_an_error() {
        let dir = std::env::temp_dir().join(format!("bench-guest-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join("script");
        let run = |body: &str| {
            std::fs::write(&script, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
            rows(&script, Path::new("hotset"))
        };
        let row = r#"{"name":"a","unit":"errors","ours":0,"peer":3,"peer_name":"b",
            "ratio_median":null,"ratio_min":null,"ratio_max":null,"runs":1,"goal":"at most 0","met":true}"#;
        let row = row.replace('\n', " ");
        let read = run(&format!("echo installing; echo '{row}'")).unwrap();
        assert_eq!((read.len(), read[0].peer), (1, Some(3.0)));
        assert!(run(&format!("echo '{row}'; exit 1")).is_err());
        assert!(run("echo '{}'").is_err());
        assert!(run("true").is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
