//! `hotset-lab demo`: a web server on slow disks, without and with the cache.
//!
//! Everything is real but the disks: ext4 on a daemon's NBD export,
//! nginx, and visitors that load pages with their images. The disks are a file
//! that answers as slowly as hard disks would, in real time.
//!
//! Both runs load the same list of pages. Before each, the daemon and the file system restart, and
//! their caches are checked and must be empty.

mod chart;
mod host;
mod stage;
mod workspace;

use crate::CommandFailure;
use crate::web::visits::{self, PageVisit, VisitPlan, VisitSummary};
use chart::DemoSeries;
use command::{print, print_line};
use control::status::Status;
use stage::DemoStage;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use testbed::namespace;
use workspace::Workspace;

/// Visitors at the same time.
const VISITORS: usize = 12;
/// The exponent of Zipf's law for pages, as measured on web servers (Breslau et
/// al., Web caching and Zipf-like distributions, INFOCOM 1999: 0.64 to 0.83; a
/// single site's front pages draw more).
const SKEW: f64 = 0.9;
const SEED: u64 = 20;

/// One run: the visits, and the daemon's status.
struct DemoRun {
    visits: Vec<PageVisit>,
    span: Duration,
    hit_percent: f64,
}

/// Runs the demonstration in `directory`, loading `pages` pages twice; the pool is
/// under `policy`.
pub fn run(directory: &Path, pages: usize, policy: &str) -> Result<(), CommandFailure> {
    host::require()?;
    namespace::enter().map_err(CommandFailure::Runtime)?;
    let workspace = Workspace::prepare(directory, policy)?;
    let list = visits::pages(&workspace.site, pages, SKEW, SEED);
    print_line(format!(
        "{pages} page loads by {VISITORS} visitors, each a page and its 11-12 images, \
         twice the same list; policy {policy}"
    ))?;
    let without = perform(&workspace, "pass-through", "without", &list)?;
    let with = perform(&workspace, "write-through", "with hotset", &list)?;
    report(&workspace, &without, &with)
}

fn perform(
    workspace: &Workspace,
    mode: &str,
    name: &str,
    pages: &[u32],
) -> Result<DemoRun, CommandFailure> {
    let stage = DemoStage::raise(workspace, mode)?;
    stage.prove_cold()?;
    let plan = VisitPlan {
        site: workspace.site,
        pages: pages.to_vec(),
        visitors: VISITORS,
        base: stage.base(),
    };
    let (seen, heard) = channel();
    let loading = std::thread::spawn(move || visits::run(&plan, &seen));
    let visits = watch(&stage, name, pages.len(), &heard)?;
    let span = loading
        .join()
        .map_err(|_| CommandFailure::runtime("a visitor panicked"))?;
    let span = span.map_err(CommandFailure::runtime)?;
    let status = stage.status()?;
    stage.strike()?;
    Ok(DemoRun {
        visits,
        span,
        hit_percent: hit_percent(&status),
    })
}

/// Shows the progress until the visitors are done.
fn watch(
    stage: &DemoStage,
    name: &str,
    pages: usize,
    heard: &Receiver<PageVisit>,
) -> Result<Vec<PageVisit>, CommandFailure> {
    let (live, mut shown) = (stdout().is_terminal(), Instant::now());
    let (mut visits, mut fresh) = (Vec::new(), 0);
    loop {
        match heard.recv_timeout(Duration::from_millis(200)) {
            Ok(visit) => visits.push(visit),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let every = Duration::from_secs(if live { 1 } else { 5 });
        let span = shown.elapsed();
        if span < every {
            continue;
        }
        if let Some(now) = VisitSummary::of(&visits[fresh..], span) {
            let hits = hit_percent(&stage.status()?);
            let line = format!(
                "{name:>12}: {:>5}/{pages} pages  hits {hits:>3.0}%  {:>5.1} Mbit/s  \
                 page {:>6.0} ms  first byte {:>5.1} ms",
                visits.len(),
                now.mbit_per_s,
                now.page_ms_median,
                now.first_byte_ms_median,
            );
            match live {
                true => print(format!("\r{line}"))?,
                false => print_line(line)?,
            }
        }
        (shown, fresh) = (Instant::now(), visits.len());
    }
    if live {
        print_line("")?;
    }
    Ok(visits)
}

fn hit_percent(status: &Status) -> f64 {
    let volume = status.volumes.first();
    volume.and_then(|volume| volume.hit_percent).unwrap_or(0.0)
}

fn report(workspace: &Workspace, without: &DemoRun, with: &DemoRun) -> Result<(), CommandFailure> {
    let whole = |run: &DemoRun| {
        VisitSummary::of(&run.visits, run.span)
            .ok_or_else(|| CommandFailure::runtime("no page was loaded"))
    };
    // The last quarter shows the warm cache.
    let warm = |run: &DemoRun| {
        let last = &run.visits[run.visits.len() * 3 / 4..];
        let begin = last.first().map_or(Duration::ZERO, |visit| visit.at);
        VisitSummary::of(last, run.span.saturating_sub(begin))
            .ok_or_else(|| CommandFailure::runtime("no page was loaded"))
    };
    print_line(format!(
        "\nsimulated HDD in real time: 4 x {}, striped\n",
        workspace::DRIVE
    ))?;
    print_line(format!(
        "{:<28}{:>12}{:>14}{:>9}",
        "", "without", "with hotset", "ratio"
    ))?;
    for (part, a, b) in [
        ("all pages", whole(without)?, whole(with)?),
        ("last quarter", warm(without)?, warm(with)?),
    ] {
        print_line(part)?;
        row("pages/s", a.pages_per_s, b.pages_per_s)?;
        row("Mbit/s", a.mbit_per_s, b.mbit_per_s)?;
        row("page, median ms", a.page_ms_median, b.page_ms_median)?;
        row("page, p99 ms", a.page_ms_p99, b.page_ms_p99)?;
        row(
            "first byte, median ms",
            a.first_byte_ms_median,
            b.first_byte_ms_median,
        )?;
    }
    print_line(format!(
        "{:<28}{:>11.0}%{:>13.0}%",
        "hit ratio", without.hit_percent, with.hit_percent
    ))?;
    let path = workspace.directory.join("warm-up.svg");
    let title = format!(
        "Page time while the cache warms (simulated HDD in real time, 4 x {})",
        workspace::DRIVE
    );
    let series = [("without", without), ("with hotset", with)];
    let series = series.map(|(name, run)| DemoSeries {
        name,
        visits: &run.visits,
    });
    chart::draw(&path, &title, &series).map_err(CommandFailure::runtime)?;
    print_line(format!("\nchart: {}", path.display()))
}

fn row(name: &str, without: f64, with: f64) -> Result<(), CommandFailure> {
    let ratio = with / without;
    print_line(format!(
        "  {name:<26}{without:>12.1}{with:>14.1}{ratio:>8.2}x"
    ))
}
