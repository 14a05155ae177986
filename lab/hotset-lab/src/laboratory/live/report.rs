//! Figures of a live run: means over the rounds, ratios of the phases, and published figures beside.

use super::options::LiveArguments;
use crate::CommandFailure;
use advise::page::{self, HtmlPage, escape, themed};
use command::print_line;
use command::table::TextTable;
use experiment::figures::PublishedFigures;
use experiment::spread::{interval, needed, spans_one};
use experiment::verdict::Values;
use experiment::visitors::VisitCurve;
use measurements::report::{CurveCharts, short};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;

/// The format that is written.
const FORMAT: u32 = 1;
/// The phase in which the cache is not used; others are compared to it.
pub const OFF: &str = "off";
/// The phase of storage that has no cache in front.
pub const WITHOUT: &str = "without";

/// Conditions that name the storage alone.
const STORAGE: [&str; 2] = ["path", "volume"];

/// A figure of a load, with the published figures to print beside.
#[derive(Clone, Debug)]
pub struct FigureAbout {
    figure: String,
    unit: &'static str,
    published: Vec<PublishedBeside>,
    /// Published ratios, by phase.
    ratios: Vec<(&'static str, f64)>,
    limit: Option<f64>,
}

impl FigureAbout {
    /// A figure that was not published.
    pub fn new(figure: impl Into<String>, unit: &'static str) -> FigureAbout {
        FigureAbout {
            figure: figure.into(),
            unit,
            published: Vec::new(),
            ratios: Vec::new(),
            limit: None,
        }
    }

    /// Has a phase pass if the figure is at most so much in each round.
    pub fn at_most(mut self, limit: f64) -> FigureAbout {
        self.limit = Some(limit);
        self
    }

    /// Adds the published ratio of the figure in `phase` to that without the cache.
    pub fn ratio_beside(mut self, phase: &'static str, ratio: f64) -> FigureAbout {
        self.ratios.push((phase, ratio));
        self
    }

    /// Adds the published figure called `name`, under the short name `of`.
    pub fn beside(mut self, figures: &PublishedFigures, of: &str, name: &str) -> FigureAbout {
        let printed = figures.printed.iter().find(|p| p.figure == name);
        self.published
            .extend(printed.map(|printed| PublishedBeside {
                of: of.to_owned(),
                value: printed.value,
            }));
        self
    }
}

/// A published value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PublishedBeside {
    /// The evaluated storage.
    pub of: String,
    /// The value, in the unit of ours.
    pub value: f64,
}

/// A live run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LiveReport {
    format: u32,
    /// Name of the load.
    pub load: String,
    /// Publication of the figures beside.
    pub source: String,
    /// All that the figures depend on.
    pub asked: BTreeMap<String, String>,
    /// The way in which the page cache is dropped before each phase.
    pub page_cache: String,
    /// Remarks.
    pub notes: Vec<String>,
    /// The rounds.
    pub rounds: Vec<LiveRound>,
    /// Figures of all rounds together.
    pub figures: Vec<LiveFigure>,
    /// Figures of the same load on storage without a cache, which are shown and never judged.
    #[serde(default)]
    without: Vec<LiveFigure>,
}

/// One round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LiveRound {
    /// Time of the round.
    pub seconds: f64,
    /// Measurements of each phase.
    pub phases: BTreeMap<String, Values>,
    /// Curves over time, by name and phase.
    pub curves: Vec<(String, VisitCurve)>,
}

/// A figure over all rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LiveFigure {
    figure: String,
    unit: String,
    phases: Vec<PhaseFigure>,
    ratios: Vec<PhaseRatio>,
    published: Vec<PublishedBeside>,
    /// The most at which a phase passes.
    limit: Option<f64>,
}

/// A figure of one phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct PhaseFigure {
    phase: String,
    mean: f64,
    min: f64,
    max: f64,
    /// Interval at 95 %, over the rounds.
    interval: Option<[f64; 2]>,
    /// False if a round is beyond the limit; `None` without a limit, and without a cache.
    passed: Option<bool>,
}

/// A figure of one phase over the figure of another, round by round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct PhaseRatio {
    phase: String,
    to: String,
    /// Geometric mean over the rounds.
    ratio: f64,
    /// Interval at 95 %, over the rounds.
    interval: Option<[f64; 2]>,
    verdict: RatioVerdict,
    rounds: usize,
    /// Rounds after which the interval would no longer span 1, if inconclusive.
    rounds_needed: Option<usize>,
    /// Time of the rounds that are missing.
    minutes_needed: Option<f64>,
    /// The ratio that was published.
    published: Option<f64>,
}

/// The larger side of a ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RatioVerdict {
    Larger,
    Smaller,
    Inconclusive,
}

impl RatioVerdict {
    fn name(self) -> &'static str {
        match self {
            RatioVerdict::Larger => "larger",
            RatioVerdict::Smaller => "smaller",
            RatioVerdict::Inconclusive => "inconclusive",
        }
    }
}

impl LiveFigure {
    /// The limit, and the verdict or the phases that fail.
    fn within(&self) -> String {
        let Some(limit) = self.limit.map(short) else {
            return "-".into();
        };
        let judged = self.phases.iter().filter(|found| found.passed.is_some());
        let failed = judged.clone().filter(|found| found.passed == Some(false));
        let failed: Vec<&str> = failed.map(|found| found.phase.as_str()).collect();
        match (judged.count(), failed.is_empty()) {
            (0, _) => limit,
            (_, true) => format!("{limit}: passed"),
            (_, false) => format!("{limit}: {} FAILED", failed.join(", ")),
        }
    }
}

impl PhaseRatio {
    /// Judges the ratios of all rounds; `round_s` is the time of a round. `None` without ratios.
    fn of(phase: &str, to: &str, ratios: &[f64], round_s: f64) -> Option<PhaseRatio> {
        if ratios.is_empty() || !ratios.iter().all(|r| *r > 0.0 && r.is_finite()) {
            return None;
        }
        let logs = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>();
        let ratio = (logs / ratios.len() as f64).exp();
        let interval = interval(ratios);
        let verdict = match interval {
            Some(interval) if spans_one(interval) => RatioVerdict::Inconclusive,
            Some(_) if ratio > 1.0 => RatioVerdict::Larger,
            Some(_) => RatioVerdict::Smaller,
            None => RatioVerdict::Inconclusive,
        };
        let open = verdict == RatioVerdict::Inconclusive;
        let rounds_needed = open.then(|| needed(ratios)).flatten();
        let missing = rounds_needed.map(|needed| needed.saturating_sub(ratios.len()));
        Some(PhaseRatio {
            phase: phase.to_owned(),
            to: to.to_owned(),
            ratio,
            interval,
            verdict,
            rounds: ratios.len(),
            rounds_needed,
            minutes_needed: missing.map(|missing| missing as f64 * round_s / 60.0),
            published: None,
        })
    }

    /// The verdict in words, with the time that a clear one would take.
    fn says(&self) -> String {
        let verdict = self.verdict.name();
        match (self.verdict, self.rounds_needed, self.minutes_needed) {
            (RatioVerdict::Inconclusive, Some(rounds), Some(minutes)) => {
                let minutes = minutes.ceil();
                format!("{verdict}: {rounds} rounds are needed, {minutes:.0} minutes more")
            }
            (RatioVerdict::Inconclusive, ..) if self.rounds < 2 => {
                format!("{verdict}: two rounds are needed")
            }
            (RatioVerdict::Inconclusive, ..) => {
                format!("{verdict}: no number of rounds would show a difference")
            }
            _ => verdict.to_owned(),
        }
    }
}

impl LiveReport {
    /// A run of `load` without rounds.
    pub fn new(load: &str, source: &str, page_cache: &str) -> LiveReport {
        LiveReport {
            format: FORMAT,
            load: load.to_owned(),
            source: source.to_owned(),
            asked: BTreeMap::new(),
            page_cache: page_cache.to_owned(),
            notes: Vec::new(),
            rounds: Vec::new(),
            figures: Vec::new(),
            without: Vec::new(),
        }
    }

    /// The name of a load on storage without a cache.
    pub fn without(load: &str) -> String {
        format!("{load}-{WITHOUT}")
    }

    /// Takes the figures of a run without a cache, if all else of that run is alike.
    pub fn puts_beside(&mut self, control: LiveReport) -> bool {
        let alike = |mut asked: BTreeMap<String, String>| {
            asked.retain(|name, _| !STORAGE.contains(&name.as_str()));
            asked
        };
        let same = alike(control.asked) == alike(self.asked.clone());
        if same {
            self.without = control.figures;
        }
        same
    }

    /// Adds the storage of the run.
    pub fn of(mut self, at: &LiveArguments) -> LiveReport {
        if at.without {
            self.load = LiveReport::without(&self.load);
        }
        let volume = at.volume.as_deref().unwrap_or("-");
        let [path_name, volume_name] = STORAGE;
        self.asked(path_name, at.path().display())
            .asked(volume_name, volume)
    }

    /// Adds a remark.
    pub fn note(mut self, note: impl Into<String>) -> LiveReport {
        self.notes.push(note.into());
        self
    }

    /// Adds a condition of the run.
    pub fn asked(mut self, name: &str, value: impl ToString) -> LiveReport {
        self.asked.insert(name.to_owned(), value.to_string());
        self
    }

    /// Reads a report that was kept.
    pub fn parse(text: &str) -> Result<LiveReport, String> {
        let report: LiveReport = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match report.format {
            FORMAT => Ok(report),
            other => Err(format!(
                "its format {other} is not {FORMAT}, which is read here"
            )),
        }
    }

    /// Computes the figures of all rounds.
    pub fn judge(&mut self, about: &[&FigureAbout]) {
        let figures = about.iter().filter_map(|about| self.figure(about));
        self.figures = figures.collect();
    }

    /// The phases, with the one first to which others are compared.
    fn phases(&self) -> Vec<String> {
        let mut phases: Vec<String> = Vec::new();
        for round in &self.rounds {
            for phase in round.phases.keys() {
                if !phases.contains(phase) {
                    phases.push(phase.clone());
                }
            }
        }
        phases.sort_by_key(|phase| (phase != OFF, phase.clone()));
        phases
    }

    fn figure(&self, about: &FigureAbout) -> Option<LiveFigure> {
        let values = |phase: &str| -> Vec<f64> {
            let rounds = self.rounds.iter();
            let values = rounds.filter_map(|round| round.phases.get(phase)?.get(&about.figure));
            values.copied().collect()
        };
        let of_phase = |phase: &String| {
            let values = values(phase);
            let limit = about.limit.filter(|_| phase != WITHOUT);
            (!values.is_empty()).then(|| PhaseFigure {
                phase: phase.clone(),
                mean: values.iter().sum::<f64>() / values.len() as f64,
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                interval: interval(&values),
                passed: limit.map(|most| values.iter().all(|value| *value <= most)),
            })
        };
        let phases = self.phases();
        let round_s = self.rounds.iter().map(|round| round.seconds).sum::<f64>()
            / self.rounds.len().max(1) as f64;
        let ratio = |phase: &String| {
            let pairs = self.rounds.iter().filter_map(|round| {
                let of = |phase: &String| round.phases.get(phase)?.get(&about.figure);
                Some(of(phase)? / of(&phases[0])?)
            });
            let ratio = PhaseRatio::of(phase, &phases[0], &pairs.collect::<Vec<_>>(), round_s)?;
            let published = about.ratios.iter().find(|(of, _)| of == phase);
            Some(PhaseRatio {
                published: published.map(|(_, published)| *published),
                ..ratio
            })
        };
        let mut measured: Vec<PhaseFigure> = phases.iter().filter_map(of_phase).collect();
        let control = self.without.iter().filter(|f| f.figure == about.figure);
        measured.extend(control.flat_map(|figure| figure.phases.clone()));
        (!measured.is_empty()).then(|| LiveFigure {
            figure: about.figure.clone(),
            unit: about.unit.to_owned(),
            phases: measured,
            ratios: phases.iter().skip(1).filter_map(ratio).collect(),
            published: about.published.clone(),
            limit: about.limit,
        })
    }

    /// Prints the report.
    pub fn show(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            let text = serde_json::to_string_pretty(self).map_err(CommandFailure::runtime)?;
            return print_line(text);
        }
        let rounds = self.rounds.len();
        print_line(format!(
            "{}, {rounds} rounds; page cache: {}",
            self.load, self.page_cache
        ))?;
        for note in &self.notes {
            print_line(format!("note: {note}"))?;
        }
        print_line(format!("\n{}", table(self.means(), &[1])))?;
        if self.figures.iter().any(|figure| !figure.ratios.is_empty()) {
            print_line(table(self.ratios(), &[1, 4]))?;
        }
        if let Some(limits) = self.limits() {
            print_line(format!("limits: {limits}"))?;
        }
        print_line(format!("published: {}", self.source))
    }

    /// The page: the ratios first, then means of each phase, and the first round over time.
    pub fn page(&self) -> Result<String, Box<dyn Error>> {
        let title = format!("Live run: {}", self.load);
        let mut page = HtmlPage::new(&title, "On real storage, through real servers.");
        let rounds = self.rounds.len().to_string();
        let asked = self.asked.iter();
        let asked = asked.map(|(name, value)| (name.as_str(), value.clone()));
        let facts: Vec<_> = [("rounds", rounds)].into_iter().chain(asked).collect();
        let limits = self.limits().map(|limits| ("limits", limits));
        let facts: Vec<_> = facts.into_iter().chain(limits).collect();
        page.facts(&facts);
        page.warnings(&self.notes);
        if self.figures.iter().any(|figure| !figure.ratios.is_empty()) {
            page.section("Ratios", &html_table(self.ratios(), &[1, 4]));
        }
        let below = format!(
            "Page cache: {}. Published: {}.",
            self.page_cache, self.source
        );
        let below = format!("<p class=\"soft\">{}</p>", escape(&below));
        page.section("Figures", &(html_table(self.means(), &[1]) + &below));
        let curves = self
            .rounds
            .first()
            .map_or(&[][..], |round| &round.curves[..]);
        let charts = CurveCharts {
            curves,
            rows: &[],
            times: 1.0,
        };
        for (title, svg) in charts.draw()? {
            page.section(
                &title,
                &format!("<figure>{}</figure>", themed(&svg, &title)),
            );
        }
        Ok(page.finish())
    }

    /// The phases, with the run without a cache last.
    fn columns(&self) -> Vec<String> {
        let mut phases = self.phases();
        phases.extend((!self.without.is_empty()).then(|| WITHOUT.to_owned()));
        phases
    }

    /// The verdict of each phase by all limits, in words; `None` without limits.
    fn limits(&self) -> Option<String> {
        let verdict = |phase: &String| {
            let figures = self.figures.iter().flat_map(|figure| &figure.phases);
            let mut judged = figures
                .filter(|found| found.phase == *phase)
                .filter_map(|found| found.passed)
                .peekable();
            judged.peek()?;
            let within = judged.all(|passed| passed);
            let verdict = if within { "passed" } else { "FAILED" };
            Some(format!("{phase} {verdict}"))
        };
        let verdicts: Vec<String> = self.columns().iter().filter_map(verdict).collect();
        (!verdicts.is_empty()).then(|| verdicts.join(", "))
    }

    /// Means of each phase with their intervals, and the published figures: a head and rows.
    fn means(&self) -> ReportRows {
        let phases = self.columns();
        let has_limits = self.figures.iter().any(|figure| figure.limit.is_some());
        let mut published: Vec<&str> = Vec::new();
        for beside in self.figures.iter().flat_map(|figure| &figure.published) {
            if !published.contains(&beside.of.as_str()) {
                published.push(&beside.of);
            }
        }
        let mut rows = vec![vec!["figure".to_owned(), "unit".to_owned()]];
        for phase in &phases {
            rows[0].extend([phase.clone(), "95 %".to_owned()]);
        }
        rows[0].extend(has_limits.then(|| "limit".into()));
        rows[0].extend(published.iter().map(|of| format!("printed: {of}")));
        for figure in &self.figures {
            let mut cells = vec![figure.figure.clone(), figure.unit.clone()];
            for phase in &phases {
                let found = figure.phases.iter().find(|found| found.phase == *phase);
                cells.push(found.map_or("-".into(), |found| short(found.mean)));
                cells.push(span(found.and_then(|found| found.interval)));
            }
            cells.extend(has_limits.then(|| figure.within()));
            for of in &published {
                let found = figure.published.iter().find(|beside| beside.of == *of);
                cells.push(found.map_or("-".into(), |beside| short(beside.value)));
            }
            rows.push(cells);
        }
        rows
    }

    /// Ratios of the phases: a head and rows.
    fn ratios(&self) -> ReportRows {
        let ratios = || {
            let figures = self.figures.iter();
            figures.flat_map(|figure| figure.ratios.iter().map(move |ratio| (figure, ratio)))
        };
        let any_printed = ratios().any(|(_, ratio)| ratio.published.is_some());
        let head = ["figure", "of", "ratio", "95 %", "verdict"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows[0].extend(any_printed.then(|| "printed".into()));
        for (figure, ratio) in ratios() {
            let mut cells = vec![
                figure.figure.clone(),
                format!("{} / {}", ratio.phase, ratio.to),
                short(ratio.ratio),
                span(ratio.interval),
                ratio.says(),
            ];
            cells.extend(any_printed.then(|| ratio.published.map_or("-".into(), short)));
            rows.push(cells);
        }
        rows
    }
}

/// A head, and rows below.
type ReportRows = Vec<Vec<String>>;

/// A table for a terminal; `text` are columns that are flush left.
fn table(rows: ReportRows, text: &[usize]) -> TextTable {
    let head: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let mut table = TextTable::new(&head).text(text);
    rows.iter().skip(1).for_each(|row| table.row(row.clone()));
    table
}

/// A table for a page, likewise.
fn html_table(rows: ReportRows, text: &[usize]) -> String {
    let head: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let lines: Vec<_> = rows
        .iter()
        .skip(1)
        .map(|row| (row.clone(), false))
        .collect();
    page::table(&head, &lines, text)
}

fn span(interval: Option<[f64; 2]>) -> String {
    interval.map_or("-".into(), |[from, to]| {
        format!("{}..{}", short(from), short(to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::visitors::VisitTally;

    fn report(rounds: &[[f64; 2]]) -> LiveReport {
        let mut report = LiveReport::new("x", "a paper", "dropped");
        let values = |value: f64| Values::from([("tps".to_owned(), value)]);
        report.rounds = rounds
            .iter()
            .map(|[off, cold]| LiveRound {
                seconds: 120.0,
                phases: BTreeMap::from([
                    ("cold".to_owned(), values(*cold)),
                    ("off".to_owned(), values(*off)),
                ]),
                curves: Vec::new(),
            })
            .collect();
        report.judge(&[&FigureAbout::new("tps", "1/s"), &FigureAbout::new("no", "")]);
        report
    }

    fn only_ratio(rounds: &[[f64; 2]]) -> PhaseRatio {
        let report = report(rounds);
        assert_eq!(
            report.figures.len(),
            1,
            "a figure without values has no row"
        );
        report.figures[0].ratios[0].clone()
    }

    #[test]
    fn a_difference_that_rounds_agree_on_has_a_verdict() {
        let larger = only_ratio(&[[10.0, 20.0], [11.0, 22.5], [9.0, 17.8]]);
        assert_eq!((larger.phase.as_str(), larger.to.as_str()), ("cold", "off"));
        assert!((1.9..2.1).contains(&larger.ratio), "{larger:?}");
        assert_eq!(
            (larger.verdict, larger.rounds_needed),
            (RatioVerdict::Larger, None)
        );
        let smaller = only_ratio(&[[20.0, 10.0], [22.5, 11.0], [17.8, 9.0]]);
        assert_eq!(smaller.says(), "smaller");
    }

    #[test]
    fn an_inconclusive_ratio_names_the_time_that_a_clear_one_would_take() {
        let open = only_ratio(&[[10.0, 9.5], [10.0, 12.5], [10.0, 10.2]]);
        assert_eq!(open.verdict, RatioVerdict::Inconclusive);
        let (rounds, minutes) = (open.rounds_needed.unwrap(), open.minutes_needed.unwrap());
        assert_eq!(minutes, (rounds - 3) as f64 * 2.0);
        let said = format!("{rounds} rounds are needed, {minutes:.0} minutes more");
        assert!(open.says().ends_with(&said), "{}", open.says());
        assert!(only_ratio(&[[10.0, 10.0]]).says().contains("two rounds"));
        let equal = only_ratio(&[[10.0, 10.0], [10.0, 10.0]]);
        assert!(equal.says().contains("no number of rounds"), "{equal:?}");
    }

    #[test]
    fn the_page_has_verdicts_first_and_needs_nothing_else() {
        let mut report = report(&[[10.0, 20.0], [11.0, 22.5]]).note("a <b>");
        let points = vec![VisitTally::default(); 20];
        let curve = VisitCurve {
            interval_s: 1.0,
            points,
        };
        report.rounds[0]
            .curves
            .push(("12 users, off".into(), curve));
        let page = report.page().unwrap();
        page::assert_self_contained(&page);
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
        assert!(at(">larger<") < at("<h2>Figures") && at("cold / off") < at("<svg"));
        assert!(page.contains("12 users, off") && !page.contains("<b>"));
    }

    #[test]
    fn a_phase_passes_if_each_round_is_within_the_limit() {
        let mut report = report(&[[10.0, 20.0], [10.0, 21.0]]);
        for (limit, verdict, within) in [
            (21.0, "off passed, cold passed", "21: passed"),
            (20.5, "off passed, cold FAILED", "20.5: cold FAILED"),
            (9.0, "off FAILED, cold FAILED", "9: off, cold FAILED"),
        ] {
            report.judge(&[&FigureAbout::new("tps", "1/s").at_most(limit)]);
            assert_eq!(report.limits().unwrap(), verdict);
            let rows = report.means();
            assert_eq!(rows[0].last().unwrap(), "limit");
            assert_eq!(rows[1].last().unwrap(), within);
        }
        report.judge(&[&FigureAbout::new("tps", "1/s")]);
        assert_eq!(report.limits(), None);
    }

    #[test]
    fn a_run_without_a_cache_is_shown_beside_and_not_judged() {
        let mut control = LiveReport::new("x", "a paper", "dropped").asked("path", "/plain");
        control.rounds.push(LiveRound {
            seconds: 1.0,
            phases: BTreeMap::from([(WITHOUT.to_owned(), Values::from([("tps".to_owned(), 7.5)]))]),
            curves: Vec::new(),
        });
        let about = FigureAbout::new("tps", "1/s").at_most(5.0);
        control.judge(&[&about]);
        assert_eq!(control.limits(), None);
        let mut report = report(&[[10.0, 20.0], [10.0, 21.0]]).asked("path", "/cached");
        assert!(report.puts_beside(control.clone()));
        report.judge(&[&about]);
        let rows = report.means();
        assert_eq!(rows[0][2..8].join(" "), "off 95 % cold 95 % without 95 %");
        assert_eq!(rows[1][6], "7.5");
        assert_eq!(report.figures[0].ratios.len(), 1);
        assert!(!report.puts_beside(control.asked("scale", 2)));
    }

    #[test]
    fn a_report_is_read_back_and_an_unknown_format_is_refused() {
        let report = report(&[[10.0, 20.0], [10.0, 21.0]]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(LiveReport::parse(&text).unwrap(), report);
        let other = text.replace("\"format\":1", "\"format\":9");
        assert!(LiveReport::parse(&other).unwrap_err().contains("format 9"));
    }
}
