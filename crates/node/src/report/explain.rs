//! Explains why a volume, and lines of it, are cached or not.

use crate::node::{Node, NodePool};
use crate::platform::Platform;
use crate::served_volume::ServedVolume;
use block::{Device as _, Driver, Nanos};
use cache::{CacheMode, Counter, Decision, DeviceState, LineReport, Noted};
use control::config::Name;
use control::explained::{
    Explained, ExplainedLine, ExplainedRange, ExplainedRegion, LINES_MAX, ReasonCount,
};
use policy::regions::PolicyRegions;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

/// Most lines of a region that are looked up.
const PROBES: u64 = 64;
/// Number of regions looked up before other tasks run.
const REGIONS_AT_ONCE: usize = 16;
const BLOCK_BYTES: u64 = 4096;
const NANOS_PER_S: u64 = 1_000_000_000;

/// Counters of reasons why data is not cached, or was not served by the pool.
const REASONS: [Counter; 22] = [
    Counter::ReadsPassed,
    Counter::RejectedSequential,
    Counter::RejectedInFlight,
    Counter::RejectedRate,
    Counter::RejectedCold,
    Counter::RejectedPinned,
    Counter::RejectedNoSlots,
    Counter::RejectedMemory,
    Counter::RejectedOverwritten,
    Counter::RejectedEvicted,
    Counter::RejectedCollision,
    Counter::LinesEvicted,
    Counter::LinesDropped,
    Counter::BlocksInvalidated,
    Counter::PoolWritesFailed,
    Counter::PoolWritesInVain,
    Counter::PoolWritesPoisoned,
    Counter::HitsTorn,
    Counter::HitsLate,
    Counter::HitsFailed,
    Counter::BlocksCorrupt,
    Counter::DevicesEjected,
];

/// Names of a pool's volumes and devices, to name the line that evicted another.
struct Names {
    volumes: BTreeMap<u32, Name>,
    devices: BTreeMap<u32, Name>,
}

impl<P: Platform> Node<P> {
    /// Explains why `volume` is cached or not, with each line of `range`, in bytes.
    pub async fn explain(
        &self,
        volume: &str,
        range: Option<(u64, u64)>,
    ) -> Result<Explained, String> {
        let name = Name::new(volume)?;
        let found = self.volumes.borrow().get(&name).map(|served| {
            let pool = served.pool.clone();
            (served.volume.clone(), pool)
        });
        let none = || self.no_volume(name.as_str());
        let (volume, pool_name) = found.ok_or_else(none)?;
        let size_bytes = volume.geometry().sectors.bytes();
        if let Some(range) = range {
            check(range, size_bytes, &name)?;
        }
        let pool = &self.pools.borrow()[&pool_name].clone();
        let now = self.platform.local().env().timer.now();
        volume.profiling().tick(now);
        let heat = volume.profiling().regions();
        let (regions, sampled) = regions(&volume, &heat, now).await;
        let (lines_used, lines) = pool.cache.lines();
        let range = range.map(|range| {
            let names = self.names(pool);
            lines_of(&volume, range, &heat, &names, now)
        });
        Ok(Explained {
            volume: name.to_string(),
            size_bytes,
            pool: pool_name.to_string(),
            mode: volume.mode().name().to_owned(),
            mode_help: volume.mode().help().to_owned(),
            line_bytes: volume.cached().line().bytes(),
            lines_used,
            lines,
            lost_devices: lost(pool),
            policy: super::policy(pool, now),
            reasons: reasons(&volume, pool),
            counters: control::status::NamedCounters::from(&volume.cached().counters()),
            regions,
            region_bytes: heat.region_lines() * volume.cached().line().bytes(),
            sampled,
            range,
        })
    }

    fn names(&self, pool: &NodePool<P::Driver>) -> Names {
        let volumes = self.volumes.borrow();
        let volumes = volumes
            .iter()
            .map(|(n, v)| (v.volume.cached().id(), n.clone()));
        let devices = pool.devices.borrow();
        let devices = devices.iter().map(|(name, id)| (id.0, name.clone()));
        Names {
            volumes: volumes.collect(),
            devices: devices.collect(),
        }
    }
}

fn check((start, end): (u64, u64), size: u64, name: &Name) -> Result<(), String> {
    if start >= end {
        return Err(format!(
            "the range {start}-{end} is empty; let it end after it begins"
        ));
    }
    if end > size {
        return Err(format!(
            "the range {start}-{end} ends beyond volume {name} of {size} bytes; choose a smaller one"
        ));
    }
    Ok(())
}

/// The volume's regions, and true if their residence is estimated.
async fn regions<D: Driver>(
    volume: &ServedVolume<D>,
    heat: &PolicyRegions,
    now: Nanos,
) -> (Vec<ExplainedRegion>, bool) {
    let (lines, cached) = (heat.region_lines(), volume.cached());
    let step = lines.div_ceil(PROBES);
    let blocks = cached.line().bytes() / BLOCK_BYTES;
    let mut regions = Vec::with_capacity(heat.regions().len());
    for (n, region) in heat.regions().iter().enumerate() {
        if n % REGIONS_AT_ONCE == REGIONS_AT_ONCE - 1 {
            give_way().await;
        }
        let first = n as u64 * lines;
        let end = (first + lines).min(cached.lines());
        let (mut valid, mut probed) = (0, 0);
        for line in (first..end).step_by(step as usize) {
            valid += u64::from(cached.valid_blocks(line));
            probed += blocks;
        }
        let resident = valid as f64 / probed.max(1) as f64;
        regions.push(ExplainedRegion::new(region, now.0 / NANOS_PER_S, resident));
    }
    (regions, step > 1)
}

/// Lets other tasks run.
async fn give_way() {
    let mut given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn lost<D: Driver>(pool: &NodePool<D>) -> Vec<String> {
    let reports = pool.cache.devices();
    let lost = reports.iter().filter_map(|report| match report.state {
        DeviceState::Online => None,
        DeviceState::Leaving => Some(format!("{} is being removed", report.name)),
        DeviceState::Ejected(fault) => {
            Some(format!("{} was ejected ({})", report.name, fault.name()))
        }
    });
    lost.collect()
}

fn reasons<D: Driver>(volume: &ServedVolume<D>, pool: &NodePool<D>) -> Vec<ReasonCount> {
    let (own, all) = (volume.cached().counters(), pool.cache.counters());
    let reason = |counter: &Counter| {
        let of_pool = matches!(
            counter,
            Counter::HitsTorn
                | Counter::HitsLate
                | Counter::HitsFailed
                | Counter::BlocksCorrupt
                | Counter::DevicesEjected
        );
        let whole = if of_pool { " Of the whole pool." } else { "" };
        ReasonCount {
            name: counter.name().to_owned(),
            count: if of_pool { &all } else { &own }.get(*counter),
            help: format!("{}{whole}", counter.help()),
        }
    };
    REASONS.iter().map(reason).collect()
}

fn lines_of<D: Driver>(
    volume: &ServedVolume<D>,
    (start, end): (u64, u64),
    heat: &PolicyRegions,
    names: &Names,
    now: Nanos,
) -> ExplainedRange {
    let len = volume.cached().line().bytes();
    let lines = start / len..end.div_ceil(len);
    let listed = lines.clone().take(LINES_MAX as usize);
    let listed = listed.map(|line| {
        let region = heat.regions()[(line / heat.region_lines()) as usize];
        let region = ExplainedRegion::new(&region, now.0 / NANOS_PER_S, 0.0);
        explain_line(volume, line, &region, names, now)
    });
    ExplainedRange {
        start,
        end,
        lines_in_range: lines.end - lines.start,
        lines: listed.collect(),
    }
}

fn explain_line<D: Driver>(
    volume: &ServedVolume<D>,
    line: u64,
    region: &ExplainedRegion,
    names: &Names,
    now: Nanos,
) -> ExplainedLine {
    let report = volume.cached().explain(line);
    let ago = |at: Nanos| now.since(at).as_secs_f64();
    let device = report.residence.as_ref().map(|residence| {
        let name = names.devices.get(&residence.device.0);
        name.map_or_else(|| residence.device.0.to_string(), Name::to_string)
    });
    let resident = report.residence.as_ref();
    ExplainedLine {
        start: report.extent.start.0 * block::SECTOR_BYTES,
        len: report.extent.len.bytes(),
        valid: resident.map_or_else(Vec::new, |r| {
            r.valid.iter().map(|v| (v.start, v.end)).collect()
        }),
        device,
        admitted_s: report.last.and_then(|noted| noted.admitted).map(ago),
        decision: decision(&report),
        decided_s: report.last.map(|noted| ago(noted.at)),
        why: why(volume, &report, region, names),
        region_heat: region.heat(),
        region_idle_s: region.idle_s,
    }
}

fn decision(report: &LineReport) -> String {
    let name = match report.last.map(|noted| noted.decision) {
        None => "unknown",
        Some(Decision::Admitted) if report.residence.is_none() => "lost",
        Some(Decision::Admitted) => "admitted",
        Some(Decision::Evicted(_)) => "evicted",
        Some(Decision::Overwritten) => "overwritten",
        Some(Decision::Distrusted) => "distrusted",
        Some(Decision::Dropped) => "dropped",
        Some(Decision::Refused(counter)) => counter.name(),
    };
    name.to_owned()
}

/// The reason of a line's state, in one line without a full stop.
fn why<D: Driver>(
    volume: &ServedVolume<D>,
    report: &LineReport,
    region: &ExplainedRegion,
    names: &Names,
) -> String {
    let mode = volume.cached().mode();
    let unused = if mode == CacheMode::PassThrough {
        "; the volume is in pass-through, so requests go to the origin all the same"
    } else {
        ""
    };
    let because = match &report.residence {
        Some(residence) => resident(report, residence),
        None => absent(volume, report.last, region, names),
    };
    because + unused
}

fn resident(report: &LineReport, residence: &cache::Residence) -> String {
    let blocks = (report.extent.len.bytes() / BLOCK_BYTES) as u32;
    let valid: u32 = residence.valid.iter().map(|run| run.end - run.start).sum();
    let refused = match report.last.map(|noted| noted.decision) {
        Some(Decision::Refused(counter)) => format!("; last: {}", plain(counter.help())),
        Some(Decision::Overwritten) => "; a client has written to it".into(),
        Some(Decision::Distrusted) => "; its origin may have lost writes to it".into(),
        _ => String::new(),
    };
    if valid == blocks {
        format!("in the pool, whole{refused}")
    } else if valid == 0 {
        format!("has its place in the pool, and nothing in it yet{refused}")
    } else {
        format!("in the pool, {valid} of {blocks} blocks of 4 KiB, those asked for so far{refused}")
    }
}

fn absent<D: Driver>(
    volume: &ServedVolume<D>,
    last: Option<Noted>,
    region: &ExplainedRegion,
    names: &Names,
) -> String {
    let Some(noted) = last else {
        return match region.idle_s {
            None => "nothing around it was asked for since the volume was added".into(),
            Some(_) => {
                "no decision is remembered: it was not asked for, or that is too long ago".into()
            }
        };
    };
    match noted.decision {
        Decision::Admitted => "was in the pool until its device was removed or ejected".into(),
        Decision::Evicted(key) => {
            let (owner, line) = volume.cached().owner(key);
            let at = line * volume.cached().line().bytes();
            match names.volumes.get(&owner) {
                Some(name) => format!("made room for the line at {at} of volume {name}"),
                None => "made room for a line of a volume that was removed since".into(),
            }
        }
        Decision::Refused(counter) => plain(counter.help()),
        Decision::Overwritten => "was given up after a client wrote to it".into(),
        Decision::Distrusted => "was given up because its origin may have lost writes to it".into(),
        Decision::Dropped => "was given up because nothing valid was left in it".into(),
    }
}

/// A sentence of a counter's help as a clause.
fn plain(help: &str) -> String {
    let help = help.trim_end_matches('.');
    let mut chars = help.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}
