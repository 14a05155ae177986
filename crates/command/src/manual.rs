//! Products of a command's definition: grouped help, manual pages, the reference in Markdown.
//! Invariant: a visible command is in each product, with its options and its example.
//!
//! Not here: completions, which `clap_complete` makes of the same definition.

mod roff;

use crate::{CommandFailure, EXIT_STATUSES};
use clap::builder::ValueRange;
use clap::{Arg, ArgAction, Command};
pub use roff::RoffPage;
use std::fs;
use std::path::Path;

/// Texts of a program's manual that its definition has no place for.
pub struct Manual {
    /// Headings of the help, each with its commands.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// An example of each command, by its words after the program's name.
    pub examples: &'static [(&'static str, &'static str)],
    /// Pages to read beside each, such as `hotset.toml(5)`.
    pub see_also: &'static [&'static str],
}

impl Manual {
    /// The definition with groups and examples in its help.
    pub fn in_help(&self, program: Command) -> Command {
        let listed = self.listed(&program);
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}"
        );
        let mut program = program.help_template(template);
        for (words, example) in self.examples {
            let at = words.split(' ').collect::<Vec<_>>();
            program = with_example(program, &at, example);
        }
        program
    }

    fn listed(&self, program: &Command) -> String {
        let mut out = String::new();
        for (heading, names) in self.groups {
            out += &format!("{heading}:\n");
            for name in *names {
                let command = program
                    .find_subcommand(name)
                    .expect("a group lists commands");
                out += &format!("  {name:8} {}\n", about(command));
            }
            out += "\n";
        }
        out
    }

    /// The example of the command at `path`, which begins with the program's name.
    fn example(&self, path: &str) -> Option<&'static str> {
        let words = path.split_once(' ').map_or("", |(_, words)| words);
        let mut examples = self.examples.iter();
        examples
            .find(|(of, _)| *of == words)
            .map(|(_, example)| *example)
    }

    /// The manual page of each command, by the name of its file.
    pub fn pages(&self, program: &Command) -> Vec<(String, String)> {
        let mut pages = Vec::new();
        walk(program, program.get_name(), &mut |command, path| {
            let name = path.replace(' ', "-");
            pages.push((format!("{name}.1"), self.page(command, path).finish()));
        });
        pages
    }

    /// Writes the manual page of each command into a directory.
    pub fn write(&self, program: &Command, directory: &Path) -> Result<(), CommandFailure> {
        self.pages(program)
            .into_iter()
            .try_for_each(|(name, text)| write_page(directory, &name, &text))
    }

    /// The manual page of one command.
    pub fn page(&self, command: &Command, path: &str) -> RoffPage {
        let name = path.replace(' ', "-");
        let mut page = RoffPage::new(&name, 1, &about(command));
        page.heading("SYNOPSIS");
        page.synopsis(&synopsis(command, path));
        page.heading("DESCRIPTION");
        page.text(&described(command));
        let subcommands: Vec<_> = visible(command).collect();
        if !subcommands.is_empty() {
            page.heading("COMMANDS");
        }
        for subcommand in &subcommands {
            let name = format!("{name}-{}(1)", subcommand.get_name());
            page.item(&name, &about(subcommand));
        }
        let mut options = arguments(command).peekable();
        if options.peek().is_some() {
            page.heading("OPTIONS");
        }
        options.for_each(|arg| page.item(&spelled(arg), &meaning(arg)));
        page.heading("EXIT STATUS");
        for (status, meaning) in &EXIT_STATUSES[..3] {
            page.item(&status.to_string(), meaning);
        }
        page.text("The description names any other.");
        if let Some(example) = self.example(path) {
            page.heading("EXAMPLES");
            page.code(example);
        }
        let parent = path
            .rsplit_once(' ')
            .map(|(parent, _)| format!("{}(1)", parent.replace(' ', "-")));
        let others = self.see_also.iter().map(|other| (*other).to_owned());
        let others: Vec<String> = parent.into_iter().chain(others).collect();
        page.heading("SEE ALSO");
        page.text(&others.join(", "));
        page
    }

    /// The synopsis of a command and of each subcommand, a line each.
    pub fn synopses(program: &Command, words: &str) -> String {
        let mut out = String::new();
        for_each_leaf(program, words, &mut |command, path| {
            out += &format!("    {}\n", synopsis(command, path));
        });
        out
    }

    /// The reference of a command and of each subcommand, in Markdown.
    pub fn markdown(&self, program: &Command, words: &str) -> String {
        let mut out = String::new();
        for_each_leaf(program, words, &mut |command, path| {
            out += &format!("\n### {path}\n\n{}\n", described(command));
            let options: Vec<_> = arguments(command).collect();
            if !options.is_empty() {
                out += "\n| Option | Meaning |\n|---|---|\n";
            }
            for arg in options {
                let meaning = meaning(arg).replace('|', "\\|");
                out += &format!("| `{}` | {meaning} |\n", spelled(arg));
            }
            if let Some(example) = self.example(path) {
                out += &format!("\n```sh\n{example}\n```\n");
            }
        });
        out
    }
}

/// Writes one page into a directory.
pub fn write_page(directory: &Path, name: &str, text: &str) -> Result<(), CommandFailure> {
    fs::write(directory.join(name), text).map_err(|cause| {
        let directory = directory.display();
        CommandFailure::Runtime(format!("{directory}: {cause}; name a directory"))
    })
}

fn with_example(program: Command, words: &[&str], example: &str) -> Command {
    let (name, below) = words.split_first().expect("an example is of a command");
    program.mut_subcommand(name, |command| match below.is_empty() {
        true => {
            let lines = example.lines().map(|line| format!("  {line}\n"));
            command.after_help(format!("Example:\n{}", lines.collect::<String>()))
        }
        false => with_example(command, below, example),
    })
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let subcommands = command.get_subcommands();
    subcommands.filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Visits a command and each visible subcommand.
pub fn walk(command: &Command, path: &str, visit: &mut impl FnMut(&Command, &str)) {
    visit(command, path);
    for below in visible(command) {
        walk(below, &format!("{path} {}", below.get_name()), visit);
    }
}

/// Visits the commands below `words` that have none below them.
fn for_each_leaf(program: &Command, words: &str, visit: &mut impl FnMut(&Command, &str)) {
    let mut command = program;
    for word in words.split_whitespace() {
        command = command.find_subcommand(word).expect("the command exists");
    }
    let path = format!("{} {words}", program.get_name());
    walk(command, path.trim(), &mut |command, path| {
        if visible(command).next().is_none() {
            visit(command, path);
        }
    });
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// A command's description in whole sentences.
fn described(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about());
    let text = text.map(ToString::to_string).unwrap_or_default();
    // The first line of a doc comment has no full stop.
    let (first, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    format!("{}.\n\n{rest}", first.trim_end_matches('.'))
        .trim_end()
        .to_owned()
}

fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let (positionals, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(shown)
        .partition(|arg| arg.is_positional());
    positionals.into_iter().chain(options)
}

/// A command with its arguments in one line.
pub fn synopsis(command: &Command, path: &str) -> String {
    if visible(command).next().is_some() {
        return format!("{path} COMMAND");
    }
    let (last, others): (Vec<_>, Vec<_>) = arguments(command).partition(|arg| arg.is_last_set());
    let mut line = path.to_owned();
    for arg in others {
        let spelled = spelled(arg);
        line += &match arg.is_required_set() {
            true => format!(" {spelled}"),
            false => format!(" [{spelled}]"),
        };
    }
    for arg in last {
        line += &format!(" -- {}", spelled(arg));
    }
    line
}

/// The spelling of an argument on the command line.
fn spelled(arg: &Arg) -> String {
    let several = arg
        .get_num_args()
        .is_some_and(|values: ValueRange| values.max_values() > 1);
    let repeated =
        matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none();
    let dots = if several || repeated { "..." } else { "" };
    let names = arg.get_value_names().unwrap_or_default();
    let value = match names.is_empty() {
        true => arg.get_id().as_str().to_uppercase(),
        false => names
            .iter()
            .map(|name| name.as_str())
            .collect::<Vec<_>>()
            .join(" "),
    };
    match arg.get_long() {
        Some(long) if arg.get_action().takes_values() => format!("--{long} {value}{dots}"),
        Some(long) => format!("--{long}"),
        None => format!("{value}{dots}"),
    }
}

/// The help of an argument, its values and its default, in sentences.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}.", help.trim_end_matches('.'));
    let takes = arg.get_action().takes_values();
    let values: Vec<_> = arg
        .get_possible_values()
        .into_iter()
        .filter(|_| takes)
        .collect();
    if !values.is_empty() {
        let names: Vec<_> = values
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        text += &format!(" One of {}.", names.join(", "));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .filter_map(|value| value.to_str())
        .collect();
    if takes && !defaults.is_empty() {
        text += &format!(" Default: `{}`.", defaults.join(","));
    }
    if let Some(variable) = arg.get_env() {
        text += &format!(" Environment: `{}`.", variable.display());
    }
    text
}
