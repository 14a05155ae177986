//! The log of the daemon: lines on standard error, written by a thread of their own. Lines of events
//! have fields, which the journal of systemd and JSON show.
//!
//! Invariants:
//!     a caller never waits for standard error, and no failure of standard error affects a caller
//!     at most [`LINES_MAX`] lines wait; further lines are counted, and so are those that cannot be
//!     written; the count is written as soon as a line can be
//!     the journal is waited for at most [`JOURNAL_TIME_MAX`] a line; an event that it does not take is
//!     a line on standard error, as is each line that is no event
//!
//! Not here: limits on lines that peers can cause: the callers have these.
//!
//! A command that is no daemon has no such thread: its lines are written at once, as text.

use block::plain;
use clap::ValueEnum;
use node::{NodeEvent, Priority};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines that wait at most.
const LINES_MAX: usize = 1024;
/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Longest wait for lines at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the journal to take an event.
const JOURNAL_TIME_MAX: Duration = Duration::from_millis(100);
/// The journal's socket.
const JOURNAL: &str = "/run/systemd/journal/socket";

static LOG: OnceLock<DaemonLog> = OnceLock::new();

/// Form of the lines of a daemon's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum LogFormat {
    /// `text`, with priorities if the journal of systemd reads standard error
    #[default]
    Auto,
    /// A line of text, after `hotset: `
    Text,
    /// An object of JSON: `time` in seconds since 1970, `priority`, `message`, fields of events
    Json,
    /// The text after the number of its priority, as sd-daemon(3) has it
    #[value(skip)]
    Journal,
}

impl LogFormat {
    /// The form for lines to `output`.
    fn settled(self, output: &File) -> LogFormat {
        let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let is_journal =
            |meta: std::fs::Metadata| format!("{}:{}", meta.dev(), meta.ino()) == journal;
        match self {
            LogFormat::Auto if output.metadata().is_ok_and(is_journal) => LogFormat::Journal,
            LogFormat::Auto => LogFormat::Text,
            format => format,
        }
    }

    /// The lines of `line`'s text.
    fn show(self, line: &LoggedLine) -> String {
        let text = &*plain(&line.text);
        if self == LogFormat::Json {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let time = now.unwrap_or_default().as_millis() as f64 / 1e3;
            let priority = format!("{:?}", line.priority).to_lowercase();
            let mut object = line.fields.clone();
            object.insert("time".into(), time.into());
            object.insert("priority".into(), priority.into());
            object.insert("message".into(), short(text).into());
            return format!("{}\n", Value::from(object));
        }
        let before = match self {
            LogFormat::Journal => format!("<{}>", line.priority as u8),
            _ => "hotset: ".into(),
        };
        let lines = text
            .split('\n')
            .map(|line| format!("{before}{}\n", short(line)));
        lines.collect()
    }
}

/// The first [`LINE_BYTES_MAX`] bytes of `line`.
fn short(line: &str) -> &str {
    let mut end = line.len().min(LINE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// The socket of the journal, which takes fields beside a line's text.
struct JournalSocket<'a> {
    socket: UnixDatagram,
    place: &'a Path,
}

impl JournalSocket<'_> {
    fn open(place: &Path) -> io::Result<JournalSocket<'_>> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(JOURNAL_TIME_MAX))?;
        Ok(JournalSocket { socket, place })
    }

    /// True if the journal has `line`, which is of an event. The address is looked up each time, for
    /// the journal may have been started again.
    fn takes(&self, line: &LoggedLine) -> bool {
        let send = || self.socket.send_to(&journal_entry(line), self.place);
        !line.fields.is_empty() && send().is_ok()
    }
}

/// `line` in the journal's own protocol: each value after its length, so that any bytes may be in it.
fn journal_entry(line: &LoggedLine) -> Vec<u8> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let usual = [
        ("MESSAGE".to_owned(), line.text.clone()),
        ("PRIORITY".to_owned(), (line.priority as u8).to_string()),
        ("SYSLOG_IDENTIFIER".to_owned(), "hotset".to_owned()),
    ];
    let fields = line.fields.iter();
    let fields =
        fields.map(|(name, value)| (format!("HOTSET_{}", name.to_uppercase()), text(value)));
    let mut entry = Vec::new();
    for (name, value) in usual.into_iter().chain(fields) {
        let value = plain(value);
        let value = short(&value).as_bytes();
        let length = (value.len() as u64).to_le_bytes();
        entry.extend([name.as_bytes(), b"\n", &length, value, b"\n"].concat());
    }
    entry
}

/// Begins the thread.
pub fn begin(format: LogFormat) -> io::Result<()> {
    let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let log = LOG.get_or_init(|| DaemonLog::new(format.settled(&output)));
    // Without a socket, lines go to standard error.
    let is_journal = log.format == LogFormat::Journal;
    let journal = is_journal.then(|| JournalSocket::open(Path::new(JOURNAL)).ok());
    let thread = std::thread::Builder::new().name("log".into());
    thread
        .spawn(move || log.write(output, journal.flatten()))
        .map(drop)
}

/// Logs `text`, of which each line becomes one.
pub fn line(priority: Priority, text: &str) {
    log(LoggedLine::new(priority, text.to_owned()));
}

/// Logs an event of the node, with its fields.
pub fn event(event: &NodeEvent) {
    log(LoggedLine::of(event));
}

fn log(line: LoggedLine) {
    match LOG.get() {
        Some(log) => log.push(line),
        None => {
            let shown = LogFormat::Text.show(&line);
            let _ = io::stderr().write_all(shown.as_bytes());
        }
    }
}

/// Waits until all lines are written, for at most [`FLUSH_TIME_MAX`].
pub fn flush() {
    if let Some(log) = LOG.get() {
        let waits = |state: &mut LogWriterState| state.is_writing || !state.entries.is_empty();
        let state = log.lock();
        // Lines that are not written by then are lost with the process.
        let _ = log.written.wait_timeout_while(state, FLUSH_TIME_MAX, waits);
    }
}

struct DaemonLog {
    format: LogFormat,
    state: Mutex<LogWriterState>,
    /// There is a line to write.
    pushed: Condvar,
    /// No line waits.
    written: Condvar,
}

struct LoggedLine {
    priority: Priority,
    text: String,
    /// Kind and names of an event; none without an event.
    fields: Map<String, Value>,
}

impl LoggedLine {
    fn new(priority: Priority, text: String) -> LoggedLine {
        LoggedLine {
            priority,
            text,
            fields: Map::new(),
        }
    }

    fn of(event: &NodeEvent) -> LoggedLine {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(event) else {
            unreachable!("an event is serialised as an object");
        };
        fields.retain(|_, value| !value.is_null());
        LoggedLine {
            fields,
            ..LoggedLine::new(event.priority(), event.to_string())
        }
    }
}

enum LogEntry {
    Line(LoggedLine),
    /// The number of lines missing in this place.
    Missing(u64),
}

impl LogEntry {
    fn show(&self, format: LogFormat) -> String {
        match self {
            LogEntry::Line(line) => format.show(line),
            LogEntry::Missing(lines) => {
                let why = "standard error did not take them";
                let what = format!("{lines} lines of the log are missing here: {why}");
                format.show(&LoggedLine::new(Priority::Warning, what))
            }
        }
    }

    fn lines(&self) -> u64 {
        match self {
            LogEntry::Line(..) => 1,
            LogEntry::Missing(lines) => *lines,
        }
    }
}

#[derive(Default)]
struct LogWriterState {
    entries: VecDeque<LogEntry>,
    is_writing: bool,
    /// Lines that were neither written nor wait.
    left_out: u64,
}

impl LogWriterState {
    fn push(&mut self, line: LoggedLine) {
        // One place is for the count of missing lines.
        if self.entries.len() >= LINES_MAX - 1 {
            self.left_out += 1;
            return;
        }
        self.note_left_out();
        self.entries.push_back(LogEntry::Line(line));
    }

    fn note_left_out(&mut self) {
        match std::mem::take(&mut self.left_out) {
            0 => (),
            lines => self.entries.push_back(LogEntry::Missing(lines)),
        }
    }
}

impl DaemonLog {
    fn new(format: LogFormat) -> DaemonLog {
        DaemonLog {
            format,
            state: Mutex::default(),
            pushed: Condvar::new(),
            written: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogWriterState> {
        self.state.lock().expect("no panic under this lock")
    }

    fn push(&self, line: LoggedLine) {
        self.lock().push(line);
        self.pushed.notify_one();
    }

    /// Writes lines for ever.
    fn write(&self, mut output: impl Write, journal: Option<JournalSocket>) {
        let mut works = true;
        loop {
            let entry = self.next(works);
            let is_taken = match (&entry, &journal) {
                (LogEntry::Line(line), Some(journal)) => journal.takes(line),
                _ => false,
            };
            works = is_taken || output.write_all(entry.show(self.format).as_bytes()).is_ok();
            let mut state = self.lock();
            state.is_writing = false;
            if !works {
                state.left_out += entry.lines();
            }
        }
    }

    /// The next entry to write. After a failed write the next attempt waits for another line.
    fn next(&self, works: bool) -> LogEntry {
        let mut state = self.lock();
        loop {
            if works && state.entries.is_empty() {
                state.note_left_out();
            }
            if let Some(entry) = state.entries.pop_front() {
                state.is_writing = true;
                return entry;
            }
            self.written.notify_all();
            state = self.pushed.wait(state).expect("no panic under this lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::Name;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Standard error that takes or refuses each write, as the test decides.
    struct Slow {
        answers: Receiver<bool>,
        written: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The test has ended.
            let Ok(takes) = self.answers.recv() else {
                return Ok(bytes.len());
            };
            if !takes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let _ = self
                .written
                .send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn info(text: &str) -> LoggedLine {
        LoggedLine::new(Priority::Info, text.to_owned())
    }

    fn log() -> (Arc<DaemonLog>, Sender<bool>, Receiver<String>) {
        let (answer, answers) = channel();
        let (written, lines) = channel();
        let log = Arc::new(DaemonLog::new(LogFormat::Text));
        let writer = log.clone();
        std::thread::spawn(move || writer.write(Slow { answers, written }, None));
        (log, answer, lines)
    }

    #[test]
    fn who_logs_does_not_wait_and_what_is_left_out_is_counted() {
        let (log, answer, lines) = log();
        for n in 0..LINES_MAX + 500 {
            log.push(info(&n.to_string()));
        }
        // The missing lines are reported in one line, or in two if the first was taken meanwhile.
        for _ in 0..LINES_MAX + 3 {
            answer.send(true).unwrap();
        }
        let (mut written, mut missing) = (0, 0);
        while written + missing < LINES_MAX + 500 {
            let line = lines.recv_timeout(Duration::from_secs(60)).unwrap();
            if line.contains("are missing here") {
                missing += line.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
            } else {
                assert!(written > 0 || line == "hotset: 0\n", "{line}");
                written += 1;
            }
        }
        assert_eq!(written + missing, LINES_MAX + 500);
        assert!(missing >= 499, "{missing}");
    }

    #[test]
    fn each_form_has_its_lines() {
        let error = LoggedLine::new(Priority::Error, "a \"b\"\nc".into());
        let show = |format: LogFormat| format.show(&error);
        assert_eq!(show(LogFormat::Text), "hotset: a \"b\"\nhotset: c\n");
        assert_eq!(show(LogFormat::Journal), "<3>a \"b\"\n<3>c\n");
        let line: serde_json::Value = serde_json::from_str(&show(LogFormat::Json)).unwrap();
        assert_eq!(
            (line["priority"].as_str(), line["message"].as_str()),
            (Some("error"), Some("a \"b\"\nc"))
        );
        assert!(line["time"].as_f64().unwrap() > 1.7e9);
        let long = "\u{e9}".repeat(LINE_BYTES_MAX);
        assert_eq!(
            LogFormat::Text.show(&info(&long)).len(),
            "hotset: \n".len() + LINE_BYTES_MAX
        );
    }

    fn lost() -> NodeEvent {
        NodeEvent::PoolDeviceLost {
            pool: Name::new("fast").unwrap(),
            device: "ssd\nHOTSET_POOL=slow".into(),
        }
    }

    #[test]
    fn an_event_has_its_kind_and_its_names_in_json() {
        let what = || "volume web was removed".to_owned();
        let about = |volume: Option<&str>| {
            let volume = volume.map(str::to_owned);
            let event = NodeEvent::Frontend {
                volume,
                what: what(),
            };
            let shown = LogFormat::Json.show(&LoggedLine::of(&event));
            let mut object: Map<String, Value> = serde_json::from_str(&shown).unwrap();
            object.remove("time").unwrap();
            Value::from(object)
        };
        let mut expected = json!({"event": "frontend", "message": what(), "priority": "warning"});
        assert_eq!(about(None), expected);
        expected["volume"] = "web".into();
        assert_eq!(about(Some("web")), expected);
    }

    /// The fields of an entry of the journal.
    fn fields(mut entry: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut fields = Vec::new();
        while let Some(end) = entry.iter().position(|byte| *byte == b'\n') {
            let (length, rest) = entry[end + 1..].split_first_chunk().unwrap();
            let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
            fields.push((text(&entry[..end]), text(value)));
            entry = rest.strip_prefix(b"\n").unwrap();
        }
        fields
    }

    #[test]
    fn the_journal_has_the_fields_of_an_event_and_standard_error_what_it_does_not_take() {
        let folder = tempfile::tempdir().unwrap();
        let place: &Path = Box::leak(folder.path().join("socket").into_boxed_path());
        let journal = UnixDatagram::bind(place).unwrap();
        let socket = JournalSocket::open(place).unwrap();
        let (written, lines) = channel();
        let (answer, answers) = channel();
        let log = Arc::new(DaemonLog::new(LogFormat::Journal));
        let writer = log.clone();
        std::thread::spawn(move || writer.write(Slow { answers, written }, Some(socket)));
        log.push(LoggedLine::of(&lost()));
        let mut entry = [0; 4096];
        let length = journal.recv(&mut entry).unwrap();
        let message = lost().to_string();
        let expected = [
            ("MESSAGE", &*message),
            ("PRIORITY", "3"),
            ("SYSLOG_IDENTIFIER", "hotset"),
            ("HOTSET_DEVICE", "ssd\nHOTSET_POOL=slow"),
            ("HOTSET_EVENT", "pool-device-lost"),
            ("HOTSET_POOL", "fast"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(fields(&entry[..length]), expected);

        // A journal that takes nothing: the kernel bounds the entries that wait for it.
        (0..3).for_each(|_| answer.send(true).unwrap());
        log.push(info("no event"));
        assert_eq!(lines.recv().unwrap(), "<6>no event\n");
        let full = UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to(b"A=1\n", place).is_ok() {}
        let mut journal = Some(journal);
        for _ in ["full", "ended"] {
            log.push(LoggedLine::of(&lost()));
            let shown = lines.recv().unwrap();
            assert!(shown.starts_with("<3>pool fast has lost ssd\n"), "{shown}");
            journal.take();
        }
    }

    #[test]
    fn what_standard_error_refuses_is_counted_and_later_lines_are_written() {
        let (log, answer, lines) = log();
        // The report of missing lines before the third line is refused as well.
        let refused = [("two", &[false][..]), ("three", &[false, false])];
        for (text, takes) in [("one", &[true][..])].into_iter().chain(refused) {
            log.push(info(text));
            takes.iter().for_each(|takes| answer.send(*takes).unwrap());
            let is_idle = |state: &LogWriterState| !state.is_writing && state.entries.is_empty();
            while !is_idle(&log.lock()) {
                std::thread::yield_now();
            }
        }
        (0..3).for_each(|_| answer.send(true).unwrap());
        log.push(info("four"));
        log.push(info("five"));
        let written: Vec<String> = lines.iter().take(4).collect();
        assert_eq!(written[0], "hotset: one\n");
        assert!(written[1].contains("2 lines of the log are missing here"));
        assert_eq!(written[2..], ["hotset: four\n", "hotset: five\n"]);
    }
}
