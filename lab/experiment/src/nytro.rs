//! Decision support over a storage network, without a cache, with a cache that warms, and with a
//! warm cache.
//!
//! The size is a hundredth: of the database and of the flash, and so of the time. Rates, latencies
//! and seeks are the whole ones, since the database's pieces are spread over the whole volume.
//! Without the cache the same node serves its volume in pass-through. In the end the storage system
//! takes a snapshot and restores it, behind a cache that holds later writes.

use crate::choices::choose;
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::load::{Load, LoadPlace};
use crate::measured::curve;
use crate::models::RoleModels;
use crate::parameters::{COSTS, ModelParameter, ModelPart, OnMachine, micros, set};
use crate::queries::{QueriesMeasured, QueriesShape, QueryReads, run as run_queries};
use crate::record::record;
use crate::rig::{self, Disks, NodeRig, OwnModel, Volume};
use crate::verdict::{ResultTable, SeedOutcome};
use crate::visitors::VisitCurve;
use block::{Boundary, Fua, Lba, Nanos, SECTOR_BYTES, Sectors};
use control::config::Config;
use control::protocol::ControlRequest;
use drives::catalogue::link::TEN_GIGABIT;
use drives::{ModelledLink, SsdWear};
use sim::{ServiceTime, SimRng, SimWorld};

/// The experiment's name in the registry.
pub const NAME: &str = "nytro";
const FIGURES: &str = include_str!("../figures/nytro.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "decision support over a storage network, without a cache on flash, while it warms, and warm",
    needs: "100 MB; 15 seconds a seed",
    times: 100.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| set(NytroScale::QUICK, &PARAMETERS, settings).map(drop),
    run: |seed, quick, settings, done| {
        run(
            seed,
            set(NytroScale::load(quick), &PARAMETERS, settings)?,
            done,
        )
    },
    parts: &PARTS,
    load: Some(LoadUses {
        choose: |seed, quick, flash, choice| choose(NytroScale::load(quick), seed, flash, choice),
        record: |seed, quick, sink| record(NytroScale::load(quick), seed, sink),
    }),
};
/// The topology, in the form that `hotset check` reads.
pub const TOPOLOGY: &str = include_str!("../topologies/nytro.toml");
const VOLUME: &str = "database";
/// The parameters that can be set.
const PARAMETERS: [ModelParameter<NytroScale>; 5] = [
    ("lookups", 0.0..=100.0, |scale, value| {
        scale.shape.lookups = value
    }),
    ("processor_us", 0.0..=1e6, |scale, value| {
        scale.shape.processor = micros(value);
    }),
    ("database_mb", 100.0..=60_000.0, |scale, value| {
        scale.shape.bytes = value as u64 * 1_000_000;
    }),
    ("promotes_scans", 0.0..=1.0, |scale, value| {
        scale.promotes_scans = value != 0.0;
    }),
    ("flash_cost", COSTS, |scale, value| scale.flash_cost = value),
];
/// The parts of the model that can be left out.
const PARTS: [ModelPart; 4] = [
    ("the look-ups of indexes", &[("lookups", 0.0)]),
    ("the database's processor time", &[("processor_us", 0.0)]),
    ("the admission of scans", &[("promotes_scans", 0.0)]),
    ("the time of the flash", &[("flash_cost", 0.0)]),
];
/// Draws the position of the spindle, and the content of the snapshot's blocks.
const PHASES: u64 = 13;
const STAMPS: u64 = 14;
/// Blocks that are written around the snapshot.
const STAMPED: u64 = 64;
const STAMP_BYTES: usize = 64 << 10;

/// Size and parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NytroScale {
    /// The database.
    pub shape: QueriesShape,
    /// The flash.
    pub flash: Sectors,
    /// Models in place of the topology's own.
    pub models: RoleModels,
    /// Cost of the flash, as a factor.
    pub flash_cost: f64,
    /// Time covered by a point of the curves.
    pub interval: Nanos,
    /// True to keep the topology's own `sequential`, which promotes scans.
    pub promotes_scans: bool,
}

impl OnMachine for NytroScale {
    const HAS_FLASH: bool = true;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl NytroScale {
    const fn load(quick: bool) -> NytroScale {
        if quick {
            NytroScale::QUICK
        } else {
            NytroScale::FULL
        }
    }

    /// A hundredth of the published size.
    pub const FULL: NytroScale = NytroScale {
        shape: QueriesShape {
            bytes: 3_700_000_000,
            piece_bytes: 64 << 20,
            apart_bytes: 9_600 << 20,
            lookups: 0.2,
            processor: Nanos::from_micros(85),
        },
        flash: Sectors(4_000_000_000 / SECTOR_BYTES),
        models: RoleModels::OWN,
        flash_cost: 1.0,
        interval: Nanos::from_secs(1),
        promotes_scans: true,
    };
    /// A thousandth: too little to judge by.
    pub const QUICK: NytroScale = NytroScale {
        shape: QueriesShape {
            bytes: 370_000_000,
            ..NytroScale::FULL.shape
        },
        flash: Sectors(512 << 11),
        interval: Nanos::from_millis(100),
        ..NytroScale::FULL
    };
}

/// Runs `work` on the volume of a node, with the cache or without.
fn on_volume<T: 'static>(
    seed: u64,
    scale: NytroScale,
    cached: bool,
    work: impl AsyncFnOnce(NodeRig, Volume) -> Result<T, String> + 'static,
) -> Result<(T, Nanos), String> {
    let mut text = TOPOLOGY.to_owned();
    if !cached {
        text = text.replace("[[volume]]\n", "[[volume]]\nmode = \"pass-through\"\n");
    }
    if !scale.promotes_scans {
        text = text.replace("sequential = \"0B\"\n", "");
    }
    scale.on_node(seed, &text, async move |mut rig| {
        let volume = rig.volume(VOLUME)?;
        work(rig, volume).await
    })
}

impl Load for NytroScale {
    fn place(&self) -> LoadPlace {
        LoadPlace {
            volumes: &[VOLUME],
            // A ninth of the first run.
            advised_after: Nanos(self.shape.bytes * 4),
        }
    }

    const PUBLISHED: &str = TOPOLOGY;

    fn topology(&self) -> String {
        TOPOLOGY.into()
    }

    fn with_flash(self, percent: u64) -> NytroScale {
        let flash = Sectors(self.flash.0 * percent / 100);
        NytroScale { flash, ..self }
    }

    /// Each disk of the storage lies behind a link.
    fn below(self, seed: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String> {
        let mut phases = SimRng::fork(seed, PHASES);
        let to_message = |error: block::IoError| error.to_string();
        let mut below = Disks::new();
        for device in rig::disks(config) {
            let phase = rig::phase(&mut phases);
            let drive = rig::named(device).map_err(to_message)?;
            let heads = drive.model(phase, SsdWear::Steady).map_err(to_message)?;
            let link = ModelledLink::new(&TEN_GIGABIT, heads).map_err(to_message)?;
            let model = world.add_model(link);
            let disk = OwnModel {
                sectors: drive.capacity(),
                service: Some(ServiceTime::Model { model, unit: 0 }),
            };
            below.insert(device.name.to_string(), disk);
        }
        below.extend(rig::flash(config, self.flash, self.flash_cost, world)?);
        Ok(below)
    }

    async fn work(self, rig: &mut NodeRig, _: u64, ways: u64) -> Result<VisitCurve, String> {
        let volume = rig.volume(VOLUME)?;
        let ran = run_queries(&rig.env, ways, self.shape, &volume, self.interval).await;
        let ran = ran.map_err(|error| error.to_string())?;
        Ok(curve(self.interval, ran.points))
    }
}

/// Runs all queries on a fresh node: once without the cache, or twice and then the snapshot with
/// the cache, and then once more. Returns the results of the runs, the share of blocks that are the
/// back end's after its restoration, and the simulated time.
pub fn run_one(
    seed: u64,
    scale: NytroScale,
    cached: bool,
) -> Result<(Vec<QueriesMeasured>, f64, Nanos), String> {
    let ((runs, equal), took) = on_volume(seed, scale, cached, async move |rig, volume| {
        let mut runs = Vec::new();
        let once = async || {
            let ran = run_queries(&rig.env, seed, scale.shape, &volume, scale.interval).await;
            ran.map_err(|error| error.to_string())
        };
        runs.push(once().await?);
        if !cached {
            return Ok((runs, 1.0));
        }
        runs.push(once().await?);
        let equal = snapshot(seed, &rig, &volume, true).await?;
        runs.push(once().await?);
        Ok((runs, equal))
    })?;
    Ok((runs, equal, took))
}

/// The storage system's snapshot in seven steps; the share of blocks that clients read as
/// the storage system has them in the end.
async fn snapshot(
    seed: u64,
    rig: &NodeRig,
    volume: &Volume,
    invalidate: bool,
) -> Result<f64, String> {
    let to_message = |error: block::IoError| error.to_string();
    let named = || VOLUME.to_owned();
    let mut rng = SimRng::fork(seed, STAMPS);
    // 1. The database has written its state of now.
    stamp(rig, volume, &mut rng).await?;
    // 2. The database is quiesced, and so is the cache.
    rig.control(ControlRequest::Quiesce { volume: named() })
        .await?;
    // 3. The storage system takes its snapshot.
    let san = rig.medium(&rig.origin(VOLUME)?)?;
    let image = san.save();
    // 4. All goes on, and the cache comes to hold later writes.
    rig.control(ControlRequest::Resume { volume: named() })
        .await?;
    stamp(rig, volume, &mut rng).await?;
    for block in 0..STAMPED {
        let read = volume.read(block * STAMP_BYTES as u64, STAMP_BYTES).await;
        read.map_err(to_message)?;
    }
    // 5. The database is quiesced again.
    rig.control(ControlRequest::Quiesce { volume: named() })
        .await?;
    // 6. The storage system restores the snapshot.
    san.restore(&image);
    // 7. The cache is invalidated, and all goes on.
    if invalidate {
        rig.control(ControlRequest::Invalidate { volume: named() })
            .await?;
    }
    rig.control(ControlRequest::Resume { volume: named() })
        .await?;
    let mut equal = 0;
    for block in 0..STAMPED {
        let at = block * STAMP_BYTES as u64;
        let read = volume.read(at, STAMP_BYTES).await.map_err(to_message)?;
        let mut there = vec![0; STAMP_BYTES];
        san.latest(Lba(at / SECTOR_BYTES), &mut there);
        equal += u64::from(read[..] == there[..]);
    }
    Ok(equal as f64 / STAMPED as f64)
}

/// Writes blocks that nothing has held before.
async fn stamp(rig: &NodeRig, volume: &Volume, rng: &mut SimRng) -> Result<(), String> {
    for block in 0..STAMPED {
        let Some(mut buf) = rig.env.pool.try_get(STAMP_BYTES) else {
            return Err("no buffer is free".into());
        };
        buf.fill_with(|| rng.bits() as u8);
        let at = block * STAMP_BYTES as u64;
        let written = volume.write(at, buf.share(), Fua::No).await;
        written.map_err(|error| error.to_string())?;
    }
    volume.flush().await.map_err(|error| error.to_string())
}

/// Everything that was printed, measured with one seed. Calls `done` after each part.
pub fn run(seed: u64, scale: NytroScale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let (mut runs, _, first) = run_one(seed, scale, false)?;
    done(&format!("seed {seed}: without the cache"));
    let (cached, equal, second) = run_one(seed, scale, true)?;
    done(&format!(
        "seed {seed}: with the cache, twice, and the snapshot"
    ));
    runs.extend(cached);
    let after = runs.pop().expect("there is a run after the snapshot");
    let mut measured = SeedOutcome {
        virtual_s: seconds(first + second),
        ..SeedOutcome::default()
    };
    compare(&mut measured, &runs, scale.interval);
    measured.set("claim.snapshot", equal);
    measured.tables = vec![table(&runs), around_the_snapshot(&runs[2], &after)];
    let points = runs.iter().flat_map(|run| run.points.iter().copied());
    let all = curve(scale.interval, points);
    let name = "without the cache, while it warms, and warm, one after the other";
    measured.curves.push((name.to_owned(), all));
    for (name, run) in [("without the cache", 0), ("warm", 2)] {
        // The last point is not a whole one.
        let (_, whole) = runs[run].points.split_last().expect("it took some time");
        let alone = curve(scale.interval, whole.iter().copied());
        measured.curves.push((name.to_owned(), alone));
    }
    Ok(measured)
}

/// Times of the queries in the three runs.
fn table(runs: &[QueriesMeasured]) -> ResultTable {
    let line = |name: String, time: &dyn Fn(&QueriesMeasured) -> Nanos| {
        let times = runs.iter().map(|run| format!("{:.1}", seconds(time(run))));
        [name].into_iter().chain(times).collect()
    };
    let queries = 0..runs[0].queries.len();
    let queries = queries.map(|n| line((n + 1).to_string(), &|run| run.queries[n]));
    let lines = queries.chain([line("all".into(), &QueriesMeasured::span)]);
    ResultTable::new(
        "Times of the queries, s",
        &["query", "without the cache", "while it warms", "warm"],
        lines.collect(),
    )
    .drawn_in("s")
}

/// The workload before and after the snapshot. The last step has emptied the cache.
fn around_the_snapshot(before: &QueriesMeasured, after: &QueriesMeasured) -> ResultTable {
    let line = |(name, run): (&str, &QueriesMeasured)| {
        let (all, span_s) = (run.whole(), seconds(run.span()));
        vec![
            name.to_owned(),
            format!("{span_s:.1}"),
            format!("{:.1}", all.bytes as f64 / 1e6 / span_s),
            format!("{:.3}", all.mean_ms()),
        ]
    };
    let runs = [
        ("before it, warm", before),
        ("after its restoration", after),
    ];
    ResultTable::new(
        "The workload before and after the snapshot",
        &["run", "all queries, s", "MB/s", "mean read, ms"],
        runs.map(line).into(),
    )
}

/// Sets the published figures, from the three runs.
fn compare(measured: &mut SeedOutcome, runs: &[QueriesMeasured], interval: Nanos) {
    let [none, warming, warm] = runs else {
        unreachable!("there are three runs")
    };
    let span = |run: &QueriesMeasured| seconds(run.span());
    let latency_ms = |reads: QueryReads| seconds(reads.taken) * 1e3 / reads.reads as f64;
    let rate = |run: &QueriesMeasured| run.whole().bytes as f64 / span(run);
    // The last point is not a whole one.
    let whole = |run: &QueriesMeasured| run.points[..run.points.len() - 1].to_vec();
    let largest = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
    let peak = |run: &QueriesMeasured| {
        let rates = whole(run).into_iter().map(|point| point.bytes as f64);
        largest(rates.collect()) / seconds(interval)
    };
    let slowest = largest(whole(warm).into_iter().map(latency_ms).collect());
    let begins = |run: &QueriesMeasured| run.points[0].bytes as f64;
    let faster = span(none) / span(warm);
    let later = warming.queries.iter().zip(&warm.queries).skip(9);
    let later = later.map(|(two, three)| two.0 as f64 / three.0 as f64);
    let thirds = |run: &QueriesMeasured| {
        let points = whole(run);
        let third = points.len() / 3;
        let sum = |points: &[QueryReads]| points.iter().map(|p| p.bytes as f64).sum::<f64>();
        sum(&points[points.len() - third..]) / sum(&points[..third])
    };
    let order = (span(none) / span(warming)).min(span(warming) / span(warm));
    for (figure, value) in [
        ("time", faster),
        ("application", faster),
        (
            "latency.gain",
            latency_ms(none.whole()) / latency_ms(warm.whole()),
        ),
        ("latency.peak", slowest),
        ("latency.mean", latency_ms(warm.whole())),
        ("latency.none", latency_ms(none.whole())),
        ("throughput.peak", peak(warm) / peak(none)),
        ("throughput.mean", rate(warm) / rate(none)),
        ("claim.warm", largest(later.collect())),
        ("claim.start", begins(warming) / begins(none)),
        ("claim.rise", thirds(warming)),
        ("claim.order", order),
    ] {
        measured.set(figure, value);
    }
}

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;

    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, NytroScale::QUICK, &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), true, 0.0).unwrap();
        assert_eq!(rows.len(), 13);
        assert!(outcome.values["time"] > 3.0, "{:?}", outcome.values);
        assert_eq!(outcome.values["claim.snapshot"], 1.0);
        // The cache is empty after the last step, and warms again.
        let of = |line: usize| outcome.tables[1].lines[line][1].parse::<f64>().unwrap();
        assert!(of(1) > of(0) * 1.1, "{:?}", outcome.tables[1]);
        let again = || run_one(1, NytroScale::QUICK, true).unwrap();
        assert_eq!(again(), again());
    }

    /// A check that cannot fail would be none.
    #[test]
    fn canary_without_invalidate_the_snapshot_is_not_what_clients_read() {
        for (invalidate, equal) in [(true, 1.0), (false, 0.0)] {
            let shared = on_volume(1, NytroScale::QUICK, true, async move |rig, volume| {
                snapshot(1, &rig, &volume, invalidate).await
            });
            assert_eq!(shared.unwrap().0, equal, "{invalidate}");
        }
    }
}
