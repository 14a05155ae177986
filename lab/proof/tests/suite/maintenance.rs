//! Scrubs that begin by themselves, and exchanges of members, on a node in virtual time.

use block::{Geometry, Nanos, Sectors};
use control::job::{Job, JobState};
use control::protocol::{ControlRequest, NamedOrNew};
use control::status::ArrayReport;
use futures_util::future::join;
use node::Before;
use shard::Local;
use sim::{DiskSpec, RunBudget, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{Direct, RunningNode, SimMachine, SimPlatform, create_array, run_alone};
use std::rc::Rc;

const CONFIG: &str = r#"
[[device]]
name = "a"
path = "/a"

[[device]]
name = "b"
path = "/b"

[[array]]
name = "mirror"
level = "raid1"
members = ["a", "b"]
scrub_interval = "INTERVAL"

[[pool]]
name = "fast"
devices = []

[[volume]]
name = "data"
origin = "mirror"
pool = "fast"
"#;

/// Runs `test` on a node with a mirror that is to be scrubbed every `interval`.
fn on_a_mirror(interval: &str, test: impl AsyncFnOnce(Bench) + 'static) {
    on_mirrors(CONFIG.replace("INTERVAL", interval), 16, test);
}

/// A node of this configuration, with disks of `mib` MiB and its arrays made of them.
fn on_mirrors(text: String, mib: u64, test: impl AsyncFnOnce(Bench) + 'static) {
    let mut problems = Vec::new();
    let config = control::config::parse(&text, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let mut world = SimWorld::new(1);
    let machine = SimMachine::new(&mut world, &config, move |device| {
        let geometry = Geometry::new(
            device.name.value.as_str(),
            Sectors::from_mib(mib),
            Sectors(1),
        );
        Ok(DiskSpec::new(geometry))
    });
    let machine = machine.expect("sound disks");
    let mut sim = SimHost::new(world).pool_bytes(64 << 20);
    sim.set_budget(RunBudget::until(Nanos::from_secs(86_400)));
    let (outcome, _) = run_alone(&mut sim, async move |local| {
        let platform = SimPlatform::new(machine.clone(), local.clone());
        for array in &config.arrays {
            let made = create_array(&config, platform.clone(), &array.name.value, Before::Used);
            made.await.expect("sound");
        }
        let bench = Bench {
            local,
            machine,
            config: Rc::new(config),
        };
        test(bench).await;
    });
    assert_eq!(outcome, RunOutcome::Done);
}

struct Bench {
    local: Local<SimDriver>,
    machine: Rc<SimMachine>,
    config: Rc<control::config::Config>,
}

impl Bench {
    async fn serve(&self) -> RunningNode {
        let platform = SimPlatform::new(self.machine.clone(), self.local.clone());
        let frontend = Direct::new(&self.local);
        let node = RunningNode::start(&self.config, platform, frontend).await;
        node.expect("it starts")
    }

    /// Looks at the arrays after each of these spans, in seconds, of a node's life, which ends in
    /// order. `begun` is called once the node serves.
    async fn watch(&self, spans: &[u64], begun: impl FnOnce()) -> Vec<Vec<ArrayReport>> {
        let timer = self.local.env().timer;
        let node = self.serve().await;
        begun();
        let mut seen = Vec::new();
        let began = timer.now();
        for span in spans {
            timer.until(began + Nanos::from_secs(*span)).await;
            seen.push(node.status().await.expect("a status is given").arrays);
        }
        node.stop().await.expect("it stops");
        seen
    }

    /// Looks at the mirror after so many hours and a minute.
    async fn live_with(&self, hours: &[u64], begun: impl FnOnce()) -> Vec<ArrayReport> {
        let spans: Vec<u64> = hours.iter().map(|hour| 3600 * hour + 60).collect();
        self.watch(&spans, begun).await.concat()
    }

    async fn live(&self, hours: &[u64]) -> Vec<ArrayReport> {
        self.live_with(hours, || ()).await
    }
}

/// The hours of a span. A minute or two of difference is the time of a scrub's begin or end.
fn hours(span: Option<u64>) -> Option<u64> {
    span.map(|seconds| (seconds + 120) / 3600)
}

#[test]
fn a_scrub_begins_when_its_time_has_come_whatever_was_restarted() {
    on_a_mirror("4h", async |bench| {
        let seen = bench.live(&[0, 3]).await;
        let ends = |array: &ArrayReport| (hours(array.scrubbed_s), hours(array.scrub_due_s));
        assert_eq!(ends(&seen[0]), (None, Some(4)), "it is new");
        assert_eq!(ends(&seen[1]), (None, Some(1)));
        assert!(seen[1].scrub.is_none());
        // The time that has passed counts in the next life too.
        let seen = bench.live(&[0, 2, 4, 6]).await;
        assert_eq!(ends(&seen[0]), (None, Some(1)));
        assert_eq!(ends(&seen[1]), (Some(1), Some(3)), "{:?}", seen[1]);
        let scrub = seen[1].scrub.as_ref().expect("one has ended");
        assert!(!scrub.running && scrub.error.is_none() && scrub.mismatches == 0);
        assert_eq!(ends(&seen[2]), (Some(3), Some(1)));
        assert_eq!(ends(&seen[3]), (Some(1), Some(3)), "and the one after that");
    });
}

#[test]
fn none_begins_where_none_is_wanted() {
    on_a_mirror("0s", async |bench| {
        let seen = bench.live(&[20]).await;
        assert_eq!((seen[0].scrubbed_s, seen[0].scrub_due_s), (None, None));
        assert!(seen[0].scrub.is_none());
    });
}

#[test]
fn an_array_without_one_of_its_members_is_not_scrubbed() {
    on_a_mirror("1h", async |bench| {
        let pull = || bench.machine.pull("/b");
        let seen = bench.live_with(&[3], pull).await;
        assert_eq!(seen[0].state, "degraded");
        assert!(seen[0].scrub.is_none());
        bench.machine.give_back("/b");
        let seen = bench.live(&[2]).await;
        assert!(seen[0].scrubbed_s.is_some(), "{:?}", seen[0]);
    });
}

/// Two mirrors of four disks on one controller, or on one each.
fn two_mirrors(is_shared: bool) -> String {
    let mut text = String::new();
    for disk in ["a", "b", "c", "d"] {
        let controller = if is_shared { "hba" } else { disk };
        text += &format!(
            "[[device]]\nname = \"{disk}\"\npath = \"/{disk}\"\ncontroller = \"{controller}\"\n"
        );
    }
    text += "[[pool]]\nname = \"fast\"\ndevices = []\n";
    for (name, members) in [("one", ["a", "b"]), ("other", ["c", "d"])] {
        text += &format!(
            "[[array]]\nname = \"{name}\"\nlevel = \"raid1\"\nmembers = {members:?}\n\
             scrub_interval = \"1h\"\n[[volume]]\nname = \"v-{name}\"\norigin = \"{name}\"\n\
             pool = \"fast\"\n"
        );
    }
    text
}

#[test]
fn of_arrays_that_share_a_controller_one_is_scrubbed_at_a_time() {
    for is_shared in [true, false] {
        on_mirrors(two_mirrors(is_shared), 2048, async move |bench| {
            let spans: Vec<u64> = (3599..3660).chain([3900]).collect();
            let seen = bench.watch(&spans, || ()).await;
            let running = |arrays: &Vec<ArrayReport>| {
                let scrubs = arrays.iter().filter_map(|array| array.scrub.as_ref());
                scrubs.filter(|scrub| scrub.running).count()
            };
            let most = seen.iter().map(running).max();
            assert_eq!(most, Some(if is_shared { 1 } else { 2 }));
            let last = seen.last().expect("it was looked at");
            assert!(
                last.iter().all(|array| array.scrubbed_s.is_some()),
                "{last:?}"
            );
        });
    }
}

#[test]
fn an_exchange_that_is_cancelled_is_at_no_time_one_that_failed() {
    let text = CONFIG.replace("INTERVAL", "0s") + "[[device]]\nname = \"c\"\npath = \"/c\"\n";
    on_mirrors(text, 2048, async |bench| {
        let timer = bench.local.env().timer;
        let node = bench.serve().await;
        let replace = ControlRequest::ReplaceMember {
            array: "mirror".into(),
            member: "b".into(),
            device: NamedOrNew::Named("c".into()),
            overwrite: true,
        };
        node.ask(replace).await.expect("it is begun");
        let job = async || -> Option<Job> {
            let jobs = node.status().await.expect("a status is given").jobs;
            jobs.into_iter().find(|job| job.name == "replace:mirror")
        };
        let seen_until = async |state: JobState| {
            let mut seen = Vec::new();
            while seen.last() != Some(&state) && seen.len() < 10_000 {
                seen.extend(job().await.map(|job| job.state));
                timer.sleep(Nanos::from_millis(1)).await;
            }
            seen
        };
        seen_until(JobState::Running).await;
        let cancel = ControlRequest::CancelJob {
            job: "replace:mirror".into(),
        };
        let (cancelled, seen) = join(node.ask(cancel), seen_until(JobState::Cancelled)).await;
        cancelled.expect("it can be");
        assert!(!seen.contains(&JobState::Failed), "{seen:?}");
        assert_eq!(
            job().await.expect("it is listed").state,
            JobState::Cancelled
        );
        node.stop().await.expect("it stops");
    });
}
