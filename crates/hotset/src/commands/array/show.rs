//! Arrays as text.

use crate::CommandFailure;
use crate::commands::table::{TextTable, bytes, count};
use control::status::{ArrayReport as Status, ScrubStatus};

pub(super) fn print(arrays: &[Status], json: bool) -> Result<(), CommandFailure> {
    if json {
        let text = serde_json::to_string(arrays).map_err(CommandFailure::runtime)?;
        return command::print_line(text);
    }
    if arrays.is_empty() {
        return command::print_line("no array runs");
    }
    let texts: Vec<String> = arrays.iter().map(text).collect();
    command::print(texts.join("\n"))
}

/// The result of a scrub, in one line.
pub(super) fn scrubbed(scrub: &ScrubStatus) -> String {
    match &scrub.error {
        Some(error) => format!("the scrub stopped: {error}"),
        None if scrub.running => "a scrub runs".into(),
        None => format!(
            "scrubbed: {} differed, {} of them repaired, {} could not be read on one member",
            count(scrub.mismatches as usize, "place"),
            scrub.repaired,
            scrub.unreadable
        ),
    }
}

/// The state of an array: in one line, then member by member.
pub fn text(array: &Status) -> String {
    if let Some(why) = &array.inactive {
        let (name, level) = (&array.name, &array.level);
        return format!(
            "{name}: INACTIVE, {level}\n  it cannot start, and is tried again: {why}\n"
        );
    }
    let mut text = format!(
        "{}: {}, {} of {}",
        array.name,
        array.state.to_uppercase(),
        array.level,
        bytes(array.size_bytes)
    );
    if let Some(progress) = &array.progress {
        text += &match progress.role {
            Some(role) => format!("; member {role} is filled to {:.1}%", progress.percent),
            None => format!("; copies compared to {:.1}%", progress.percent),
        };
        if let Some(left) = progress.left_s {
            text += &format!(", about {} left", advise::page::span(left));
        }
    }
    text += "\n";
    if let Some(why) = &array.down {
        text += &format!("  writes are refused: {why}; bring them back\n");
    }
    if array.lost_bytes > 0 {
        let lost = bytes(array.lost_bytes);
        text += &format!("  the data of {lost} is lost; reads of it fail until it is written\n");
    }
    for warning in &array.warnings {
        text += &format!("  {warning}\n");
    }
    if let Some(scrub) = &array.scrub {
        text += &format!("  {}\n", scrubbed(scrub));
    }
    let span = |seconds: u64| advise::page::span(seconds as f64);
    let last = match array.scrubbed_s {
        Some(ago) => format!("the last scrub ended {} ago", span(ago)),
        None => "no scrub has ended".into(),
    };
    if let Some(due) = array.scrub_due_s {
        text += &format!("  {last}; the next is due in {}\n", span(due));
    } else if array.scrubbed_s.is_some() {
        text += &format!("  {last}\n");
    }
    text + &members(array).to_string()
}

fn members(array: &Status) -> TextTable {
    let mut table = TextTable::new(&[
        "  MEMBER",
        "CONTROLLER",
        "ROLE",
        "STATE",
        "READS",
        "WRITES",
        "ERRORS",
        "REPAIRED",
    ]);
    for member in &array.members {
        table.row([
            format!("  {}", member.device.as_deref().unwrap_or("-")),
            member.controller.clone().unwrap_or_else(|| "-".into()),
            member.role.to_string(),
            member.state.clone(),
            member.reads.to_string(),
            member.writes.to_string(),
            (member.read_errors + member.write_errors).to_string(),
            member.repaired.to_string(),
        ]);
    }
    for spare in &array.spares {
        let cells = ["-", "-", "spare"].map(str::to_owned);
        table.row([format!("  {spare}")].into_iter().chain(cells));
    }
    table
}
