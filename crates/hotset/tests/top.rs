//! `hotset top` in a real terminal, which tmux keeps.

mod common;

use common::{Place, copy_out, refused, run, tool, until};
use std::process::Command;

/// A terminal that ends with the test.
struct Terminal(String);

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended if its program has.
        let _ = self.tmux(&["kill-server"]).output();
    }
}

impl Terminal {
    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = tool("tmux", "tmux");
        command.args(["-S", &self.0, "-f", "/dev/null"]).args(words);
        command
    }

    fn start(place: &Place, columns: &str, lines: &str) -> Terminal {
        let terminal = Terminal(place.text("tmux"));
        let program = env!("CARGO_BIN_EXE_hotset");
        let control = place.text("control");
        let command =
            format!("{program} top --interval 0.2 --control {control}; echo ENDED; sleep 60");
        run(&mut terminal.tmux(&["new-session", "-d", "-x", columns, "-y", lines, &command]));
        terminal
    }

    fn screen(&self) -> String {
        run(&mut self.tmux(&["capture-pane", "-p"]))
    }

    fn shows(&self, text: &str) {
        until(&format!("{text:?} on the screen"), || {
            self.screen().contains(text)
        });
    }

    fn press(&self, keys: &[&str]) {
        run(&mut self.tmux(&[&["send-keys"], keys].concat()));
    }
}

#[test]
fn volumes_pools_and_devices_are_shown_sorted_and_filtered() {
    let place = Place::usual();
    place.file("other", 32);
    let daemon = place.serve();
    run(&mut place.command(&format!(
        "volume add second --origin {} --pool fast",
        place.text("other")
    )));
    let terminal = Terminal::start(&place, "120", "40");
    for text in [
        "Volumes",
        "Pools",
        "Devices",
        "vol",
        "second",
        "online",
        "requests/s",
        "hit %",
    ] {
        terminal.shows(text);
    }
    copy_out(&daemon.uri("vol"), &place.path("out"));
    terminal.press(&["s"]);
    terminal.shows("s sorts by (activity)");
    terminal.press(&["/"]);
    terminal.press(&["-l", "second"]);
    terminal.press(&["Enter"]);
    terminal.shows("/ filters (second)");
    assert!(
        !terminal.screen().contains("write-through  128"),
        "{}",
        terminal.screen()
    );
    terminal.press(&["Escape"]);
    daemon.stop();
    terminal.shows("start `hotset serve`");
    let daemon = place.serve();
    terminal.shows("hotset  up");
    terminal.press(&["q"]);
    terminal.shows("ENDED");
    daemon.stop();
}

#[test]
fn a_small_terminal_is_no_trouble_and_none_is_refused() {
    let place = Place::usual();
    let daemon = place.serve();
    let terminal = Terminal::start(&place, "40", "10");
    terminal.shows("hotset  up");
    terminal.press(&["q"]);
    terminal.shows("ENDED");
    refused(
        &mut place.command("top"),
        1,
        &["needs a terminal", "hotset status --watch"],
    );
    daemon.stop();
}
