//! Sections of the configuration as a command line gives them.

use control::address::NbdUri;
use control::config::Name;
use control::protocol::NamedOrNew;
use control::section::SectionText;

/// A device, named by an argument.
pub enum Argument {
    /// A device of the configuration.
    Named(String),
    /// A file, block device or NBD export: its name and the rest of its section.
    New(String, SectionText),
}

/// Reads an argument: text with a slash is a path or an NBD URI.
pub fn argument(argument: &str, name: Option<&str>) -> Argument {
    if !argument.contains('/') {
        return Argument::Named(argument.to_owned());
    }
    let named = |default: &str| match name {
        Some(name) => name.to_owned(),
        None => plain(default),
    };
    if NbdUri::is_uri(argument) {
        let export = NbdUri::parse(argument).map(|uri| uri.export);
        let name = named(&export.unwrap_or_default());
        let section = SectionText::default().text("nbd", argument);
        return Argument::New(name, section);
    }
    // A daemon may run in another directory.
    let path = std::path::absolute(argument).unwrap_or_else(|_| argument.into());
    let last = path.file_name().unwrap_or_default().to_string_lossy();
    let section = SectionText::default().text("path", &path.display().to_string());
    Argument::New(named(&last), section)
}

/// The device that an argument names; a new one has that name and controller, if any.
pub fn named_or_new(
    device: &str,
    name: Option<&str>,
    controller: impl FnOnce() -> Option<String>,
) -> NamedOrNew {
    match argument(device, name) {
        Argument::Named(name) => NamedOrNew::Named(name),
        Argument::New(name, section) => {
            let section = section.text("name", &name);
            NamedOrNew::New(
                section
                    .optional("controller", controller().as_deref())
                    .finish(),
            )
        }
    }
}

/// A name made from any text.
fn plain(text: &str) -> String {
    let plain = |c: char| {
        if Name::new(&c.to_string()).is_ok() {
            c
        } else {
            '-'
        }
    };
    let name: String = text.chars().map(plain).take(64).collect();
    if name.is_empty() { "nbd".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::Device;

    fn device(text: &str) -> Device {
        let Argument::New(name, section) = argument(text, None) else {
            panic!("{text} is taken for a name")
        };
        Device::parse(&section.text("name", &name).finish()).unwrap()
    }

    #[test]
    fn paths_and_uris_become_sections_whatever_they_hold() {
        let odd = device("/dev/disk \"a\"\\\n#");
        assert_eq!(
            odd.path.unwrap().value.to_str(),
            Some("/dev/disk \"a\"\\\n#")
        );
        assert_eq!(odd.name.value.as_str(), "disk--a----");
        assert_eq!(device("nbd://h/v").name.value.as_str(), "v");
        assert_eq!(device("nbd://h").name.value.as_str(), "nbd");
        assert!(device("./x").path.unwrap().value.is_absolute());
        assert!(matches!(argument("ssd0", None), Argument::Named(_)));
    }
}
