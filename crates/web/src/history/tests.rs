//! A history is kept, read and refused.

use super::file::{HistoryFile, RINGS, VOLUMES_MAX};
use super::*;
use control::status::WriteBackReport;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const DAY_S: u64 = 86400;
/// Any time that is the start of an interval of each ring.
const BEGIN: u64 = 1_800_000_000;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        Bench { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("history")
    }

    fn load(&self) -> DaemonHistory {
        let (history, wrong) = DaemonHistory::load(&self.path());
        assert_eq!(wrong, None);
        history
    }

    /// The file with samples that have so many reads a second.
    fn written(&self, samples: &[(Option<&str>, u64, f32)]) {
        let (mut file, _) = HistoryFile::open(&self.path()).unwrap();
        for (name, at, reads) in samples {
            for ring in &RINGS {
                file.write(ring, &[(*name, sample(*at, *reads))]);
            }
        }
        assert_eq!(file.trouble(), None);
    }
}

fn sample(at: u64, reads: f32) -> Sample {
    Sample {
        at,
        reads_s: Some(reads),
        ..Sample::default()
    }
}

/// A report with a volume that has served ten reads of 3 ms `rounds` times, nine of ten from the
/// pool.
fn report(rounds: u64, at: Instant) -> Arc<DaemonReport> {
    let mut report = crate::sample::report();
    let total = |requests, us: u64| {
        let mut total = control::status::Total {
            requests,
            bytes: requests * 4096,
            latency_s: (requests * us) as f64 / 1e6,
            latency_counts: vec![0; 16],
        };
        total.latency_counts[6] = requests;
        total
    };
    let volume = &mut report.status.volumes[0];
    volume.read_total = total(10 * rounds, 3000);
    volume.counters = serde_json::from_value(serde_json::json!({
        "blocks_hit": 9 * rounds, "blocks_missed": rounds, "reads_hit": 9 * rounds
    }))
    .unwrap();
    report.status.devices[0].read_total = total(rounds, 8000);
    report.at = at;
    Arc::new(report)
}

/// Has `history` see a report each five seconds for so many of them, with two rounds in each.
fn watched(history: &mut DaemonHistory, from: u64, seconds: u64) {
    let begin = Instant::now();
    for second in (0..=seconds).step_by(5) {
        let at = begin + Duration::from_secs(second);
        let rounds = 1000 + 2 * second / 5;
        history.observe(from + second, Some(&report(rounds, at)));
    }
}

#[test]
fn reports_become_samples_that_a_restart_finds() {
    let bench = Bench::new();
    let mut history = bench.load();
    watched(&mut history, BEGIN, 600);
    let now = BEGIN + 600;
    let range = history.range(None, now - 100, now, now);
    assert_eq!(range.step_s, 10);
    assert_eq!(range.samples.len(), 10);
    let last = range.samples.last().unwrap();
    assert_eq!(last.at, now - 10);
    // Two rounds in five seconds.
    assert_eq!(last.reads_s, Some(4.0));
    assert_eq!(last.read_bytes_s, Some(4.0 * 4096.0));
    assert_eq!((last.hits_s, last.misses_s), (Some(3.6), Some(0.4)));
    assert_eq!((last.kept_s, last.origin_s), (Some(3.6), Some(0.4)));
    assert_eq!(last.read_us_mean, Some(3000.0));
    assert!((2500.0..5000.0).contains(&last.read_us_p50.unwrap()));
    assert!(last.read_us_p50 < last.read_us_p99);
    assert_eq!(last.origin_read_us_mean, Some(8000.0));
    // There were no writes, and there is no log.
    assert_eq!((last.writes_s, last.write_us_p99), (Some(0.0), None));
    assert_eq!((last.dirty_bytes, last.lag_s), (None, None));
    assert_eq!(
        history.range(Some("<script>"), now - 100, now, now),
        range,
        "the only volume has all"
    );
    // As after SIGKILL: nothing is closed.
    std::mem::forget(history);
    assert_eq!(bench.load().range(None, now - 100, now, now), range);
    let month = bench.load().range(None, now - 30 * DAY_S, now, now);
    assert_eq!(month.step_s, 12 * 300);
    let [sample] = &month.samples[..] else {
        panic!("{month:?}");
    };
    assert_eq!(sample.reads_s, Some(4.0));
}

#[test]
fn an_interval_that_was_not_watched_has_no_sample() {
    let bench = Bench::new();
    let mut history = bench.load();
    let now = BEGIN + 1000;
    let found = |history: &DaemonHistory| history.range(None, BEGIN, now, now).samples.len();
    watched(&mut history, BEGIN, 50);
    assert_eq!(found(&history), 5);
    // The daemon was away, then another one ran, then the server slept.
    history.observe(BEGIN + 55, None);
    watched(&mut history, BEGIN + 100, 10);
    assert_eq!(found(&history), 6);
    let at = Instant::now();
    let mut other = Arc::into_inner(report(5000, at)).unwrap();
    other.status.pid += 1;
    history.observe(BEGIN + 120, Some(&Arc::new(other)));
    assert_eq!(found(&history), 6);
    history.observe(BEGIN + 200, Some(&report(6000, at)));
    let late = at + Duration::from_secs(60);
    history.observe(BEGIN + 210, Some(&report(7000, late)));
    assert_eq!(found(&history), 6);
    let next = late + Duration::from_secs(10);
    history.observe(BEGIN + 220, Some(&report(7001, next)));
    assert_eq!(found(&history), 7);
    // A volume that was removed and added again.
    history.observe(
        BEGIN + 230,
        Some(&report(1, next + Duration::from_secs(10))),
    );
    assert_eq!(
        history
            .range(Some("<script>"), BEGIN, now, now)
            .samples
            .len(),
        7
    );
}

#[test]
fn dirty_data_is_of_all_logs_and_its_age_that_of_the_oldest() {
    let mut before = crate::sample::report().status;
    before.volumes.push(before.volumes[0].clone());
    before.volumes[1].name = "second".into();
    for (volume, lag_s) in before.volumes.iter_mut().zip([2.0, 7.0]) {
        volume.write_back = Some(WriteBackReport {
            order: "ordered".into(),
            dirty_bytes: 4096,
            lag_s,
            rate_bytes: None,
            devices: Vec::new(),
            copies: 2,
            trouble: None,
        });
    }
    let mut now = before.clone();
    for volume in &mut now.volumes {
        volume.write_total.requests += 30;
    }
    // The origin of both saw ten writes.
    now.devices[0].write_total.requests += 10;
    let samples = measure::between(BEGIN, &before, &now, 10.0);
    let names: Vec<Option<&str>> = samples.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [None, Some("<script>"), Some("second")]);
    let all = &samples[0].1;
    assert_eq!((all.dirty_bytes, all.lag_s), (Some(8192.0), Some(7.0)));
    assert_eq!((all.writes_s, all.origin_s), (Some(6.0), Some(1.0)));
    assert_eq!(samples[1].1.kept_s, Some(2.0));
}

#[test]
fn rings_come_round_and_old_records_are_gone() {
    let bench = Bench::new();
    bench.written(&[(None, BEGIN, 1.0), (None, BEGIN + DAY_S, 2.0)]);
    let history = bench.load();
    let now = BEGIN + DAY_S + 10;
    let day = history.range(None, BEGIN + 10, now, now).samples;
    assert_eq!(day.len(), 1);
    assert_eq!(day[0].reads_s, Some(2.0));
    // Five minutes reach back further.
    let week = history.range(None, now - 7 * DAY_S, now, now);
    assert_eq!(week.step_s, 900);
    assert_eq!(week.samples.len(), 2);
    // A span that nothing has is empty, and one without an end is cut.
    assert!(history.range(None, 0, 10, now).samples.is_empty());
    assert_eq!(history.range(None, 0, u64::MAX, now).samples.len(), 2);
    assert!(
        history
            .range(Some("vol"), 0, u64::MAX, now)
            .samples
            .is_empty()
    );
}

#[test]
fn spans_are_merged_by_what_each_figure_is() {
    let of = |reads_s, mean, p99| Sample {
        reads_s: Some(reads_s),
        read_us_mean: mean,
        read_us_p99: p99,
        ..Sample::default()
    };
    let merged = sample::merged(
        7,
        &[
            of(1.0, Some(10.0), Some(5.0)),
            of(3.0, Some(30.0), None),
            of(0.0, None, Some(9.0)),
        ],
    );
    assert_eq!(merged.at, 7);
    assert!((merged.reads_s.unwrap() - 4.0 / 3.0).abs() < 1e-6);
    assert_eq!(merged.read_us_mean, Some(25.0));
    assert_eq!(merged.read_us_p99, Some(9.0));
    assert_eq!(merged.write_us_p50, None);
}

#[test]
fn a_torn_record_is_not_there_and_all_others_are() {
    let bench = Bench::new();
    let all: Vec<_> = (0..6)
        .map(|i| (Some("vol"), BEGIN + 10 * i, i as f32))
        .collect();
    bench.written(&all);
    let mut file = fs::OpenOptions::new();
    let file = file.read(true).write(true).open(bench.path()).unwrap();
    // The first volume is near the start.
    let mut bytes = vec![0; 8 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // The figure of the fourth, which is in a record of each ring.
    let torn = 3.0_f32.to_le_bytes();
    let at = bytes.windows(4).position(|four| four == torn).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    let now = BEGIN + 60;
    let found = bench.load().range(Some("vol"), BEGIN, now, now).samples;
    let reads: Vec<f32> = found.iter().filter_map(|sample| sample.reads_s).collect();
    assert_eq!(reads, [0.0, 1.0, 2.0, 4.0, 5.0]);
}

#[test]
fn a_file_of_another_kind_size_or_version_is_kept_beside_a_new_one() {
    let bench = Bench::new();
    bench.written(&[(None, BEGIN, 1.0)]);
    let whole = fs::metadata(bench.path()).unwrap().len();
    let open = || {
        fs::OpenOptions::new()
            .write(true)
            .open(bench.path())
            .unwrap()
    };
    let damages: [(&str, &dyn Fn()); 4] = [
        ("is no history of this version", &|| {
            open().write_all_at(b"1", 15).unwrap()
        }),
        ("has another size", &|| open().set_len(whole - 1).unwrap()),
        ("has another size", &|| open().set_len(whole + 1).unwrap()),
        ("is no history of this version", &|| {
            open().set_len(0).unwrap()
        }),
    ];
    for ((why, damage), n) in damages.iter().zip(1..) {
        damage();
        let (history, wrong) = DaemonHistory::load(&bench.path());
        let wrong = wrong.unwrap();
        let aside = bench.path().with_extension(format!("old{n}"));
        assert!(
            wrong.contains(why) && wrong.contains(aside.to_str().unwrap()),
            "{wrong}"
        );
        assert!(!wrong.contains('\n'), "{wrong}");
        assert!(aside.exists());
        assert_eq!(history.trouble(), None);
        assert_eq!(fs::metadata(bench.path()).unwrap().len(), whole);
    }
    assert_eq!(
        fs::metadata(bench.path().with_extension("old2"))
            .unwrap()
            .len(),
        whole - 1
    );
}

#[test]
fn without_a_file_there_is_no_history_and_everything_else() {
    let bench = Bench::new();
    fs::create_dir(bench.path()).unwrap();
    let (mut history, wrong) = DaemonHistory::load(&bench.path());
    let wrong = wrong.unwrap();
    assert!(wrong.contains("no history is kept"), "{wrong}");
    assert_eq!(history.trouble(), Some(&*wrong));
    watched(&mut history, BEGIN, 60);
    assert!(
        history
            .range(None, BEGIN, BEGIN + 60, BEGIN + 60)
            .samples
            .is_empty()
    );
}

#[test]
fn a_volume_that_is_gone_makes_room_for_another() {
    let bench = Bench::new();
    let (mut file, _) = HistoryFile::open(&bench.path()).unwrap();
    let begun = fs::metadata(bench.path()).unwrap().len();
    let names: Vec<String> = (0..=VOLUMES_MAX).map(|n| format!("vol{n}")).collect();
    let many: Vec<_> = names
        .iter()
        .map(|n| (Some(&**n), sample(BEGIN, 1.0)))
        .collect();
    file.write(&RINGS[0], &many);
    let length = || fs::metadata(bench.path()).unwrap().len();
    assert!(begun < 100 << 20 && length() > 50 * begun, "{begun}");
    let known = |file: &HistoryFile, name: &str| file.read(Some(name), &RINGS[0]).len();
    assert_eq!(known(&file, &names[VOLUMES_MAX - 1]), 1);
    // There is no room for the last, nor for a name that is longer than any.
    assert_eq!(known(&file, &names[VOLUMES_MAX]), 0);
    let trouble = file.trouble().unwrap();
    assert!(trouble.contains("of 4097 volumes"), "{trouble}");
    let long = "x".repeat(300);
    file.write(&RINGS[0], &[(Some(&long), sample(BEGIN, 1.0))]);
    assert_eq!(file.trouble(), None);
    file.write(
        &RINGS[0],
        &[
            (Some("vol1"), sample(BEGIN + 10, 1.0)),
            (Some("new"), sample(BEGIN + 10, 7.0)),
        ],
    );
    let (file, _) = HistoryFile::open(&bench.path()).unwrap();
    assert_eq!(known(&file, "vol0"), 0);
    assert_eq!(known(&file, "vol1"), 2);
    let found = file.read(Some("new"), &RINGS[0]);
    assert_eq!(found, [sample(BEGIN + 10, 7.0)]);
}
