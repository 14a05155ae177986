//! `hotset top` in a terminal, as a person sees it.

use crate::common::{Daemon, Place, USUAL, copy_out, refused, run, tool, until};
use std::process::Command;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

/// A terminal of tmux with a server of its own, which ends with the terminal.
struct Terminal<'a>(&'a Place);

impl Terminal<'_> {
    /// Runs `hotset top` in 100 columns and 32 rows.
    fn top<'a>(daemon: &Daemon<'a>) -> Terminal<'a> {
        let terminal = Terminal(daemon.place);
        let top = format!(
            "exec {} top --interval 0.1 --control {}",
            env!("CARGO_BIN_EXE_hotset"),
            daemon.place.text("control")
        );
        run(terminal
            .tmux()
            .args(["new-session", "-d", "-x", "100", "-y", "32", &top]));
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = tool("tmux", "tmux");
        tmux.arg("-S")
            .arg(self.0.path("tmux"))
            .args(["-f", "/dev/null"]);
        tmux.env_remove("TMUX").env("TERM", "xterm-256color");
        tmux
    }

    fn type_keys(&self, keys: &[&str]) {
        run(self.tmux().arg("send-keys").args(keys));
    }

    fn screen(&self) -> String {
        run(self.tmux().args(["capture-pane", "-p"]))
    }

    /// Waits until the screen passes `is_so`. Returns the screen.
    fn shows(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        until(what, || {
            screen = self.screen();
            is_so(&screen)
        });
        screen
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // The end of the last program may have ended the server already.
        let _ = self.tmux().arg("kill-server").output();
    }
}

/// The first words of the rows under a title, up to the first that is not among `known`.
fn names<'a>(screen: &'a str, title: &str, known: &[&str]) -> Vec<&'a str> {
    let mut rows = screen
        .lines()
        .skip_while(|line| !line.starts_with(title))
        .skip(2);
    let mut names = Vec::new();
    while let Some(name) = rows.next().and_then(|row| row.split_whitespace().next()) {
        if !known.contains(&name) {
            break;
        }
        names.push(name);
    }
    names
}

const MORE: &str = r#"
[[device]]
name = "second"
path = "$/second"
[[volume]]
name = "busy"
origin = "second"
pool = "fast"
"#;

#[test]
fn a_daemon_is_seen_live_sorted_and_filtered() {
    let place = Place::usual();
    place.file("second", 32);
    place.config(&format!("{USUAL}{MORE}"));
    let daemon = place.serve();
    let top = Terminal::top(&daemon);
    let volumes = ["vol", "busy"];
    let in_order = |screen: &str| names(screen, "Volumes", &volumes) == ["busy", "vol"];
    let screen = top.shows("both volumes", in_order);
    for part in [
        "requests/s",
        "hit %",
        "Pools (1)",
        "Devices (3)",
        "online",
        "write-through",
    ] {
        assert!(screen.contains(part), "no {part} in\n{screen}");
    }
    // By activity, the busy volume comes first.
    top.type_keys(&["s"]);
    top.shows("the order", |screen| screen.contains("sorts by (activity)"));
    let (uri, copy) = (daemon.uri("vol"), place.path("copy"));
    let (seen, gone) = mpsc::channel::<()>();
    // The volume is read all the while: a rate is over the last second.
    let reader = thread::spawn(move || {
        while gone.try_recv() == Err(TryRecvError::Empty) {
            copy_out(&uri, &copy);
        }
    });
    top.shows("vol before busy", |screen| {
        names(screen, "Volumes", &volumes) == ["vol", "busy"]
    });
    drop(seen);
    reader.join().unwrap();
    top.type_keys(&["/", "b", "u"]);
    let screen = top.shows("the filter", |screen| screen.contains("filter: bu_"));
    assert_eq!(names(&screen, "Volumes", &volumes), ["busy"], "{screen}");
    assert!(screen.contains("Devices (0)"), "{screen}");
    top.type_keys(&["Escape"]);
    top.shows("the devices again", |screen| screen.contains("Devices (3)"));
    // A pool's device that is taken out, and a daemon that is away and comes back.
    run(&mut place.command("pool remove-device fast pool"));
    top.shows("an empty pool", |screen| screen.contains("no device"));
    daemon.stop();
    top.shows("why there is none", |screen| {
        let words: Vec<&str> = screen.split_whitespace().collect();
        words.join(" ").contains("start `hotset serve`")
    });
    let daemon = place.serve();
    top.shows("its return", |screen| screen.contains("connections"));
    top.type_keys(&["q"]);
    let ended = || {
        !top.tmux()
            .arg("has-session")
            .output()
            .unwrap()
            .status
            .success()
    };
    until("its end", ended);
    daemon.stop();
}

#[test]
fn without_a_terminal_or_a_daemon_it_says_what_to_do() {
    let place = Place::usual();
    refused(
        &mut place.command("top"),
        1,
        &["needs a terminal", "hotset status --watch"],
    );
    // Output to a terminal stays on the screen.
    let words = format!(
        "{} top --control {}; exec sleep 300",
        env!("CARGO_BIN_EXE_hotset"),
        place.text("control")
    );
    let terminal = Terminal(&place);
    run(terminal
        .tmux()
        .args(["new-session", "-d", "-x", "200", "-y", "10", &words]));
    terminal.shows("the remedy", |screen| {
        screen.contains("start `hotset serve`")
    });
}
