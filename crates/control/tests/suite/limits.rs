//! The reader of the configuration checks every limit of the formats. A full configuration passes;
//! one more element is refused on its line, with the limit.

use cache::{DEVICES_MAX, LINE_BYTES_MAX, NAME_BYTES_MAX, VOLUMES_MAX};
use control::check::check_alone;
use control::config::{Device, Name, Volume};
use raid::{LEGS_MAX, Level, MEMBERS_MAX};

fn devices(prefix: &str, count: usize) -> String {
    let device = |n| format!("[[device]]\nname = \"{prefix}{n}\"\npath = \"/none/{prefix}{n}\"\n");
    (0..count).map(device).collect()
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

const LISTEN: &str = "[[listen]]\nunix = \"/none/socket\"\n";

fn pool(name: &str, devices: &[String], more: &str) -> String {
    format!("[[pool]]\nname = \"{name}\"\ndevices = {devices:?}\n{more}\n")
}

fn volume(name: &str, origin: &str, pool: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\norigin = \"{origin}\"\npool = \"{pool}\"\n")
}

fn array(name: &str, level: Level, members: usize, more: &str) -> String {
    let (level, names) = (level.name(), names("d", members));
    let array =
        format!("[[array]]\nname = \"{name}\"\nlevel = \"{level}\"\nmembers = {names:?}\n{more}\n");
    devices("d", members) + &array
}

fn named(name: &str) -> String {
    devices("d", 1) + &pool(name, &[], "") + &volume("v", "d0", name)
}

/// A limit: the configuration with so many elements, the most elements, and the error expected.
struct Limit {
    of: Box<dyn Fn(usize) -> String>,
    most: usize,
    expected: &'static str,
}

fn limit(of: impl Fn(usize) -> String + 'static, most: usize, expected: &'static str) -> Limit {
    let of = Box::new(of);
    Limit { of, most, expected }
}

fn all() -> Vec<Limit> {
    let mut all = vec![
        limit(
            |n| devices("d", n) + &pool("p", &names("d", n), ""),
            DEVICES_MAX,
            "give at most 16",
        ),
        limit(
            |n| {
                let volume = |i| volume(&format!("v{i}"), &format!("d{i}"), "p");
                let volumes: String = (0..n).map(volume).collect();
                devices("d", n) + &pool("p", &[], "") + &volumes
            },
            VOLUMES_MAX,
            "a pool remembers at most 4096",
        ),
        limit(
            |n| {
                let pools = (0..5).map(|i| pool(&format!("p{i}"), &[], ""));
                let pools: String = pools.collect();
                let volume = |i| volume(&format!("v{i}"), &format!("d{i}"), &format!("p{}", i % 5));
                let volumes: String = (0..n).map(volume).collect();
                devices("d", n) + &pools + &volumes
            },
            16_384,
            "a daemon serves at most 16384",
        ),
        limit(
            |n| pool("p", &[], &format!("line_size = {n}")),
            LINE_BYTES_MAX as usize,
            "choose a power of two",
        ),
        // The limit is on clients' memory: half of the buffers, less the part of handshakes.
        limit(
            |n| format!("[daemon]\nbuffers = \"64MiB\"\nconnections = {n}\n"),
            nbd::serve::connections_for(32 << 20) as usize,
            "raise `buffers` by 600 KiB for each",
        ),
    ];
    let names: [fn(usize) -> String; 3] = [
        |n| named(&"p".repeat(n)),
        |n| devices("d", 1) + &pool("p", &[], "") + &volume(&"v".repeat(n), "d0", "p"),
        |n| devices(&"d".repeat(n - 1), 1),
    ];
    all.extend(names.map(|of| limit(of, NAME_BYTES_MAX, "use 1 to 63 letters")));
    all.extend(of_arrays());
    all
}

fn of_arrays() -> Vec<Limit> {
    let mut all = vec![
        limit(
            |n| array(&"a".repeat(n), Level::Raid1, 2, ""),
            raid::NAME_BYTES_MAX,
            "from 1 to 32 bytes",
        ),
        limit(
            |n| array("a", Level::Raid0, 2, &format!("chunk = {}", n * 4096)),
            1024,
            "up to 4 MiB",
        ),
        // A stripe and the header of its record must fit a buffer.
        limit(
            |n| array("a", Level::Raid5, 32, &format!("chunk = {}", n * 4096)),
            31,
            "give a chunk of less than 128 KiB",
        ),
    ];
    for level in Level::ALL {
        let most = match level {
            Level::Raid1 => LEGS_MAX,
            _ => MEMBERS_MAX,
        };
        all.push(limit(
            move |n| array("a", level, n, ""),
            most,
            "members is not possible",
        ));
    }
    all
}

fn problems(text: &str) -> Vec<String> {
    let text = format!("{text}{LISTEN}");
    match check_alone(&text, &[]) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn what_fills_a_limit_passes_and_one_more_is_reported() {
    for Limit { of, most, expected } in all() {
        let text = of(most);
        assert_eq!(problems(&text), Vec::<String>::new(), "{text}");
        let text = of(most + 1);
        let found = problems(&text);
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{expected:?} is not in {found:#?}"
        );
    }
}

/// Names of commands reach a running daemon without a file.
#[test]
fn control_commands_have_the_same_limit_of_names() {
    let text = |n: usize| format!("name = \"{}\"\npath = \"/none\"\n", "x".repeat(n));
    Device::parse(&text(NAME_BYTES_MAX)).unwrap();
    let error = Device::parse(&text(NAME_BYTES_MAX + 1)).unwrap_err();
    assert!(error.contains("use 1 to 63 letters"), "{error}");
    let text = |n: usize| {
        let name = "x".repeat(n);
        format!("name = \"{name}\"\norigin = \"o\"\npool = \"p\"\n")
    };
    Volume::parse(&text(NAME_BYTES_MAX)).unwrap();
    Volume::parse(&text(NAME_BYTES_MAX + 1)).unwrap_err();
    Name::new(&"x".repeat(NAME_BYTES_MAX)).unwrap();
    Name::new("").unwrap_err();
}
