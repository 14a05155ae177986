//! Access logs of web servers, in the common and the combined form.
//!
//! A line is `HOST IDENT USER [TIME] "METHOD ADDRESS PROTOCOL" STATUS BYTES`, and any more fields.
//! Compressed logs are read as they are.

use fastrand::Rng;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// Longest line; servers refuse longer requests.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Share of lines that may be garbage: one in so many.
const GARBAGE_SHARE: u64 = 10;
/// Draws the places of files: popular ones are not neighbours.
const PLACES: u64 = 7;

/// The requests of a log that can be sent again, and the files that they ask for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogRequests {
    /// Bytes of each file.
    pub files: Vec<u64>,
    /// The file of each request, in the order of the log.
    pub requests: Vec<u32>,
    /// Lines that are other requests, or whose file has no known size.
    pub left_out: u64,
    /// Lines that are no requests.
    pub garbage: Vec<GarbageLine>,
}

/// A line in neither form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GarbageLine {
    path: PathBuf,
    number: u64,
}

impl GarbageLine {
    fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.number)
    }
}

/// A line of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LogLine<'a> {
    method: &'a str,
    address: &'a str,
    status: u16,
    bytes: u64,
}

impl LogLine<'_> {
    /// Splits a line into its fields; `None` if the line is in neither form.
    fn parse(line: &str) -> Option<LogLine<'_>> {
        let (before, rest) = line.split_once("] \"")?;
        before.rfind('[')?;
        let mut escaped = false;
        let end = rest.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let mut fields = rest[end + 1..].split_ascii_whitespace();
        let status: u16 = fields.next()?.parse().ok()?;
        let bytes = match fields.next()? {
            "-" => 0,
            number => number.parse().ok()?,
        };
        let mut request = rest[..end].split(' ');
        Some(LogLine {
            method: request.next().unwrap_or_default(),
            address: request.next().unwrap_or_default(),
            status,
            bytes,
        })
    }

    /// True for a request for a file that the server had.
    fn is_of_file(&self) -> bool {
        self.method == "GET" && matches!(self.status, 200 | 206 | 304)
    }
}

/// Files by their addresses, while logs are read.
#[derive(Default)]
struct LogReading {
    numbers: HashMap<String, u32>,
    /// Bytes of each file, once an answer had all of them.
    files: Vec<Option<u64>>,
    requests: Vec<u32>,
    left_out: u64,
    garbage: Vec<GarbageLine>,
    lines: u64,
}

impl LogRequests {
    /// Reads logs in their order, up to `most` requests. The error names the log.
    pub fn read(logs: &[PathBuf], most: usize) -> Result<LogRequests, String> {
        let mut reading = LogReading::default();
        for path in logs {
            reading
                .read(path, most)
                .map_err(|what| format!("{}: {what}", path.display()))?;
        }
        let garbage = reading.garbage.len() as u64;
        if garbage * GARBAGE_SHARE > reading.lines {
            return Err(format!(
                "{}: no request ({garbage} of {} lines are in neither the common nor the combined \
                 form). Give an access log in one of them.",
                reading.garbage[0].place(),
                reading.lines
            ));
        }
        let list = reading.list();
        if list.requests.is_empty() {
            let names: Vec<_> = logs.iter().map(|log| log.display().to_string()).collect();
            return Err(format!(
                "{}: no request for a file ({} lines are others). Give a log with answered GET \
                 requests.",
                names.join(", "),
                list.left_out
            ));
        }
        Ok(list)
    }

    /// A remark on garbage, if there is any.
    pub fn remark(&self) -> Option<String> {
        let first = self.garbage.first()?;
        Some(format!(
            "{}: no request ({} such lines). They are left out.",
            first.place(),
            self.garbage.len()
        ))
    }
}

impl LogReading {
    fn read(&mut self, path: &Path, most: usize) -> Result<(), String> {
        let text = |error: std::io::Error| format!("{error}. Give an access log.");
        let file = File::open(path).map_err(text)?;
        let (_, mut input) = trace::plain(file, None).map_err(text)?;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let mut limited = input.by_ref().take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut line).map_err(text)?;
            if read == 0 || self.requests.len() == most {
                break;
            }
            if read as u64 == LINE_BYTES_MAX {
                return Err(format!(
                    "line {number} has {LINE_BYTES_MAX} bytes or more. Give an access log."
                ));
            }
            self.lines += 1;
            match LogLine::parse(&String::from_utf8_lossy(&line)) {
                Some(line) => self.add(&line),
                None => self.garbage.push(GarbageLine {
                    path: path.to_owned(),
                    number,
                }),
            }
        }
        Ok(())
    }

    fn add(&mut self, line: &LogLine) {
        if !line.is_of_file() {
            self.left_out += 1;
            return;
        }
        let number = match self.numbers.get(line.address) {
            Some(number) => *number,
            None => {
                let number = self.files.len() as u32;
                self.numbers.insert(line.address.to_owned(), number);
                self.files.push(None);
                number
            }
        };
        if line.status == 200 {
            let bytes = &mut self.files[number as usize];
            *bytes = (*bytes).max(Some(line.bytes));
        }
        self.requests.push(number);
    }

    /// The list, with files in drawn places.
    fn list(self) -> LogRequests {
        let mut known: Vec<u32> = (0..self.files.len() as u32).collect();
        known.retain(|number| self.files[*number as usize].is_some());
        Rng::with_seed(PLACES).shuffle(&mut known);
        let mut places = vec![None; self.files.len()];
        for (place, number) in known.iter().enumerate() {
            places[*number as usize] = Some(place as u32);
        }
        let requests = self.requests.iter();
        let requests: Vec<u32> = requests
            .filter_map(|number| places[*number as usize])
            .collect();
        let files = known.iter();
        LogRequests {
            files: files
                .filter_map(|number| self.files[*number as usize])
                .collect(),
            left_out: self.left_out + (self.requests.len() - requests.len()) as u64,
            requests,
            garbage: self.garbage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = r#"::1 - a b [27/Aug/2009:10:00:00 +0200] "GET /a?b=1 HTTP/1.1" 200 512"#;

    fn list(text: &str, most: usize) -> Result<LogRequests, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        std::fs::write(&path, text).unwrap();
        LogRequests::read(&[path], most)
    }

    fn line(address: &str, status: u16, bytes: &str) -> String {
        format!(r#"h - - [t] "GET {address} HTTP/1.1" {status} {bytes} "-" "agent [1] \"x\"""#)
    }

    #[test]
    fn both_forms_are_split() {
        let common = LogLine {
            method: "GET",
            address: "/a?b=1",
            status: 200,
            bytes: 512,
        };
        assert_eq!(LogLine::parse(COMMON), Some(common));
        let combined = format!(r#"{COMMON} "http://x/" "agent \"1\"""#);
        assert_eq!(LogLine::parse(&combined), Some(common));
        let quoted = COMMON.replace("/a?b=1", r#"/\"q\"\\"#);
        let quoted = LogLine::parse(&quoted).unwrap();
        assert_eq!((quoted.address, quoted.status), (r#"/\"q\"\\"#, 200));
        let handshake = r#"h - - [t] "\x16\x03" 400 -"#;
        assert!(!LogLine::parse(handshake).unwrap().is_of_file());
        for garbage in ["", "GET / HTTP/1.1", r#"h - - [t] "GET / HTTP/1.1" 2x0 5"#] {
            assert_eq!(LogLine::parse(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn a_file_is_as_large_as_its_largest_whole_answer() {
        let text = [
            line("/a", 200, "100"),
            line("/a", 206, "900"),
            line("/b", 304, "-"),
            line("/a", 304, "-"),
            line("/c", 404, "10"),
            line("/a", 200, "120"),
            line("/d", 200, "-"),
            COMMON.replace("GET", "POST"),
        ];
        let list = list(&text.join("\n"), usize::MAX).unwrap();
        let mut files = list.files.clone();
        files.sort_unstable();
        assert_eq!(files, [0, 120]);
        let asked = list.requests.iter().map(|file| list.files[*file as usize]);
        assert_eq!(asked.collect::<Vec<_>>(), [120, 120, 120, 120, 0]);
        assert_eq!((list.left_out, list.remark()), (3, None));
    }

    #[test]
    fn a_line_of_garbage_is_remarked_and_a_log_of_garbage_is_refused() {
        let good = vec![line("/a", 200, "5"); 10].join("\n");
        let some = list(&format!("{good}\ngarbage\n"), usize::MAX).unwrap();
        assert_eq!(some.requests.len(), 10);
        assert!(
            some.remark()
                .unwrap()
                .contains("access.log:11: no request (1")
        );
        let refused = list(&format!("{good}\ngarbage\nmore\n"), usize::MAX).unwrap_err();
        assert!(
            refused.contains("access.log:11: no request (2 of 12"),
            "{refused}"
        );
        let none = list(&line("/a", 500, "5"), usize::MAX).unwrap_err();
        assert!(none.contains("no request for a file (1 lines"), "{none}");
        let long = list(&"x".repeat(70_000), usize::MAX).unwrap_err();
        assert!(long.contains("line 1 has 65536 bytes"), "{long}");
        assert_eq!(list(&good, 3).unwrap().requests.len(), 3);
    }
}
