//! The dashboard and the alerts query existing metrics alone: a real Prometheus scrapes a report in
//! which everything occurs, and answers every query.

use crate::sample;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn contrib(file: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    root.join(file)
}

/// Shows the metrics of the sample to every client, for ever.
fn show() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = super::encode(Some(Arc::new(sample::report())));
    let answer = move |stream: TcpStream| -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let kind = super::CONTENT_TYPE;
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {kind}\r\n\r\n");
        { stream }.write_all(format!("{head}{text}").as_bytes())
    };
    std::thread::spawn(move || {
        // A client that hangs up can connect again.
        listener
            .incoming()
            .flatten()
            .for_each(|stream| drop(answer(stream)));
    });
    port
}

struct Prometheus {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start() -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: hotset\n    static_configs: [{{ targets: ['127.0.0.1:{}'] }}]\n",
            contrib("prometheus-alerts.yml"),
            show()
        );
        fs::write(&config, text).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .spawn()
            .expect("`prometheus` is missing: install the Debian package of that name");
        Prometheus {
            child,
            url: format!("http://{address}/api/v1"),
            _dir: dir,
        }
    }

    /// The answer of Prometheus; `None` before Prometheus is up.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<serde_json::Value> {
        let request = ureq::get(format!("{}/{path}", self.url)).query_pairs(query.iter().copied());
        let text = request.call().ok()?.body_mut().read_to_string().ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The number of series in the result of a query.
    fn count(&self, query: &str) -> usize {
        let answer = self.get("query", &[("query", query)]);
        let answer = answer.unwrap_or_else(|| panic!("{query} is no query"));
        answer["data"]["result"].as_array().unwrap().len()
    }
}

#[test]
fn a_real_prometheus_answers_every_query_of_the_dashboard_and_evaluates_the_alerts() {
    let prometheus = Prometheus::start();
    let begin = Instant::now();
    let scraped = |what: &str| {
        let answer = prometheus.get("query", &[("query", what)]);
        answer.is_some_and(|a| a["data"]["result"].get(0).is_some())
    };
    // A rate needs two scrapes.
    while !scraped("rate(hotset_nbd_requests_total[10s])") {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "nothing was scraped"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = fs::read_to_string(contrib("grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query
                .replace("$__rate_interval", "10s")
                .replace("$instance", ".*")
                .replace("$volume", ".*");
            assert!(!query.contains('$'), "{query}");
            let found = prometheus.count(&query);
            assert!(found > 0, "{}: nothing answers {query}", panel["title"]);
            queries += 1;
        }
    }
    assert!(queries >= 15);
    assert_eq!(prometheus.count("hotset_no_such_metric"), 0, "a canary");
    let firing = |alert: &str| prometheus.count(&format!("ALERTS{{alertname=\"{alert}\"}}"));
    let begin = Instant::now();
    while firing("HotsetTrouble") < 2 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "an alert of the sample does not fire"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(firing("HotsetDaemonAway"), 0);
    let rules = prometheus.get("rules", &[]).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 6);
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
}

#[test]
fn each_alert_fires_for_what_it_is_for() {
    let test = contrib("prometheus-alerts-test.yml");
    let output = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&test)
        .output();
    let output = output.expect("`promtool` is missing: install the Debian package `prometheus`");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = fs::read_to_string(contrib("prometheus-alerts.yml")).unwrap();
    let tests = fs::read_to_string(test).unwrap();
    for name in text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(
            tests.contains(&format!("alertname: {name}\n")),
            "{name} is not tested"
        );
    }
}

#[test]
fn canary_an_alert_that_does_not_fire_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let rules = fs::read_to_string(contrib("prometheus-alerts.yml")).unwrap();
    let broken = rules.replace("hotset_up == 0", "hotset_up == 2");
    fs::write(dir.path().join("prometheus-alerts.yml"), broken).unwrap();
    let test = dir.path().join("test.yml");
    fs::copy(contrib("prometheus-alerts-test.yml"), &test).unwrap();
    let output = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&test)
        .output()
        .unwrap();
    assert!(!output.status.success());
}
