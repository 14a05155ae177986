//! The documentation agrees with the command.

use crate::common::{Place, hotset, refused, run};
use control::config;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

/// A page of the documentation.
pub fn docs(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(path)
}

/// To renew the reference: run `hotset reference` and replace the text after the last paragraph of
/// the page.
#[test]
fn the_reference_is_that_of_the_definitions() {
    let page = fs::read_to_string(docs("configuration.md")).unwrap();
    let reference = run(hotset().arg("reference"));
    assert!(reference.contains("| `line_size` |"));
    let ends = page.trim_end().ends_with(reference.trim_end());
    assert!(ends, "renew it with `hotset reference`");
}

/// To renew the description: `hotset openapi > docs/openapi.json`.
#[test]
fn the_description_of_the_api_is_that_of_the_definitions() {
    let kept = fs::read_to_string(docs("openapi.json")).unwrap();
    let made = run(hotset().arg("openapi"));
    assert!(made.contains("\"openapi\": \"3.1"), "{made}");
    assert!(
        kept == made,
        "renew it with `hotset openapi > docs/openapi.json`"
    );
}

#[test]
fn the_examples_are_right() {
    let page = fs::read_to_string(docs("configuration.md")).unwrap();
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let mut problems = Vec::new();
        let config = config::parse(example, &mut problems);
        control::check::agreement(&config, &["ST3500320AS"], &mut problems);
        assert_eq!(problems, [], "{example}");
    }
}

#[test]
fn every_command_has_a_page_and_help() {
    for command in [
        "serve", "check", "status", "volume", "pool", "array", "attach", "drill", "web", "top",
        "reload", "job", "support",
    ] {
        let page = fs::read_to_string(docs(&format!("commands/{command}.md"))).unwrap();
        assert!(page.starts_with(&format!("# hotset {command}\n")));
        let help = run(hotset().args([command, "--help"]));
        assert!(help.contains("Usage: hotset"), "{help}");
    }
    let help = run(hotset().arg("--help"));
    for hidden in [
        "reference",
        "completions",
        "man",
        "openapi",
        "lab",
        "sim",
        "demo",
    ] {
        assert!(!help.contains(&format!("\n  {hidden}")), "{help}");
    }
}

#[test]
fn commands_of_the_laboratory_are_named_with_their_program() {
    for (typed, known) in [
        ("lab crash --cases 5", "run `hotset-lab crash --cases 5`"),
        ("sim --help", "run `hotset-lab sim --help`"),
        ("demo", "run `hotset-lab demo`"),
        (
            "trace workload nytro f",
            "run `hotset-lab trace workload nytro f`",
        ),
    ] {
        refused(hotset().args(typed.split(' ')), 2, &[known]);
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let place = Place::usual();
    place.serve().stop();
    let (pool, config) = (place.text("pool"), place.text("hotset.toml"));
    for typed in [
        "man".to_owned(),
        format!("check {config}"),
        format!("pool inspect {pool}"),
        format!("pool inspect --json {pool}"),
    ] {
        let mut command = place.command(&typed);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().unwrap();
        drop(command.stdout.take());
        let ended = command.wait_with_output().unwrap();
        assert!(ended.status.success(), "{typed}: {ended:?}");
        assert!(ended.stderr.is_empty(), "{typed}: {ended:?}");
    }
}

#[test]
fn the_environment_names_the_configuration() {
    let place = Place::usual();
    let check = run(hotset()
        .arg("check")
        .env("HOTSET_CONFIG", place.path("hotset.toml")));
    assert!(check.contains("no problem found"), "{check}");
    let mut none = hotset();
    none.args(["pool", "recover", "vol", "--write-back"])
        .env_remove("HOTSET_CONFIG");
    refused(
        &mut none,
        2,
        &["/etc/hotset/hotset.toml", "name a configuration file"],
    );
    let mut prices = hotset();
    run(prices
        .args(["advise", "--example-prices"])
        .env("HOTSET_CONTROL", "/none"));
}

/// The file that the unit of systemd would check has the documented form.
#[test]
fn an_example_is_served_where_its_devices_exist() {
    let place = Place::usual();
    let check = run(hotset().arg("check").arg(place.path("hotset.toml")));
    assert!(check.contains("no problem found"), "{check}");
}

/// The text of a page's synopsis, by its commands: each has a line or more of its own.
fn synopses(page: &str) -> Vec<(Vec<String>, String)> {
    let block = page.lines().skip_while(|line| !line.starts_with("    "));
    let block = block.take_while(|line| line.starts_with("    "));
    let mut found: Vec<(Vec<String>, String)> = Vec::new();
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    for line in block {
        let Some(command) = line.strip_prefix("    hotset ") else {
            if let Some((_, options)) = found.last_mut() {
                *options += line;
            }
            continue;
        };
        let words = command.split_whitespace();
        let words = words.take_while(|word| is_name(word) && !word.starts_with('-'));
        let words: Vec<String> = words.map(str::to_owned).collect();
        match found.iter_mut().find(|(other, _)| *other == words) {
            Some((_, options)) => *options += line,
            None => found.push((words, line.to_owned())),
        }
    }
    found
}

#[test]
fn a_synopsis_has_the_options_of_its_command() {
    let mut seen = 0;
    for page in fs::read_dir(docs("commands")).unwrap() {
        let text = fs::read_to_string(page.unwrap().path()).unwrap();
        for (command, synopsis) in synopses(&text) {
            let help = run(hotset().args(&command).arg("--help"));
            let (_, listed) = help.split_once("Options:\n").unwrap();
            // The help of an option is further to the right.
            let listed = listed.lines().filter(|line| !line.starts_with("        "));
            let options = listed.filter_map(|line| {
                let option = line.trim().split(", ").last()?;
                option
                    .starts_with("--")
                    .then(|| option.split_whitespace().next())?
            });
            for option in options.filter(|option| *option != "--help") {
                let is_there = synopsis.contains(option) || synopsis.contains(" ...");
                assert!(is_there, "{command:?} lacks {option}");
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen} options");
}
