//! Visitors of a web site: a closed loop of users who load a page, think, and load another.
//!
//! A page is its HTML and images. The HTML comes first; then the images, over so many connections,
//! each of which asks for the next image once the one before is there. Think times are exponential,
//! so that arrivals of many users are those of Poisson; users begin one after the other over the
//! ramp.
//!
//! Invariant: requests of one user in flight <= connections.
//!
//! Not here: the content of a page, and the server ([`VisitedSite`]).

use block::{Env, IoError, IoResult, Nanos};
use futures_channel::mpsc::{self, UnboundedSender};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use libm::log;
use serde::{Deserialize, Serialize};
use sim::SimRng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Purposes of random streams: one a user, from here on.
const USERS: u64 = 1_000_000;

/// The visited site.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait VisitedSite: 'static {
    /// Names one file.
    type Item: Copy + 'static;

    /// The files of the next page of a visitor, the HTML first.
    fn page(&self, rng: &mut SimRng, items: &mut Vec<Self::Item>);

    /// Answers a request.
    async fn answer(&self, item: Self::Item, on: VisitorConnection) -> IoResult<ServedRequest>;

    /// Notes a page that was complete in time, by its HTML, and the time that the page took.
    fn visited(&self, _html: Self::Item, _took: Nanos) {}
}

/// The connection of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VisitorConnection {
    /// Number of the connection among all users' connections.
    pub flow: u32,
    /// True before the first use.
    pub fresh: bool,
}

/// A request that is answered.
#[derive(Clone, Copy, Debug)]
pub struct ServedRequest {
    /// Time of the first byte.
    pub first: Nanos,
    /// Number of bytes.
    pub bytes: u64,
}

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VisitorLoad {
    /// Number of users.
    pub users: u32,
    /// Mean time that users think between two pages.
    pub think: Nanos,
    /// The time over which the users begin.
    pub ramp: Nanos,
    /// Time of the end.
    pub span: Nanos,
    /// Connections of a user.
    pub connections: u32,
    /// Time covered by a point of the curves.
    pub interval: Nanos,
}

/// Results of one interval, or of all of them, by the time at which pages were complete.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct VisitTally {
    /// Pages.
    pub pages: u64,
    /// Requests: HTML and images.
    pub hits: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Times from a request to its first byte, summed.
    pub first_s: f64,
    /// Times from a request to its last byte, summed.
    pub hit_s: f64,
    /// Times from the first request of a page to the last byte of its last image, summed.
    pub page_s: f64,
    /// The shortest of these.
    pub page_s_min: f64,
    /// The longest.
    pub page_s_max: f64,
}

impl VisitTally {
    /// Counts a page, which took `span`.
    pub fn page(&mut self, span: Nanos) {
        let s = seconds(span);
        self.page_s_min = match self.pages {
            0 => s,
            _ => self.page_s_min.min(s),
        };
        self.page_s_max = self.page_s_max.max(s);
        self.pages += 1;
        self.page_s += s;
    }

    /// Counts an answer.
    pub fn hit(&mut self, asked: Nanos, answer: ServedRequest, ended: Nanos) {
        self.hits += 1;
        self.bytes += answer.bytes;
        self.first_s += seconds(answer.first - asked);
        self.hit_s += seconds(ended - asked);
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &VisitTally) {
        if other.pages > 0 {
            self.page_s_min = match self.pages {
                0 => other.page_s_min,
                _ => self.page_s_min.min(other.page_s_min),
            };
        }
        self.page_s_max = self.page_s_max.max(other.page_s_max);
        self.pages += other.pages;
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.first_s += other.first_s;
        self.hit_s += other.hit_s;
        self.page_s += other.page_s;
    }

    /// Mean page response.
    pub fn response_s(&self) -> f64 {
        self.page_s / self.pages as f64
    }

    /// Mean time to the first byte of a request.
    pub fn first_byte_s(&self) -> f64 {
        self.first_s / self.hits as f64
    }

    /// Mean time of a request.
    pub fn request_s(&self) -> f64 {
        self.hit_s / self.hits as f64
    }
}

/// Results over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VisitCurve {
    /// Seconds that one point covers.
    pub interval_s: f64,
    /// One a point.
    pub points: Vec<VisitTally>,
}

impl VisitCurve {
    /// The points that lie within `from .. to` seconds as one, and their seconds.
    pub fn over(&self, from_s: f64, to_s: f64) -> (VisitTally, f64) {
        let mut sum = VisitTally::default();
        let mut span = 0.0;
        for (i, point) in self.points.iter().enumerate() {
            let at = i as f64 * self.interval_s;
            if at >= from_s && at + self.interval_s <= to_s {
                sum.add(point);
                span += self.interval_s;
            }
        }
        (sum, span)
    }

    /// All points as one, and their seconds.
    pub fn whole(&self) -> (VisitTally, f64) {
        self.over(0.0, f64::INFINITY)
    }
}

struct VisitorVisit<S> {
    env: Env,
    site: S,
    load: VisitorLoad,
    began: Nanos,
    points: RefCell<Vec<VisitTally>>,
    failed: RefCell<Option<IoError>>,
}

/// Lets the users of `load` visit `site`, and calls `progress` each time a point is done. Each user
/// sees the end of a page requested in time; after that no user holds the site.
pub async fn visit<S: VisitedSite>(
    env: &Env,
    seed: u64,
    load: VisitorLoad,
    site: S,
    progress: &dyn Fn(&VisitTally),
) -> IoResult<VisitCurve> {
    let count = load.span.0.div_ceil(load.interval.0) as usize;
    let visit = Rc::new(VisitorVisit {
        env: env.clone(),
        site,
        load,
        began: env.timer.now(),
        points: RefCell::new(vec![VisitTally::default(); count]),
        failed: RefCell::default(),
    });
    let (alive, mut gone) = mpsc::unbounded();
    for user in 0..load.users {
        let rng = SimRng::fork(seed, USERS + u64::from(user));
        env.spawn
            .spawn(live(alive.clone(), visit.clone(), user, rng));
    }
    drop(alive);
    for point in 0..count {
        let end = visit.began + Nanos(load.interval.0 * (point as u64 + 1));
        env.timer.until(end.min(visit.began + load.span)).await;
        if let Some(error) = visit.failed.take() {
            return Err(error);
        }
        progress(&visit.points.borrow()[point]);
    }
    gone.next().await;
    Ok(VisitCurve {
        interval_s: seconds(load.interval),
        points: visit.points.take(),
    })
}

/// One user; `_alive` is dropped last.
async fn live<S: VisitedSite>(
    _alive: UnboundedSender<()>,
    visit: Rc<VisitorVisit<S>>,
    user: u32,
    mut rng: SimRng,
) {
    let (load, timer) = (visit.load, &visit.env.timer);
    let begin = load.ramp.0 as f64 * f64::from(user) / f64::from(load.users);
    timer.sleep(Nanos(begin as u64)).await;
    let mut items = Vec::new();
    let end = visit.began + load.span;
    while timer.now() < end && visit.failed.borrow().is_none() {
        items.clear();
        visit.site.page(&mut rng, &mut items);
        if let Err(error) = visit.page(user, &items).await {
            visit.failed.replace(Some(error));
        }
        let next = timer.now() + think(&mut rng, load.think);
        timer.until(next.min(end.max(timer.now()))).await;
    }
}

impl<S: VisitedSite> VisitorVisit<S> {
    async fn page(&self, user: u32, items: &[S::Item]) -> IoResult {
        let asked = self.env.timer.now();
        let on = |number, fresh| VisitorConnection {
            flow: user * self.load.connections + number,
            fresh,
        };
        let (html, images) = items.split_first().expect("a page has its HTML");
        self.request(*html, on(0, true)).await?;
        let next = Cell::new(0);
        let connection = async |number: u32| {
            let mut fresh = number > 0;
            while let Some(item) = images.get(next.replace(next.get() + 1)) {
                self.request(*item, on(number, fresh)).await?;
                fresh = false;
            }
            Ok(())
        };
        let all = join_all((0..self.load.connections).map(connection)).await;
        all.into_iter().collect::<IoResult>()?;
        self.tally(|point, now| {
            point.page(now - asked);
            self.site.visited(*html, now - asked);
        });
        Ok(())
    }

    async fn request(&self, item: S::Item, on: VisitorConnection) -> IoResult {
        let asked = self.env.timer.now();
        let answer = self.site.answer(item, on).await?;
        self.tally(|point, now| point.hit(asked, answer, now));
        Ok(())
    }

    /// Adds to the current point. Requests that end after the span do not count.
    fn tally(&self, add: impl FnOnce(&mut VisitTally, Nanos)) {
        let now = self.env.timer.now();
        let point = ((now - self.began).0 / self.load.interval.0) as usize;
        if let Some(point) = self.points.borrow_mut().get_mut(point) {
            add(point, now);
        }
    }
}

/// An exponential span around `mean`.
pub fn think(rng: &mut SimRng, mean: Nanos) -> Nanos {
    let uniform = ((rng.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    Nanos((-log(uniform) * mean.0 as f64) as u64)
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::{SimHost, SimWorld};
    use simnode::run_alone;

    const THINK: Nanos = Nanos::from_secs(10);

    /// One server that takes requests one after the other, each exponential around `mean`.
    struct OneServer {
        env: Env,
        mean: Nanos,
        free: Cell<Nanos>,
        rng: RefCell<SimRng>,
    }

    impl VisitedSite for OneServer {
        type Item = ();

        fn page(&self, _: &mut SimRng, items: &mut Vec<()>) {
            items.push(());
        }

        async fn answer(&self, (): (), _: VisitorConnection) -> IoResult<ServedRequest> {
            let timer = &self.env.timer;
            let span = think(&mut self.rng.borrow_mut(), self.mean);
            let end = self.free.get().max(timer.now()) + span;
            self.free.set(end);
            timer.until(end).await;
            let first = timer.now();
            Ok(ServedRequest { first, bytes: 1 })
        }
    }

    fn load(users: u32) -> VisitorLoad {
        VisitorLoad {
            users,
            think: THINK,
            ramp: Nanos::from_secs(10),
            span: Nanos::from_secs(40_000),
            connections: 6,
            interval: Nanos::from_secs(100),
        }
    }

    /// Pages a second, response, and the curve, without the first 1,000 s.
    fn measured(mean: Nanos, load: VisitorLoad) -> (f64, f64, VisitCurve) {
        let (_, curve) = run_alone(&mut SimHost::new(SimWorld::new(1)), async move |local| {
            let env = local.env();
            let site = OneServer {
                env: env.clone(),
                mean,
                free: Cell::default(),
                rng: RefCell::new(SimRng::new(5)),
            };
            visit(&env, 1, load, site, &|_| ()).await.unwrap()
        });
        let curve = curve.unwrap();
        let (sum, s) = curve.over(1_000.0, f64::INFINITY);
        (sum.pages as f64 / s, sum.response_s(), curve)
    }

    /// The machine repairman, M/M/1//N: pages a second and response.
    fn closed_form(users: u32, service: f64, think: f64) -> (f64, f64) {
        let (mut term, mut sum) = (1.0, 1.0);
        for busy in 0..users {
            term *= f64::from(users - busy) * service / think;
            sum += term;
        }
        let rate = (1.0 - 1.0 / sum) / service;
        (rate, f64::from(users) / rate - think)
    }

    fn near((rate, response): (f64, f64), exact: (f64, f64)) -> bool {
        (rate / exact.0 - 1.0).abs() < 0.02 && (response / exact.1 - 1.0).abs() < 0.08
    }

    #[test]
    fn a_closed_loop_on_one_server_is_the_machine_repairman() {
        for (users, mean_ms) in [(5, 1_000), (10, 1_000), (40, 1_000)] {
            let mean = Nanos::from_millis(mean_ms);
            let (rate, response, _) = measured(mean, load(users));
            let exact = closed_form(users, mean_ms as f64 / 1e3, 10.0);
            assert!(near((rate, response), exact), "{rate} {response} {exact:?}");
        }
    }

    #[test]
    fn canary_a_parameter_that_is_wrong_is_not_the_machine_repairman() {
        let mean = Nanos::from_millis(1_000);
        let exact = closed_form(10, 1.0, 10.0);
        let wrong = [
            (mean, load(11)),
            (Nanos::from_millis(1_150), load(10)),
            (
                mean,
                VisitorLoad {
                    think: Nanos::from_millis(9_000),
                    ..load(10)
                },
            ),
        ];
        for (mean, load) in wrong {
            let (rate, response, _) = measured(mean, load);
            assert!(
                !near((rate, response), exact),
                "{load:?}: {rate} {response}"
            );
        }
    }

    /// Checks the pages of many users on a server that takes no time: N / Z a second. The number of
    /// pages in an interval has its mean as its variance.
    #[test]
    fn pages_arrive_as_poisson_has_it() {
        let load = load(100);
        let (rate, _, curve) = measured(Nanos::ZERO, load);
        assert!((rate / 10.0 - 1.0).abs() < 0.01, "{rate}");
        let counts: Vec<f64> = curve
            .points
            .iter()
            .skip(10)
            .map(|p| p.pages as f64)
            .collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>();
        let ratio = variance / counts.len() as f64 / mean;
        assert!((0.75..1.3).contains(&ratio), "{ratio}");
        let fewer = VisitorLoad { users: 97, ..load };
        assert!((measured(Nanos::ZERO, fewer).0 / 10.0 - 1.0).abs() > 0.01);
    }

    /// A site with images that take a second each, distinguished by nothing else.
    struct Slow(Env, Cell<u32>, Rc<Cell<u32>>);

    impl VisitedSite for Slow {
        type Item = ();

        fn page(&self, _: &mut SimRng, items: &mut Vec<()>) {
            items.extend([(); 13]);
        }

        async fn answer(&self, (): (), _: VisitorConnection) -> IoResult<ServedRequest> {
            self.1.set(self.1.get() + 1);
            self.2.set(self.2.get().max(self.1.get()));
            self.0.timer.sleep(Nanos::from_secs(1)).await;
            self.1.set(self.1.get() - 1);
            let first = self.0.timer.now();
            Ok(ServedRequest { first, bytes: 100 })
        }
    }

    #[test]
    fn a_page_takes_its_html_and_then_its_images_over_the_connections() {
        for (connections, rounds) in [(1, 12), (5, 3), (6, 2)] {
            let load = VisitorLoad {
                users: 1,
                connections,
                span: Nanos::from_secs(1_000),
                ..load(1)
            };
            let most = Rc::new(Cell::new(0));
            let seen = most.clone();
            let (_, curve) = run_alone(&mut SimHost::new(SimWorld::new(1)), async move |local| {
                let env = local.env();
                let site = Slow(env.clone(), Cell::new(0), seen);
                visit(&env, 1, load, site, &|_| ()).await.unwrap()
            });
            let (sum, _) = curve.unwrap().whole();
            assert_eq!(most.get(), connections);
            assert_eq!(
                (sum.page_s_min, sum.page_s_max),
                (1.0 + f64::from(rounds), 1.0 + f64::from(rounds))
            );
            assert!(sum.hits >= 13 * sum.pages && sum.bytes == 100 * sum.hits);
        }
    }
}
