//! A configuration as one text, defaults too.

use crate::config::{Array, Attach, Config, Daemon, Device, Listen, ParameterValue, Pool, Volume};
use std::fmt::Write;

/// A section of a configuration, of any kind.
pub(crate) trait WrittenSection {
    /// The title in the file.
    const TITLE: &'static str;
    /// The identity among sections of one kind.
    fn id(&self) -> String;
    /// The parameters, in order.
    fn parameters(&self) -> Vec<ParameterValue>;
}

macro_rules! section {
    ($($section:ident, |$this:ident| $id:expr;)*) => {$(
        impl WrittenSection for $section {
            const TITLE: &'static str = $section::TITLE;
            fn id(&self) -> String {
                let $this = self;
                $id
            }
            fn parameters(&self) -> Vec<ParameterValue> {
                self.values()
            }
        }
    )*};
}

section! {
    Daemon, |_daemon| String::new();
    Device, |device| device.name.value.to_string();
    Array, |array| array.name.value.to_string();
    Pool, |pool| pool.name.value.to_string();
    Volume, |volume| volume.name.value.to_string();
    Attach, |attach| attach.ublk.value.to_string();
    Listen, |listen| listen.place();
}

impl Listen {
    /// The address: a path or an IP address and port.
    pub fn place(&self) -> String {
        let path = [&self.unix, &self.vhost_user].into_iter().flatten().next();
        let path = path.map(|path| path.value.display().to_string());
        let tcp = || self.tcp.as_ref().map(|tcp| tcp.value.0.to_string());
        path.or_else(tcp).unwrap_or_default()
    }
}

impl Config {
    /// The text of all sections, in order.
    pub fn text(&self) -> String {
        let mut out = String::new();
        write(&mut out, std::slice::from_ref(&self.daemon));
        write(&mut out, &self.devices);
        write(&mut out, &self.arrays);
        write(&mut out, &self.pools);
        write(&mut out, &self.volumes);
        write(&mut out, &self.attachments);
        write(&mut out, &self.listeners);
        out
    }
}

fn write<S: WrittenSection>(out: &mut String, sections: &[S]) {
    for section in sections {
        let _ = writeln!(out, "{}", S::TITLE);
        for ParameterValue { name, text, .. } in section.parameters() {
            if let Some(text) = text {
                let _ = writeln!(out, "{name} = {text}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    #[test]
    fn what_is_written_reads_the_same() {
        let text = r#"
[daemon]
connections = 7
grace = "1500us"
stop = "315360000s"
[[device]]
name = "a"
path = "/odd \" \\ \u0007 \u007f ä"
model = "SAS15K"
[[device]]
name = "b"
nbd = "nbd+unix:///50%25%3f?socket=/a%25b"
[[array]]
name = "r"
level = "raid1"
members = ["a", "b"]
spares = ["c"]
scrub_interval = "2d"
[[pool]]
name = "p"
devices = []
sequential = 4097
commit = "250ms"
[[volume]]
name = "v"
origin = "r"
pool = "p"
mode = "write-back"
size = 512
[[attach]]
ublk = "v"
queues = 2
[[listen]]
tcp = "[::1]:10809"
[[listen]]
vhost_user = "/run/v.sock"
depth = 3
"#;
        let mut problems = Vec::new();
        let config = parse(text, &mut problems);
        let written = config.text();
        let again = parse(&written, &mut problems);
        assert_eq!(problems, [], "{written}");
        assert_eq!(again.text(), written);
        for (first, second) in config.devices.iter().zip(&again.devices) {
            let path = |d: &crate::config::Device| d.path.as_ref().map(|path| path.value.clone());
            assert_eq!(path(first), path(second));
            let uri = |d: &crate::config::Device| d.nbd.as_ref().map(|uri| uri.value.clone());
            assert_eq!(uri(first), uri(second));
        }
        assert_eq!(config.daemon.stop.value, again.daemon.stop.value);
        assert_eq!(config.daemon.grace.value, again.daemon.grace.value);
    }
}
