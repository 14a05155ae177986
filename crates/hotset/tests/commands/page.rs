//! The page in a real browser: Debian's Chromium, driven by its own driver.

use crate::common::browser::Browser;
use crate::common::site::Site;
use crate::common::{Place, Process, USUAL, noise, tool, until};
use serde_json::json;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A slow disk, an SSD, and no pool.
const NO_POOL: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[device]]
name = "archive"
path = "$/origin"
model = "ST3500320AS"
[[device]]
name = "ssd0"
path = "$/pool"
[[listen]]
unix = "$/nbd"
"#;

/// A pool without a device, a slow disk and two SSDs that nothing uses, and a mirror.
const BARE: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[device]]
name = "archive"
path = "$/origin"
model = "ST3500320AS"
[[device]]
name = "ssd0"
path = "$/pool"
controller = "pcie0"
[[device]]
name = "left"
path = "$/left"
model = "ST3500320AS"
[[device]]
name = "right"
path = "$/right"
[[array]]
name = "mirror"
level = "raid1"
members = ["left", "right"]
[[pool]]
name = "fast"
devices = []
hit_latency_max = "10s"
[[volume]]
name = "kept"
origin = "mirror"
pool = "fast"
mode = "pass-through"
[[listen]]
unix = "$/nbd"
"#;

fn bare() -> Place {
    let place = Place::new();
    place.file("pool", 64);
    // As large as to be scrubbed for some seconds.
    place.file("left", 512);
    place.file("right", 512);
    fs::write(place.path("origin"), noise(1, 64 << 20)).unwrap();
    let config = place.config(BARE);
    crate::common::run(
        crate::common::hotset()
            .args(["array", "create", "--config"])
            .arg(config)
            .args(["mirror", "--yes"]),
    );
    place
}

/// Reads some of a volume again and again until stopped.
fn readers(place: &Place, volume: &str) -> Process {
    let mut command = Command::new("fio");
    command
        .current_dir(place.dir.path())
        .args([
            "--name=readers",
            "--ioengine=nbd",
            "--thread",
            "--rw=randread",
            "--bs=64k",
        ])
        .args(["--iodepth=4", "--size=16m", "--time_based", "--runtime=600"])
        .arg(format!("--uri={}", place.uri(volume)))
        .stdout(Stdio::null());
    Process(command.spawn().unwrap())
}

/// Chooses `archive` to be cached on `ssd0`.
fn set_up(browser: &mut Browser) {
    let choice = |name: &str, kind: &str| {
        format!("//label[.//strong[text()='{name}']]/input[@type='{kind}']")
    };
    browser.click("//nav//a[text()='Set up']");
    browser.click(&choice("archive", "radio"));
    browser.click(&choice("ssd0", "checkbox"));
}

/// Watches the hit ratio of the last second until everything hits; the first ratio is lower.
fn rises(browser: &Browser) {
    let mut seen: Vec<f64> = Vec::new();
    until("the hit ratio to rise", || {
        let text = browser.shows("#hit-ratio", "");
        // There is none while nothing is read.
        seen.extend(text.trim_end_matches('%').parse::<f64>());
        seen.last() == Some(&100.0)
    });
    assert!(seen[0] < 100.0, "everything hit from the first: {seen:?}");
}

/// Turns the volume `archive` off and on again, to its former mode, in three clicks.
fn turned_off_and_on(browser: &mut Browser) {
    browser.clicks = 0;
    browser.button("Turn caching off");
    browser.shows("dialog[open]", "go to archive alone");
    browser.pictures("turned-off");
    browser.confirm();
    browser.shows("h1 .state", "off (write-through)");
    browser.button("Turn caching on");
    browser.shows("h1 .state", "write-through");
    assert_eq!(browser.clicks, 3);
}

/// The figures of the last minute are in tiles and charts, as long as the page is open.
fn figures_are_shown(browser: &mut Browser) {
    for tile in ["faster", "hits", "kept"] {
        until("the tile's figure", || {
            browser.shows(&format!("#tile-{tile} .value"), "") != "–"
        });
    }
    // A file has no wear.
    assert_eq!(browser.shows("#tile-life .value", ""), "–");
    browser.shows("#tile-kept .value", "/s");
    let chart = "return document.querySelector('[aria-label^=\"What clients wait\"]').ariaLabel";
    until("a measured wait", || {
        let label = browser.run(chart, &[]);
        let label = label.as_str().unwrap();
        label.contains("99% of reads") && !label.contains("99% of reads unknown")
    });
    browser.pictures("overview");
    for span in ["24 h", "7 d", "30 d", "1 h"] {
        browser.button(span);
        let pressed = browser.shows("[aria-pressed=true]", span);
        assert_eq!(pressed, span);
        // The five minutes that the longer ones keep may not be over.
        browser.shows("#tile-kept .muted", "Requests kept off the origin");
    }
    browser.is_accessible("overview");
}

#[test]
fn figures_of_a_daemon_that_is_away_are_grey_and_nothing_can_be_changed() {
    let place = Place::usual();
    let daemon = place.serve();
    let site = Site::start(&place);
    let mut browser = Browser::start();
    browser.sign_in(&site);
    browser.open(&format!("{}/#/volume/vol", site.origin));
    let uri = place.uri("vol");
    browser.shows(".copied code", &uri);
    let noted = "navigator.clipboard.writeText = async (text) => { window.copied = text; }";
    browser.run(noted, &[]);
    browser.button("Copy");
    browser.shows(".copied [role=status]", "Copied");
    assert_eq!(browser.run("return window.copied", &[]), json!(uri));
    let is_disabled = "return [...document.querySelectorAll('.card > header > button')]\
                       .map((button) => button.disabled)";
    assert_eq!(browser.run(is_disabled, &[]), json!([false, false]));
    browser.pictures("frontends");
    daemon.stop();
    browser.shows(".banner.bad", "What is shown is as of ");
    browser.shows(".stale h1", "Volume vol");
    assert_eq!(browser.run(is_disabled, &[]), json!([true, true]));
    browser.pictures("away");
    browser.is_accessible("away");
}

#[test]
fn six_clicks_lead_from_the_first_page_to_a_cached_volume_that_can_be_watched_and_steered() {
    let place = bare();
    let daemon = place.serve();
    let site = Site::start(&place);
    {
        let mut browser = Browser::start();
        browser.sign_in(&site);

        browser.clicks = 0;
        set_up(&mut browser);
        browser.button("Serve it");
        browser.shows("h1", "Volume archive");
        assert!(browser.clicks <= 6, "{} clicks", browser.clicks);
        let status = daemon.status();
        assert_eq!(status["volumes"][0]["name"], "archive");
        assert_eq!(status["volumes"][0]["mode"], "write-through");
        assert_eq!(status["pools"][0]["devices"][0]["name"], "ssd0");

        let load = readers(&place, "archive");
        rises(&browser);
        browser.shows("table", "Took at most");
        browser.shows("#measured", "Beyond that (dashed");
        browser.shows("#doubling", "points of hit ratio");
        browser.shows(".warnings", "was observed for");
        browser.pictures("volume");

        turned_off_and_on(&mut browser);

        browser.click("//nav//a[text()='Overview']");
        browser.shows(".hits", "100.0%");
        figures_are_shown(&mut browser);
        // An SSD is taken out and put back, and so is a member of the mirror.
        browser.click("//nav//a[text()='Pools']");
        browser.click("//section[@aria-label='Pool fast']//button[text()='Take out']");
        browser.confirm();
        browser.shows(".banner.bad", "Pool fast has no device.");
        let field = "//section[@aria-label='Pool fast']//input[contains(@placeholder,'name')]";
        browser.write(field, "ssd0");
        browser.click("//section[@aria-label='Pool fast']//button[text()='Add']");
        browser.shows("section[aria-label='Pool fast'] .state", "online");
        browser.click("(//section[@aria-label='Array mirror']//button[text()='Take out'])[2]");
        browser.confirm();
        browser.shows(".banner.bad", "Array mirror is degraded");
        browser.pictures("pools");
        browser.click("//section[@aria-label='Array mirror']//button[text()='Put back']");
        browser.shows("dialog[open]", "right is filled from the other members");
        browser.confirm();
        browser.shows("section[aria-label='Array mirror'] p .state", "healthy");
        browser.click("//section[@aria-label='Array mirror']//button[text()='Scrub']");
        browser.shows("section[aria-label='Jobs'] th", "scrub:mirror");
        browser.click("//section[@aria-label='Jobs']//button[text()='Cancel']");
        browser.shows("section[aria-label='Jobs'] .state", "cancelled");
        browser.pictures("jobs");

        browser.click("//nav//a[text()='Events']");
        browser.shows("td", "is degraded");
        browser.shows("td", "is healthy");
        browser.pictures("events");
        drop(load);
    }
    daemon.stop();
}

#[test]
fn six_clicks_are_enough_where_there_is_no_pool_yet() {
    let place = Place::new();
    place.file("pool", 64);
    fs::write(place.path("origin"), noise(1, 64 << 20)).unwrap();
    place.config(NO_POOL);
    let daemon = place.serve();
    let site = Site::start(&place);
    {
        let mut browser = Browser::start();
        browser.sign_in(&site);
        browser.clicks = 0;
        set_up(&mut browser);
        let clicks = browser.clicks;
        let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
        browser.button("Show the change of the configuration");
        browser.shows("#preview pre", "+ name = \"archive\"");
        assert_eq!(
            fs::read_to_string(place.path("hotset.toml")).unwrap(),
            before
        );
        browser.pictures("setup");
        browser.clicks = clicks;
        browser.button("Serve it");
        browser.shows("h1", "Volume archive");
        assert!(browser.clicks <= 6, "{} clicks", browser.clicks);
        let load = readers(&place, "archive");
        rises(&browser);
        drop(load);
    }
    let status = daemon.status();
    assert_eq!(status["pools"][0]["name"], "cache");
    assert_eq!(status["pools"][0]["devices"][0]["name"], "ssd0");
    assert_eq!(status["volumes"][0]["pool"], "cache");
    daemon.stop();
    // The change is kept over a restart.
    let daemon = place.serve();
    assert_eq!(daemon.status()["volumes"][0]["pool"], "cache");
    daemon.stop();
}

/// Fills in the log of the set-up: two files that fail with the same controller.
fn choose_log(browser: &mut Browser, place: &Place) {
    browser.click("//label[.//strong[text()='write-back']]/input");
    browser.shows("#lacks", "It needs two devices of the log.");
    for (label, name) in [("Log", "log0"), ("Its copy", "log1")] {
        let row = format!("//fieldset[@id='log']/p[label[starts-with(.,'{label}')]]");
        browser.write(&format!("{row}//input"), &place.text(name));
        browser.write(&format!("({row}//input)[2]"), "pcie0");
    }
}

#[test]
fn a_set_up_has_a_log_and_a_virtual_machine_or_nothing() {
    let place = Place::new();
    place.file("pool", 64);
    place.file("log0", 24);
    fs::write(place.path("log1"), noise(2, 24 << 20)).unwrap();
    fs::write(place.path("origin"), noise(1, 64 << 20)).unwrap();
    let config = place.config(NO_POOL);
    let before = fs::read_to_string(&config).unwrap();
    let daemon = place.serve();
    let site = Site::start(&place);
    let unchanged = || {
        let status = daemon.status();
        assert_eq!(
            (&status["pools"], &status["volumes"]),
            (&json!([]), &json!([]))
        );
        assert_eq!(fs::read_to_string(&config).unwrap(), before);
    };
    let refusal = "section[aria-label='3. How'] [role=alert]";
    let mut browser = Browser::start();
    browser.sign_in(&site);
    set_up(&mut browser);
    choose_log(&mut browser, &place);
    browser.click("//label[.//strong[text()='Disk of a virtual machine']]/input");
    let socket = "//label[starts-with(.,'Socket')]/input";
    browser.write_over(socket, "vm.sock");
    browser.shows("#lacks", "It needs an absolute path of the socket.");
    browser.write_over(socket, &place.text("vm.sock"));
    browser.button("Serve it");
    browser.shows(refusal, "write-back needs two controllers");
    browser.pictures("setup-refused");
    unchanged();
    browser.write(
        "(//fieldset[@id='log']/p[label[starts-with(.,'Its')]]//input)[2]",
        "1",
    );
    // A device that cannot have the log is refused before the pool's device is overwritten.
    place.file("pool", 64);
    browser.button("Serve it");
    browser.shows(refusal, "log1");
    unchanged();
    let pool = fs::read(place.path("pool")).unwrap();
    assert!(pool.iter().all(|byte| *byte == 0));
    place.file("log1", 24);
    browser.button("Show the change of the configuration");
    browser.shows("#preview pre", "+ mode = \"write-back\"");
    browser.shows("#preview pre", "+ vhost_user = ");
    // Lines that only move stay.
    browser.shows("#preview pre", "  [[listen]]\n  unix = ");
    browser.pictures("setup-write-back");
    browser.is_accessible("setup");
    browser.button("Serve it");
    browser.shows("h1 .state", "write-back");
    browser.shows(
        ".copied code",
        &format!("vhost-user:{}", place.text("vm.sock")),
    );
    drop(browser);
    assert_eq!(daemon.status()["volumes"][0]["write_back"]["copies"], 2);
    daemon.stop();
    // All of it is kept over a restart.
    let daemon = place.serve();
    let volume = &daemon.status()["volumes"][0];
    assert_eq!(
        (&volume["mode"], &volume["write_back"]["copies"]),
        (&json!("write-back"), &json!(2))
    );
    daemon.stop();
}

#[test]
fn names_with_markup_in_them_are_shown_as_text_and_refusals_are_shown() {
    let place = bare();
    let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let daemon = place.serve();
    let site = Site::start(&place);
    let markup =
        "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>";
    let nbd = format!(
        "nbd+unix:///{}?socket={}",
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        place.text("none")
    );
    {
        let mut browser = Browser::start();
        browser.sign_in(&site);
        browser.click("//nav//a[text()='Set up']");
        for text in [format!("/{markup}"), nbd.clone()] {
            browser.write("//input[starts-with(@placeholder,'/path')]", &text);
            browser.button("Add to the list");
            browser.shows("label.choice strong", &text);
        }
        let export = format!("//label[.//strong[text()='{nbd}']]/input[@type='radio']");
        browser.click(&export);
        browser.click("//label[.//strong[text()='ssd0']]/input[@type='checkbox']");
        browser.button("Serve it");
        // The refusal stands at the button.
        let shown = browser.shows(
            "section[aria-label='3. How'] [role=alert]",
            "cannot connect",
        );
        assert!(shown.contains("Dismiss"), "{shown}");
        browser.open(&format!("{}/#/volume/{}", site.origin, "%3Cscript%3E"));
        browser.shows("p", "No volume is named <script>");
        let title = browser.run("return document.title", &[]);
        assert!(
            title.as_str().unwrap().ends_with("hotset on 127.0.0.1"),
            "{title}"
        );
        let injected = browser.run(
            "return document.querySelectorAll('script:not([src]), img').length",
            &[],
        );
        assert_eq!(injected, 0);
    }
    // The pool has no device of a set-up that was refused, and the file is as it was.
    assert_eq!(daemon.status()["pools"][0]["devices"], json!([]));
    assert_eq!(
        fs::read_to_string(place.path("hotset.toml")).unwrap(),
        before
    );
    daemon.stop();
}

/// Notes the message of a live stream that first has a loss, and the message at which the page
/// shows the loss.
const WATCH: &str = r#"
    window.seen = { messages: 0, said: null, shown: null };
    const source = new EventSource("/api/v1/live");
    source.addEventListener("status", (event) => {
        seen.messages += 1;
        if (event.data.includes('"ejected')) seen.said ??= seen.messages;
    });
    const look = () => {
        const state = document.querySelector("section[aria-label='Pool fast'] .state");
        if (state?.textContent.startsWith("ejected")) seen.shown ??= seen.messages;
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
"#;

#[test]
fn an_ssd_that_is_lost_is_seen_at_once_and_comes_back() {
    let place = Place::usual();
    let start = || {
        let mut server = tool("nbdkit", "nbdkit");
        server
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(place.path("ram"))
            .args(["memory", "64M"]);
        let server = Process(server.spawn().unwrap());
        until("nbdkit", || place.path("ram").exists());
        server
    };
    let server = start();
    let nbd = "nbd = \"nbd+unix:///?socket=$/ram\"";
    let text = USUAL.replace("path = \"$/pool\"", nbd);
    place.config(&text.replace("\"10s\"", "\"500ms\""));
    let daemon = place.serve();
    let site = Site::start(&place);
    {
        let mut browser = Browser::start();
        browser.sign_in(&site);
        let load = readers(&place, "vol");
        browser.click("//nav//a[text()='Pools']");
        browser.shows("section[aria-label='Pool fast'] .state", "online");
        until("hits", || daemon.count("blocks_hit") > 1000);
        browser.run(WATCH, &[]);
        server.kill();
        fs::remove_file(place.path("ram")).unwrap();
        browser.shows("section[aria-label='Pool fast'] .state", "ejected");
        // The loss is shown with the message that has it, or the page's own message before or
        // after: there is one a second. The page still has the changes of the test.
        until("the message", || {
            browser.run("return seen.said", &[]).is_u64()
        });
        let seen = browser.run("return seen", &[]);
        let [said, shown] = ["said", "shown"].map(|when| seen[when].as_i64().unwrap());
        assert!((said - shown).abs() <= 1, "{seen}");
        println!("an SSD's loss, by messages of the live stream: {seen}");
        browser.shows(".banner.bad", "hotset pool readmit fast pool");
        browser.pictures("loss");

        let again = start();
        browser.shows("#troubles button", "Put back");
        browser.click("//section[@aria-label='Pool fast']//button[text()='Put back']");
        browser.shows("dialog[open]", "Pool fast uses pool again");
        browser.confirm();
        browser.shows("section[aria-label='Pool fast'] .state", "online");
        let before = daemon.count("blocks_hit");
        until("hits", || daemon.count("blocks_hit") > before + 1000);
        browser.click("//nav//a[text()='Events']");
        browser.shows("th", "device pool of pool fast");
        browser.shows("td", "is online");
        drop(load);
        assert_eq!(daemon.status()["nbd"]["errors"], 0);
        daemon.stop();
        drop(again);
    }
}

#[test]
fn the_page_is_small_and_accessible() {
    let place = bare();
    let daemon = place.serve();
    let site = Site::start(&place);
    {
        let mut browser = Browser::start();
        browser.open(&site.origin);
        browser.shows("button", "Sign in");
        let loaded = "const all = performance.getEntriesByType('resource');\
                      const [page] = performance.getEntriesByType('navigation');\
                      return [page, ...all].reduce((sum, entry) => sum + entry.transferSize, 0);";
        let loaded = browser.run(loaded, &[]).as_u64().unwrap();
        assert!(loaded < 300 << 10, "{loaded} bytes were loaded");
        browser.sign_in(&site);
        for view in ["", "setup", "pools", "events", "volume/kept"] {
            browser.run(
                "location.hash = arguments[0]",
                &[json!(format!("#/{view}"))],
            );
            sleep(Duration::from_secs(2));
            browser.is_accessible(view);
        }
    }
    daemon.stop();
}
