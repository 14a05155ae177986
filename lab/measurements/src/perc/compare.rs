//! Values of the published figures, from the points of the sweep and the loss of a drive.

use super::loss::{ControllerLoss, SideRates};
use super::sweep::SweepPoint;
use experiment::verdict::SeedOutcome;

/// The largest number of threads.
const THREADS_MAX: u64 = 256;

/// One against two controllers, at one point.
struct ControllerPair<'a> {
    one: &'a SweepPoint,
    two: &'a SweepPoint,
}

impl ControllerPair<'_> {
    fn ratio(&self) -> f64 {
        self.two.iops / self.one.iops
    }

    /// The gain of two, in percent.
    fn gain(&self) -> f64 {
        (self.ratio() - 1.0) * 100.0
    }
}

fn pairs<'a>(points: &'a [SweepPoint], workload: &str) -> Vec<ControllerPair<'a>> {
    let of = |controllers: usize| {
        let ours = move |p: &&SweepPoint| p.controllers == controllers && p.workload == workload;
        points.iter().filter(ours)
    };
    of(1)
        .zip(of(2))
        .map(|(one, two)| ControllerPair { one, two })
        .collect()
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// Measures every published figure.
pub fn measure(outcome: &mut SeedOutcome, points: &[SweepPoint], loss: &ControllerLoss) {
    random_reads(outcome, points);
    let sequential = pairs(points, "sequential read");
    let deep = sequential.iter().filter(|pair| pair.one.threads >= 64);
    outcome.set("gain.sequential", most(deep.map(ControllerPair::gain)));
    let at = |threads: u64| {
        let found = sequential.iter().find(|pair| pair.two.threads == threads);
        found.map_or(f64::NAN, |pair| pair.two.iops)
    };
    outcome.set("claim.overload", at(THREADS_MAX) / at(64));
    differences(outcome, points);
    let writes = points.iter().filter(|p| p.workload == "sequential write");
    // Four requests are a MiB.
    outcome.set("write.sequential", most(writes.map(|p| p.iops)) / 4.0);
    outcome.set("iops", most(points.iter().map(|p| p.iops)));
    outcome.set("cpu", 0.0);
    let (was, is) = (loss.before[1], loss.after[1]);
    let apart = |side: &SideRates| (side.writes_per_s / side.reads_per_s - 2.0).abs();
    let most_apart = loss
        .before
        .iter()
        .max_by(|a, b| apart(a).total_cmp(&apart(b)));
    let split = most_apart.map_or(f64::NAN, |side| side.writes_per_s / side.reads_per_s);
    outcome.set("claim.loss.split", split);
    outcome.set("claim.loss.reads", is.reads_per_s / is.writes_per_s);
    outcome.set("claim.loss.writes", is.writes_per_s / was.writes_per_s);
    outcome.set("claim.loss.errors", loss.errors as f64);
}

fn random_reads(outcome: &mut SeedOutcome, points: &[SweepPoint]) {
    let pairs = pairs(points, "random read");
    let last = pairs.iter().find(|pair| pair.one.threads == THREADS_MAX);
    outcome.set("gain.random", last.map_or(f64::NAN, ControllerPair::gain));
    let deep = pairs.iter().filter(|pair| pair.one.threads >= 4);
    let deep: Vec<f64> = deep.map(ControllerPair::ratio).collect();
    let grows = deep.windows(2).map(|pair| pair[1] / pair[0]);
    outcome.set("claim.depth", grows.fold(f64::INFINITY, f64::min));
    let latency = |point: &SweepPoint| point.latency_ms_mean;
    let less = pairs.iter();
    let less = less.map(|pair| (1.0 - latency(pair.two) / latency(pair.one)) * 100.0);
    outcome.set("latency.random", most(less));
}

/// Differences of writes, of all points together and of the point that differs most.
fn differences(outcome: &mut SeedOutcome, points: &[SweepPoint]) {
    for workload in ["random", "sequential"] {
        let pairs = pairs(points, &format!("{workload} write"));
        let spent = |point: &SweepPoint| point.operations as f64 / point.iops;
        let (one, two) = pairs.iter().fold((0.0, 0.0), |(one, two), pair| {
            (one + spent(pair.one), two + spent(pair.two))
        });
        let worst = most(pairs.iter().map(|pair| pair.gain().abs()));
        let name = format!("difference.{workload}");
        outcome.set(format!("{name}.all"), (one / two - 1.0).abs() * 100.0);
        outcome.set(name, worst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::scale::WORKLOADS;
    use super::super::{NAME, figures};
    use super::*;
    use experiment::figures::FigureVerdict;
    use experiment::verdict::{SEEDS, rows};

    type Change<'a> = &'a dyn Fn(&mut SweepPoint);

    /// A sweep in which all is as printed but for the two maxima that cannot be of one point.
    fn sweep() -> Vec<SweepPoint> {
        let mut points = Vec::new();
        for workload in WORKLOADS {
            for controllers in 1..=2 {
                for power in 0..9u32 {
                    let gain = match (controllers, workload.write, workload.random) {
                        (1, ..) | (_, true, _) => 1.0,
                        (_, _, true) => 1.16 + 0.1 * f64::from(power),
                        _ => 1.0 + 0.1 * f64::from(power.min(6)),
                    };
                    let rate = match (workload.write, workload.random) {
                        (true, false) => 4180.0,
                        _ => 2000.0,
                    };
                    points.push(SweepPoint {
                        workload: workload.name,
                        controllers,
                        threads: 1 << power,
                        operations: 300_000,
                        iops: rate * gain,
                        mb_s: 0.0,
                        latency_ms_mean: 1.0 / gain,
                        latency_ms_p99: 0.0,
                        sides_mb_s: None,
                        cpu_daemon_percent: None,
                        cpu_host_percent: None,
                    });
                }
            }
        }
        points
    }

    fn lost() -> ControllerLoss {
        let rates = |reads_per_s, writes_per_s| SideRates {
            reads_per_s,
            writes_per_s,
        };
        ControllerLoss {
            arrivals_per_s: 600.0,
            requests: 72_000,
            errors: 0,
            longest_ms: 1.0,
            pulled_s: 60,
            before: [rates(150.0, 300.0); 2],
            after: [rates(0.0, 0.0), rates(300.0, 300.0)],
            seconds: Vec::new(),
        }
    }

    fn missed(points: &[SweepPoint], loss: &ControllerLoss) -> Vec<String> {
        let mut outcome = SeedOutcome::default();
        measure(&mut outcome, points, loss);
        outcome.set("claim.cells", 12.0);
        let seeds = vec![outcome; SEEDS as usize];
        let rows = rows(NAME, &figures(), &seeds, false, 0.0)
            .unwrap()
            .into_iter();
        rows.filter(|row| row.verdict == Some(FigureVerdict::Missed))
            .map(|row| row.figure)
            .collect()
    }

    /// 96 % more requests are 49 % less latency, and 36 % were printed.
    #[test]
    fn what_is_as_it_was_published_is_within() {
        assert_eq!(missed(&sweep(), &lost()), ["latency.random"]);
    }

    #[test]
    fn canary_each_row_misses_what_it_is_about() {
        let two = |p: &SweepPoint, workload: &str, from: u64| {
            p.controllers == 2 && p.workload == workload && p.threads >= from
        };
        let cases: [(&str, Change<'_>); 7] = [
            ("claim.overload", &|p| {
                if two(p, "sequential read", 256) {
                    p.iops *= 1.1;
                }
            }),
            ("gain.random", &|p| {
                if two(p, "random read", 256) {
                    p.iops *= 1.2;
                }
            }),
            ("claim.depth", &|p| {
                if two(p, "random read", 64) && p.threads == 64 {
                    p.iops *= 0.8;
                }
            }),
            ("gain.sequential", &|p| {
                if two(p, "sequential read", 64) {
                    p.iops *= 0.8;
                }
            }),
            ("difference.random.all", &|p| {
                if two(p, "random write", 1) {
                    p.iops *= 1.003;
                }
            }),
            ("write.sequential", &|p| {
                if p.workload == "sequential write" {
                    p.iops *= 1.04;
                }
            }),
            ("iops", &|p| {
                if p.workload == "random write" {
                    p.iops *= 3.0;
                }
            }),
        ];
        for (figure, changed) in cases {
            let mut points = sweep();
            points.iter_mut().for_each(changed);
            let missed = missed(&points, &lost());
            assert!(missed.iter().any(|m| m == figure), "{figure}: {missed:?}");
        }
        let points = sweep();
        let mut loss = lost();
        loss.after[1].reads_per_s = 280.0;
        assert_eq!(missed(&points, &loss).len(), 2);
        let mut loss = lost();
        loss.before[0].reads_per_s = 200.0;
        assert!(missed(&points, &loss).contains(&"claim.loss.split".to_owned()));
        let mut loss = lost();
        loss.after[1].writes_per_s = 250.0;
        loss.errors = 1;
        assert_eq!(missed(&points, &loss).len(), 4);
    }

    #[test]
    fn the_published_figures_are_those_of_the_reference() {
        let Some(folder) = std::env::var_os("HOTSET_SHARED") else {
            println!("skipped: HOTSET_SHARED does not name the folder of reference data");
            return;
        };
        let path = std::path::Path::new(&folder).join("reference/published_figures.json");
        let text = std::fs::read_to_string(path).unwrap();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let experiments = all["experiments"].as_array().unwrap();
        let ours = experiments.iter().find(|e| e["id"] == "perc_dual_mirror");
        let results = ours.unwrap()["results"].as_array().unwrap();
        for (metric, figure) in [
            (
                "random read IOPS/throughput gain, mirrored dual vs single",
                "gain.random",
            ),
            ("sequential read gain", "gain.sequential"),
            ("random read latency", "latency.random"),
            ("highest throughput", "write.sequential"),
            ("highest IOPS", "iops"),
            (
                "random and sequential write difference",
                "difference.random",
            ),
            ("CPU", "cpu"),
        ] {
            let result = results.iter().find(|r| r["metric"] == metric).unwrap();
            let printed = figures().printed;
            let printed = printed.iter().find(|p| p.figure == figure).unwrap();
            assert_eq!(result["value"].as_f64(), Some(printed.value), "{metric}");
        }
    }
}
