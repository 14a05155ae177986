//! Reads a configuration from all of its files.

use crate::config::{Config, part};
use crate::files::ConfigurationFiles;
use crate::problem::ConfigurationProblem;

impl ConfigurationFiles {
    /// Reads the configuration. Appends its problems, as [`crate::config::parse`] does.
    pub fn parse(&self, problems: &mut Vec<ConfigurationProblem>) -> Config {
        let mut before = 0;
        let mut all: Option<Config> = None;
        let mut daemon: Option<u32> = None;
        for file in self.iter() {
            let shifted = "\n".repeat(before as usize) + &file.text;
            let part = part(&shifted, problems);
            before += file.lines();
            let Some(all) = &mut all else {
                daemon = part.daemon;
                all = Some(part.config);
                continue;
            };
            if let (Some(first), Some(line)) = (daemon, part.daemon) {
                let what = format!("there is a second [daemon] ({})", self.place(first));
                problems.push(ConfigurationProblem::new(
                    line,
                    what,
                    "write all of it in one place",
                ));
            }
            daemon = daemon.or(part.daemon);
            let mut more = part.config;
            if part.daemon.is_some() {
                all.daemon = more.daemon;
            }
            all.devices.append(&mut more.devices);
            all.arrays.append(&mut more.arrays);
            all.pools.append(&mut more.pools);
            all.volumes.append(&mut more.volumes);
            all.attachments.append(&mut more.attachments);
            all.listeners.append(&mut more.listeners);
        }
        let mut config = all.unwrap_or_else(|| part("", problems).config);
        config.files = self.clone();
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::DIRECTORY;
    use std::fs;

    #[test]
    fn files_are_read_in_order_and_each_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("hotset.toml");
        let beside = dir.path().join(DIRECTORY);
        let device = |name: &str| format!("[[device]]\nname = \"{name}\"\npath = \"/{name}\"\n");
        fs::write(&main, device("a")).unwrap();
        assert_eq!(ConfigurationFiles::read(&main).unwrap().iter().count(), 1);
        fs::create_dir(&beside).unwrap();
        for (name, text) in [
            ("20.toml", device("c") + "[daemon]\ngrace = \"1s\"\n"),
            ("10.toml", device("b") + "[[device]]\nname = 3\n"),
            (".30.toml", device("hidden")),
            ("40.toml~", device("backup")),
        ] {
            fs::write(beside.join(name), text).unwrap();
        }
        let files = ConfigurationFiles::read(&main).unwrap();
        let mut problems = Vec::new();
        let config = files.parse(&mut problems);
        let names = config.devices.iter().map(|device| device.name.as_str());
        assert!(names.eq(["a", "b", "c"]));
        assert_eq!(config.daemon.grace.value.as_secs(), 1);
        let shown: Vec<String> = problems.iter().map(|p| files.show(p)).collect();
        let at = |name: &str, line| format!("{}:{line}: ", beside.join(name).display());
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with(&at("10.toml", 5)), "{shown:?}");
        assert!(files.place(3).ends_with("hotset.toml:3"));

        // A parameter before any title belongs to no section of the file before.
        fs::write(beside.join("10.toml"), "path = \"/x\"\n[daemon]\n").unwrap();
        let files = ConfigurationFiles::read(&main).unwrap();
        let mut problems = Vec::new();
        files.parse(&mut problems);
        let shown: Vec<String> = problems.iter().map(|p| files.show(p)).collect();
        assert!(
            shown[0].starts_with(&(at("10.toml", 1) + "the file has no section `path`")),
            "{shown:?}"
        );
        assert!(
            shown[1].starts_with(&at("20.toml", 4)) && shown[1].contains("10.toml:2"),
            "{shown:?}"
        );
        fs::create_dir(beside.join("50.toml")).unwrap();
        let (path, _) = ConfigurationFiles::read(&main).unwrap_err();
        assert!(path.ends_with("50.toml"));
    }
}
