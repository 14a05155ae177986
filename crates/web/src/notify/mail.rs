//! Notices as mail, by the machine's own `sendmail`.

use super::{DELIVERY_MAX, Notice, NoticeChannel};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The interval of looks at a running program.
const TICK: Duration = Duration::from_millis(20);

/// An address, and the program that sends mail.
pub struct Mail {
    to: String,
    program: PathBuf,
}

impl Mail {
    /// Mail to `to` by `program`, which takes the arguments of `sendmail`.
    pub fn new(to: &str, program: PathBuf) -> Result<Mail, String> {
        let is_plain = |c: char| c.is_ascii_graphic() && !"<>,;\"\\()".contains(c);
        if !to.contains('@') || to.starts_with('-') || !to.chars().all(is_plain) {
            return Err(format!(
                "{to:?} is no address of mail; give one such as ops@example.com"
            ));
        }
        let to = to.to_owned();
        Ok(Mail { to, program })
    }

    fn message(&self, notice: &Notice) -> String {
        let about = &notice.about;
        let subject = format!(
            "[hotset] {} {}: {} {}",
            notice.host, notice.event, about.subject, about.what
        );
        // A name is not to begin a header, and a header is of ASCII.
        let subject = subject.replace(|c: char| !(' '..='~').contains(&c), "?");
        let of = serde_json::to_string_pretty(notice).expect("plain data");
        format!(
            "To: {}\nSubject: {subject}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
             Auto-Submitted: auto-generated\n\n{}\n\n{of}\n",
            self.to, notice.text
        )
    }
}

impl NoticeChannel for Mail {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn deliver(&self, notice: &Notice) -> Result<(), String> {
        let program = self.program.display();
        let mut command = Command::new(&self.program);
        command.args(["-i", "--", &self.to]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program} cannot be run: {error}"))?;
        let mut stdin = child.stdin.take().expect("it is piped");
        // Shorter than a pipe holds but for a name of 60 KiB: a program that reads nothing does not
        // block this.
        let message = self.message(notice);
        let message = message.as_bytes();
        let written = stdin.write_all(&message[..message.len().min(32 << 10)]);
        drop(stdin);
        let ended = wait(&mut child);
        written.map_err(|error| format!("{program} does not take its message: {error}"))?;
        ended.map_err(|why| format!("{program} {why}"))
    }
}

/// Waits for the end of a program, and kills one that takes too long.
fn wait(child: &mut Child) -> Result<(), String> {
    let begin = Instant::now();
    while begin.elapsed() < DELIVERY_MAX {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            Ok(None) => std::thread::sleep(TICK),
            Err(error) => return Err(error.to_string()),
        }
    }
    // The program is a child of this process.
    let _ = child.kill().and_then(|()| child.wait().map(drop));
    Err(format!("took longer than {DELIVERY_MAX:?}"))
}
