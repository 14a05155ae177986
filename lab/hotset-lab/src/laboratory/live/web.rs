//! `hotset-lab live web`: users of a web site, who load a page, think, and load another.
//!
//! The site and its pages are those of the demonstration; tallies are those of the evaluation in
//! virtual time. A user has one connection, kept open.

use super::options::{LiveArguments, nanos};
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LivePlace, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use crate::web::fetch::client;
use crate::web::server::{ServerProgram, WebServer};
use crate::web::site::{FILE_BYTES_MAX, WebSite};
use crate::web::threads::share;
use crate::web::visits::{PagePopularity, load};
use block::Nanos;
use clap::Args;
use experiment::maxiq;
use experiment::visitors::{ServedRequest, VisitCurve, VisitTally};
use fastrand::Rng;
use std::io;
use std::time::{Duration, Instant};

const NAME: &str = "web";
/// Draws the site, the popularity of pages, and the users' pages and thoughts.
const SEED: u64 = 1;
/// Images for each page of the site.
const IMAGES: u32 = 3;
/// Exponent of Zipf's law: a single site's front pages draw more than a server's (0.64 to 0.83 by
/// Breslau et al., Web caching and Zipf-like distributions, INFOCOM 1999).
const SKEW: f64 = 0.9;
/// Points of a curve.
const POINTS: u64 = 60;

#[derive(Args)]
pub struct LiveWeb {
    #[command(flatten)]
    at: LiveArguments,
    /// The web server
    #[arg(long, value_name = "SERVER", default_value = "nginx")]
    server: ServerProgram,
    /// Pages of the site, each with 11 or 12 of three times as many images: 60 KB of files a page
    #[arg(long, value_name = "N", default_value_t = 4000,
          value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pages: u32,
    /// Users at a time; several numbers are a sweep
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "12",
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    users: Vec<u32>,
    /// Mean time that a user thinks between two pages, in milliseconds; drawn exponentially
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    think: u64,
    /// Time over which the users begin, in seconds; not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    ramp: u64,
    /// Time that is measured of each number of users, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

pub fn run(command: &LiveWeb) -> Result<(), CommandFailure> {
    let site = WebSite {
        seed: SEED,
        pages: command.pages,
        images: command.pages * IMAGES,
    };
    let files = (site.pages + site.images) as usize;
    command.server.require()?;
    let mut stage = LiveStage::raise(&command.at, std::iter::repeat_n(FILE_BYTES_MAX, files))?;
    let root = stage.directory().join("site");
    let written = site.write(&root, || stage.interruption().require_none());
    let bytes = written.map_err(|cause| stage.failed(&root, cause))?;
    stage.prove_volume(&root.join(WebSite::page_path(0)))?;
    let server = WebServer::start(command.server, &root, stage.directory(), |server| server)?;
    let figures = maxiq::figures();
    let about: Vec<FigureAbout> = command
        .users
        .iter()
        .flat_map(|users| figures_of(*users))
        .collect();
    let report = LiveReport::new(NAME, &figures.source, stage.page_cache())
        .of(&command.at)
        .asked("server", command.server.name())
        .asked("pages", command.pages)
        .asked("users", format!("{:?}", command.users))
        .asked("think_ms", command.think)
        .asked("ramp_s", command.ramp)
        .asked("seconds", command.seconds)
        .note(format!(
            "{} pages and {} images, {bytes} bytes",
            site.pages, site.images
        ));
    let visitors = WebVisitors {
        popularity: PagePopularity::new(&site, SKEW, &mut Rng::with_seed(SEED)),
        site,
        base: server.base(),
        think: Duration::from_millis(command.think),
        ramp: Duration::from_secs(command.ramp),
        span: Duration::from_secs(command.seconds),
    };
    rounds::run(&command.at, &mut stage, report, &about, |stage, _| {
        let mut outcome = LoadOutcome::default();
        for users in &command.users {
            let curve = visitors
                .visit(*users, stage)
                .map_err(CommandFailure::runtime)?;
            measure(*users, &curve, &mut outcome)?;
            outcome.curves.push((format!("{users} users"), curve));
        }
        Ok(outcome)
    })?;
    server.stop()?;
    stage.strike()
}

/// The figures of so many users; the evaluation printed most of them for its own number.
fn figures_of(users: u32) -> Vec<FigureAbout> {
    let figures = maxiq::figures();
    let about = |(figure, unit): (&str, &'static str)| {
        let mut about = FigureAbout::new(format!("{users}.{figure}"), unit);
        for (of, side) in [("RAID 5", "off"), ("RAID 5 and flash", "on")] {
            let printed = match (users, figure) {
                (maxiq::USERS, _) => format!("{figure}.{side}"),
                (_, "ttfb") => format!("sweep.{users}.{side}"),
                _ => continue,
            };
            about = about.beside(&figures, of, &printed);
        }
        about
    };
    let named = [
        ("mbps", "Mbit/s"),
        ("pages", "1/s"),
        ("ttfb", "s"),
        ("page.mean", "s"),
        ("page.min", "s"),
        ("page.max", "s"),
    ];
    named.map(about).into()
}

/// Takes the figures of a curve.
fn measure(
    users: u32,
    curve: &VisitCurve,
    outcome: &mut LoadOutcome,
) -> Result<(), CommandFailure> {
    let (all, span_s) = curve.whole();
    if all.pages == 0 {
        return Err(CommandFailure::Runtime(format!(
            "{users} users: no page ended in {span_s} s. Give more --seconds."
        )));
    }
    let values = [
        ("mbps", all.bytes as f64 * 8e-6 / span_s),
        ("pages", all.pages as f64 / span_s),
        ("ttfb", all.first_byte_s()),
        ("page.mean", all.response_s()),
        ("page.min", all.page_s_min),
        ("page.max", all.page_s_max),
    ];
    let named = values.map(|(figure, value)| (format!("{users}.{figure}"), value));
    outcome.values.extend(named);
    Ok(())
}

/// The users of a site.
struct WebVisitors {
    site: WebSite,
    popularity: PagePopularity,
    base: String,
    think: Duration,
    ramp: Duration,
    span: Duration,
}

impl WebVisitors {
    /// Has so many users visit the site; the curve begins with the end of the ramp.
    fn visit(&self, users: u32, stage: &LiveStage) -> io::Result<VisitCurve> {
        let point = nanos(self.span).0 / POINTS;
        let begin = Instant::now();
        let state = || (client(1), vec![VisitTally::default(); POINTS as usize]);
        let count = users as usize;
        let ended = share(count, count, state, |(client, points), user| {
            let mut rng = Rng::with_seed(SEED + 1 + user as u64);
            let first = self.ramp.mul_f64(user as f64 / count as f64);
            let mut next = begin + first;
            while next < begin + self.ramp + self.span {
                stage.interruption().pause_until(next)?;
                self.load_page(client, points, begin, &mut rng)?;
                // The logarithm of a number above zero is finite.
                let think = -(1.0 - rng.f64()).ln();
                next = Instant::now() + self.think.mul_f64(think);
            }
            Ok(())
        })?;
        let mut points = vec![VisitTally::default(); POINTS as usize];
        for (_, of_user) in &ended {
            let both = points.iter_mut().zip(of_user);
            both.for_each(|(point, of_user)| point.add(of_user));
        }
        Ok(VisitCurve {
            interval_s: Nanos(point).as_secs_f64(),
            points,
        })
    }

    /// Loads a page, and counts the page if its end is measured.
    fn load_page(
        &self,
        client: &ureq::Agent,
        points: &mut [VisitTally],
        begin: Instant,
        rng: &mut Rng,
    ) -> io::Result<()> {
        let page = self.popularity.draw(rng);
        let answers = load(client, &self.base, &self.site, page)?;
        let ended = begin.elapsed();
        let place = ended.checked_sub(self.ramp).map(|since| {
            let share = since.as_secs_f64() / self.span.as_secs_f64();
            (share * points.len() as f64) as usize
        });
        let Some(point) = place.and_then(|place| points.get_mut(place)) else {
            return Ok(());
        };
        let took = answers.iter().map(|answer| answer.whole).sum();
        for answer in answers {
            let served = ServedRequest {
                first: nanos(answer.first_byte),
                bytes: answer.bytes,
            };
            point.hit(Nanos::ZERO, served, nanos(answer.whole));
        }
        point.page(nanos(took));
        Ok(())
    }
}
