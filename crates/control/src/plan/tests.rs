use super::*;
use crate::check::agreement;
use crate::config::parse;
use proptest::prelude::*;

fn read(text: &str) -> Config {
    let mut problems = Vec::new();
    let config = parse(text, &mut problems);
    assert_eq!(problems, [], "{text}");
    config
}

fn shown(running: &str, wanted: &str) -> Vec<String> {
    let wanted = ConfigurationFiles::from(wanted);
    let steps = plan(&read(running), &wanted.parse(&mut Vec::new()));
    steps.iter().map(|step| step.show(&wanted)).collect()
}

const TEXT: &str = r#"[daemon]
grace = "5s"
[[device]]
name = "a"
path = "/none/a"
[[device]]
name = "b"
path = "/none/b"
[[device]]
name = "ssd0"
path = "/none/ssd0"
[[device]]
name = "ssd1"
path = "/none/ssd1"
[[device]]
name = "m0"
path = "/none/m0"
[[device]]
name = "m1"
path = "/none/m1"
[[array]]
name = "mirror"
level = "raid1"
members = ["m0", "m1"]
[[pool]]
name = "fast"
devices = ["ssd0"]
[[volume]]
name = "web"
origin = "a"
pool = "fast"
[[volume]]
name = "mail"
origin = "mirror"
pool = "fast"
[[listen]]
unix = "/none/nbd"
"#;

/// Changes of [`TEXT`], each with the beginning of its step.
const DIFFERENCES: [(&str, &str, &str); 17] = [
    ("\"5s\"", "\"6s\"", "line 2: daemon: `grace`"),
    (
        "grace = \"5s\"",
        "grace = \"5s\"\nrequests = 7",
        "line 3: daemon: `requests` was 128, becomes 7; this needs a restart: ",
    ),
    (
        "\"/none/a\"",
        "\"/none/c\"",
        "line 5: device a: `path` was \"/none/a\", becomes \"/none/c\"; this needs a restart: it is in use",
    ),
    (
        "\"/none/b\"",
        "\"/none/c\"",
        "line 8: device b: `path` was \"/none/b\", becomes \"/none/c\"",
    ),
    (
        "[\"ssd0\"]",
        "[\"ssd0\", \"ssd1\"]",
        "line 27: pool fast gets ssd1",
    ),
    ("[\"ssd0\"]", "[]", "line 27: pool fast loses ssd0"),
    (
        "name = \"fast\"",
        "name = \"fast\"\npolicy = \"lru\"",
        "line 27: pool fast: `policy` was \"auto\", becomes \"lru\"; this needs",
    ),
    (
        "name = \"web\"",
        "name = \"web\"\nmode = \"pass-through\"",
        "line 30: volume web: `mode` was \"write-through\", becomes \"pass-through\"",
    ),
    (
        "name = \"web\"",
        "name = \"web\"\noff = true",
        "line 30: volume web: `off` was false, becomes true",
    ),
    (
        "name = \"web\"",
        "name = \"web\"\nmax_lag = \"1s\"",
        "line 30: volume web: `max_lag` was \"30s\", becomes \"1s\"",
    ),
    (
        "name = \"web\"",
        "name = \"web\"\nsize = 512",
        "line 30: volume web: `size` was not given, becomes \"512 B\"; this needs",
    ),
    (
        "origin = \"a\"",
        "origin = \"b\"",
        "line 30: volume web: `origin`",
    ),
    (
        "level = \"raid1\"",
        "level = \"raid1\"\nspares = [\"b\"]",
        "line 24: array mirror gets the spare b",
    ),
    (
        "\"m0\", \"m1\"]",
        "\"m1\", \"m0\"]",
        "line 24: array mirror: `members` or `spares` lack what it has; this needs",
    ),
    (
        "level = \"raid1\"",
        "level = \"raid1\"\nstart_degraded = true",
        "line 24: array mirror: `start_degraded` counts when it next starts",
    ),
    (
        "level = \"raid1\"",
        "level = \"raid1\"\ndetection = \"1s\"",
        "line 24: array mirror: `detection` was \"10s\", becomes \"1s\"; this needs",
    ),
    (
        "unix = \"/none/nbd\"",
        "unix = \"/none/nbd\"\ntls_key = \"/none/k\"",
        "line 38: listener /none/nbd: `tls_key` was not given, becomes \"/none/k\"",
    ),
];

#[test]
fn each_difference_is_a_step_with_its_line_and_says_what_it_needs() {
    assert_eq!(shown(TEXT, TEXT), Vec::<String>::new());
    for (from, to, expected) in DIFFERENCES {
        let wanted = TEXT.replace(from, to);
        assert_ne!(wanted, TEXT, "{from}");
        let steps = shown(TEXT, &wanted);
        assert!(
            steps.len() == 1 && steps[0].starts_with(expected),
            "{expected}: {steps:#?}"
        );
    }
}

#[test]
fn what_is_left_out_has_no_line_and_goes_before_what_comes() {
    let web = "[[volume]]\nname = \"web\"\norigin = \"a\"\npool = \"fast\"\n";
    let wanted = TEXT.replace(web, "").replace("/none/nbd", "/none/new")
        + "[[volume]]\nname = \"log\"\norigin = \"a\"\npool = \"fast\"\n[[attach]]\nublk = \"log\"\n";
    assert_eq!(
        shown(TEXT, &wanted),
        [
            ": listener /none/nbd is closed",
            ": volume web is removed",
            "line 38: volume log is attached",
            "line 34: volume log is added",
            "line 32: listener /none/new is opened",
        ]
    );
}

/// A configuration of some of the possible devices, volumes and listeners.
fn some() -> impl Strategy<Value = String> {
    let volumes = prop::collection::vec(prop::option::weighted(0.7, 0..4_usize), 4);
    let listeners = prop::collection::vec(any::<bool>(), 3);
    let pools = prop::collection::vec(prop::option::of(0..2_usize), 4);
    let known = prop::collection::vec(any::<bool>(), 3);
    (volumes, listeners, pools, known, 1..9_u32, any::<bool>()).prop_map(
        |(volumes, listeners, pools, known, grace, spare)| {
            let mut text = format!("[daemon]\ngrace = \"{grace}s\"\n");
            let device = |name: &str| format!("[[device]]\nname = \"{name}\"\npath = \"/n/{name}\"\n");
            let modes = ["write-through", "write-around", "pass-through", "write-back"];
            for n in 0..4 {
                text += &device(&format!("o{n}"));
                text += &device(&format!("s{n}"));
            }
            for n in 0..2 {
                text += &device(&format!("l{n}"));
                text = text.replace("/l", "/log");
                text += &format!("controller = \"c{n}\"\n");
                text += &device(&format!("m{n}"));
            }
            for (n, is_known) in known.iter().enumerate() {
                if *is_known {
                    text += &device(&format!("x{n}"));
                }
            }
            let spares = if spare && known[0] { "\"x0\"" } else { "" };
            text += "[[array]]\nname = \"o\"\nlevel = \"raid1\"\nmembers = [\"m0\", \"m1\"]\n";
            text += &format!("spares = [{spares}]\n");
            for pool in 0..2 {
                let all = pools.iter().enumerate();
                let ours = all.filter(|(_, of)| **of == Some(pool));
                let ours: Vec<String> = ours.map(|(n, _)| format!("\"s{n}\"")).collect();
                text += &format!("[[pool]]\nname = \"p{pool}\"\ndevices = [{}]\n", ours.join(", "));
            }
            for (n, mode) in volumes.iter().enumerate() {
                let Some(mode) = mode else { continue };
                // One volume is on the array, and one may have a log.
                let origin = if n == 0 { "o".to_owned() } else { format!("o{n}") };
                let mode = if n == 1 { *mode } else { mode % 3 };
                let log = if mode == 3 { "log = [\"l0\", \"l1\"]\n" } else { "" };
                text += &format!(
                    "[[volume]]\nname = \"v{n}\"\norigin = \"{origin}\"\npool = \"p{}\"\nmode = \"{}\"\n{log}",
                    n % 2,
                    modes[mode]
                );
            }
            for (n, _) in listeners.iter().enumerate().filter(|(_, is_open)| **is_open) {
                text += &format!("[[listen]]\nunix = \"/none/{n}\"\n");
            }
            text + "[[listen]]\nunix = \"/none/all\"\n"
        },
    )
}

proptest! {
    #[test]
    fn a_plan_leads_from_one_to_the_other_by_sound_ones(before in some(), after in some()) {
        let (mut config, wanted) = (read(&before), read(&after));
        prop_assert!(plan(&config, &config).is_empty());
        let steps = plan(&config, &wanted);
        let mut sound = Vec::new();
        agreement(&wanted, &[], &mut sound);
        prop_assert_eq!(&sound, &[]);
        // Here, only a spare that is removed needs a restart.
        let needs = ["array o", "device x0"];
        let may = |step: &PlanStep| needs.iter().any(|what| step.what.starts_with(what));
        prop_assert!(steps.iter().all(|s| s.change.is_ok() || may(s)), "{:#?}", steps);
        if !matches!(verdict(&steps), PlanVerdict::NeedsRestart(_)) {
            for step in &steps {
                if let Ok(change) = &step.change {
                    change.record(&mut config);
                }
                let mut problems = Vec::new();
                agreement(&config, &[], &mut problems);
                prop_assert_eq!(&problems, &[], "{}", step.what);
            }
            prop_assert!(plan(&config, &wanted).is_empty());
            let lines = |config: &Config| {
                let text = config.text();
                let mut lines: Vec<String> = text.lines().map(sorted_names).collect();
                lines.sort();
                lines
            };
            prop_assert_eq!(lines(&config), lines(&wanted));
        }
    }
}

/// A line with its list of names sorted.
fn sorted_names(line: &str) -> String {
    let mut parts: Vec<&str> = line.split(['[', ']', ',', ' ']).collect();
    parts.sort_unstable();
    parts.join(" ")
}
