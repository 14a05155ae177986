//! Visitors: each loads a page, then its images, then takes the next page of
//! the list that all share.
//!
//! Pages are drawn by Zipf's law, so that some are hot and most are not.

use super::fetch::{Fetched, client, fetch};
use super::site::WebSite;
use super::threads::share;
use fastrand::Rng;
use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Plan of the visits.
#[derive(Clone, Debug)]
pub struct VisitPlan {
    /// The site.
    pub site: WebSite,
    /// The pages to load, in order; from [`pages`].
    pub pages: Vec<u32>,
    /// Visitors at the same time.
    pub visitors: usize,
    /// URL of the site, such as `http://127.0.0.1:8080`.
    pub base: String,
}

/// One page with its images, in the view of a visitor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PageVisit {
    /// Time at which the page was there in full, since the run began.
    pub at: Duration,
    /// Time from the first request to the last byte.
    pub page: Duration,
    /// Time from the request for the HTML to the first byte of its answer.
    pub first_byte: Duration,
    /// Bytes of HTML and images.
    pub bytes: u64,
}

/// The popularity of pages, by Zipf's law.
pub struct PagePopularity {
    /// Pages by rank.
    order: Vec<u32>,
    /// Sums of the weights up to each rank.
    sums: Vec<f64>,
}

impl PagePopularity {
    /// Ranks the pages of `site` by `rng`, with exponent `skew`.
    pub fn new(site: &WebSite, skew: f64, rng: &mut Rng) -> PagePopularity {
        // Popularity is no matter of the place on the disk.
        let mut order: Vec<u32> = (0..site.pages).collect();
        rng.shuffle(&mut order);
        let mut total = 0.0;
        let sums = (1..=site.pages).map(|rank| {
            total += f64::from(rank).powf(-skew);
            total
        });
        let sums = sums.collect();
        PagePopularity { order, sums }
    }

    /// Draws a page.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let at = rng.f64() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|&sum| sum < at);
        self.order[rank.min(self.order.len() - 1)]
    }
}

/// The pages of `count` loads: drawn by Zipf's law with exponent `skew`.
pub fn pages(site: &WebSite, count: usize, skew: f64, seed: u64) -> Vec<u32> {
    let mut rng = Rng::with_seed(seed);
    let popularity = PagePopularity::new(site, skew, &mut rng);
    (0..count).map(|_| popularity.draw(&mut rng)).collect()
}

/// Loads every page of the plan, reporting each to `seen`. Ends at the first failed request; the
/// error names the request.
pub fn run(plan: &VisitPlan, seen: &Sender<PageVisit>) -> io::Result<Duration> {
    let start = Instant::now();
    let state = || (client(1), seen.clone());
    let count = plan.pages.len();
    share(plan.visitors, count, state, |(client, seen), number| {
        let answers = load(client, &plan.base, &plan.site, plan.pages[number])?;
        let visit = PageVisit {
            at: start.elapsed(),
            page: answers.iter().map(|answer| answer.whole).sum(),
            first_byte: answers[0].first_byte,
            bytes: answers.iter().map(|answer| answer.bytes).sum(),
        };
        // A listener that has gone does not stop the visitors.
        let _ = seen.send(visit);
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// Loads a page and then its images, one after the other. The answers begin with the HTML's.
pub fn load(
    client: &ureq::Agent,
    base: &str,
    site: &WebSite,
    page: u32,
) -> io::Result<Vec<Fetched>> {
    let images = site.images_of(page).into_iter().map(WebSite::image_path);
    let files = [WebSite::page_path(page)].into_iter().chain(images);
    files.map(|path| fetch(client, base, &path)).collect()
}

/// Result of a run of visits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VisitSummary {
    /// Pages a second.
    pub pages_per_s: f64,
    /// Megabits of bodies a second.
    pub mbit_per_s: f64,
    /// The middle time of a page with its images.
    pub page_ms_median: f64,
    /// The time that 99 of 100 pages stayed within.
    pub page_ms_p99: f64,
    /// The middle time to the first byte.
    pub first_byte_ms_median: f64,
}

impl VisitSummary {
    /// Sums up visits over `span`; `None` without a visit.
    pub fn of(visits: &[PageVisit], span: Duration) -> Option<VisitSummary> {
        let sorted = |of: fn(&PageVisit) -> Duration| {
            let mut all: Vec<f64> = visits.iter().map(|v| of(v).as_secs_f64() * 1e3).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (pages, firsts) = (sorted(|v| v.page), sorted(|v| v.first_byte));
        let at = |sorted: &[f64], share: f64| {
            sorted
                .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
                .copied()
        };
        let bytes: u64 = visits.iter().map(|v| v.bytes).sum();
        Some(VisitSummary {
            pages_per_s: visits.len() as f64 / span.as_secs_f64(),
            mbit_per_s: bytes as f64 * 8.0 / 1e6 / span.as_secs_f64(),
            page_ms_median: at(&pages, 0.5)?,
            page_ms_p99: at(&pages, 0.99)?,
            first_byte_ms_median: at(&firsts, 0.5)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_repeat_and_some_are_hot() {
        let site = WebSite {
            seed: 1,
            pages: 1000,
            images: 10,
        };
        let list = pages(&site, 10_000, 1.0, 3);
        assert_eq!(list, pages(&site, 10_000, 1.0, 3));
        assert_ne!(list, pages(&site, 10_000, 1.0, 4));
        let mut counts = vec![0u32; 1000];
        list.iter().for_each(|&page| counts[page as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first of 1000 ranks has one part in H(1000) = 7.49.
        assert!((1150..1550).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[500] < 20);
    }

    #[test]
    fn a_summary_is_of_the_middle() {
        let visit = |ms: u64| PageVisit {
            at: Duration::from_millis(ms),
            page: Duration::from_millis(ms),
            first_byte: Duration::from_millis(ms / 10),
            bytes: 125_000,
        };
        let visits: Vec<PageVisit> = (1..=100).map(|i| visit(i * 10)).collect();
        let summary = VisitSummary::of(&visits, Duration::from_secs(10)).unwrap();
        assert_eq!(summary.pages_per_s, 10.0);
        assert_eq!(summary.mbit_per_s, 10.0);
        assert_eq!(summary.page_ms_median, 510.0);
        assert_eq!(summary.page_ms_p99, 1000.0);
        assert!(VisitSummary::of(&[], Duration::from_secs(1)).is_none());
    }
}
