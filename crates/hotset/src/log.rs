//! The log of the daemon: lines on standard error, written by a thread of their own.
//!
//! Invariants:
//!     a caller never waits for standard error, and no failure of standard error affects a caller
//!     at most [`LINES_MAX`] lines wait; further lines are counted, and so are those that cannot be
//!     written; the count is written as soon as a line can be
//!
//! Not here: limits on lines that peers can cause: the callers have these.
//!
//! A command that is no daemon has no such thread: its lines are written at once, as text.

use block::plain;
use clap::ValueEnum;
use node::Priority;
use serde_json::json;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines that wait at most.
const LINES_MAX: usize = 1024;
/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Longest wait for lines at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

static LOG: OnceLock<DaemonLog> = OnceLock::new();

/// Form of the lines of a daemon's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum LogFormat {
    /// `text`, with priorities if the journal of systemd reads standard error
    #[default]
    Auto,
    /// A line of text, after `hotset: `
    Text,
    /// An object of JSON: `time` in seconds since 1970, `priority`, `message`
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

    /// The lines of `text`.
    fn show(self, priority: Priority, text: &str) -> String {
        let text = &*plain(text);
        if self == LogFormat::Json {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let line = json!({
                "time": now.unwrap_or_default().as_millis() as f64 / 1e3,
                "priority": format!("{priority:?}").to_lowercase(),
                "message": short(text),
            });
            return format!("{line}\n");
        }
        let before = match self {
            LogFormat::Journal => format!("<{}>", priority as u8),
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

/// Begins the thread.
pub fn begin(format: LogFormat) -> io::Result<()> {
    let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let log = LOG.get_or_init(|| DaemonLog::new(format.settled(&output)));
    let thread = std::thread::Builder::new().name("log".into());
    thread.spawn(move || log.write(output)).map(drop)
}

/// Logs `text`, of which each line becomes one.
pub fn line(priority: Priority, text: &str) {
    match LOG.get() {
        Some(log) => log.push(priority, text),
        None => {
            let shown = LogFormat::Text.show(priority, text);
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

enum LogEntry {
    Line(Priority, String),
    /// The number of lines missing in this place.
    Missing(u64),
}

impl LogEntry {
    fn show(&self, format: LogFormat) -> String {
        match self {
            LogEntry::Line(priority, text) => format.show(*priority, text),
            LogEntry::Missing(lines) => {
                let why = "standard error did not take them";
                let what = format!("{lines} lines of the log are missing here: {why}");
                format.show(Priority::Warning, &what)
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
    fn push(&mut self, priority: Priority, text: &str) {
        // One place is for the count of missing lines.
        if self.entries.len() >= LINES_MAX - 1 {
            self.left_out += 1;
            return;
        }
        self.note_left_out();
        let line = LogEntry::Line(priority, text.to_owned());
        self.entries.push_back(line);
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

    fn push(&self, priority: Priority, text: &str) {
        self.lock().push(priority, text);
        self.pushed.notify_one();
    }

    /// Writes lines for ever.
    fn write(&self, mut output: impl Write) {
        let mut works = true;
        loop {
            let entry = self.next(works);
            works = output.write_all(entry.show(self.format).as_bytes()).is_ok();
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

    fn log() -> (Arc<DaemonLog>, Sender<bool>, Receiver<String>) {
        let (answer, answers) = channel();
        let (written, lines) = channel();
        let log = Arc::new(DaemonLog::new(LogFormat::Text));
        let writer = log.clone();
        std::thread::spawn(move || writer.write(Slow { answers, written }));
        (log, answer, lines)
    }

    #[test]
    fn who_logs_does_not_wait_and_what_is_left_out_is_counted() {
        let (log, answer, lines) = log();
        for n in 0..LINES_MAX + 500 {
            log.push(Priority::Info, &n.to_string());
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
        let show = |format: LogFormat| format.show(Priority::Error, "a \"b\"\nc");
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
            LogFormat::Text.show(Priority::Info, &long).len(),
            "hotset: \n".len() + LINE_BYTES_MAX
        );
    }

    #[test]
    fn what_standard_error_refuses_is_counted_and_later_lines_are_written() {
        let (log, answer, lines) = log();
        // The report of missing lines before the third line is refused as well.
        let refused = [("two", &[false][..]), ("three", &[false, false])];
        for (text, takes) in [("one", &[true][..])].into_iter().chain(refused) {
            log.push(Priority::Info, text);
            takes.iter().for_each(|takes| answer.send(*takes).unwrap());
            let is_idle = |state: &LogWriterState| !state.is_writing && state.entries.is_empty();
            while !is_idle(&log.lock()) {
                std::thread::yield_now();
            }
        }
        (0..3).for_each(|_| answer.send(true).unwrap());
        log.push(Priority::Info, "four");
        log.push(Priority::Info, "five");
        let written: Vec<String> = lines.iter().take(4).collect();
        assert_eq!(written[0], "hotset: one\n");
        assert!(written[1].contains("2 lines of the log are missing here"));
        assert_eq!(written[2..], ["hotset: four\n", "hotset: five\n"]);
    }
}
