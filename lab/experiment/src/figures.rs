//! Published figures: one data file an evaluation, in hotset's own words, with the source.
//!
//! One rule judges all of them. A printed value that nothing was fitted to is met within 15 %, one
//! with a fitted parameter within 3 %. A bound is met on its side. A shape is met where the opposite
//! is excluded. The interval of ours over the seeds is judged, never its mean alone.

use serde::{Deserialize, Serialize};

/// Accepted distance of ours from a printed value that no parameter was fitted to, in percent.
const BLIND_PERCENT: f64 = 15.0;
/// The same of a value that one was fitted to.
const CALIBRATED_PERCENT: f64 = 3.0;

/// Worth of a comparison with a published figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureStatus {
    /// No parameter was fitted to the figure.
    Blind,
    /// A parameter was fitted to the figure.
    Calibrated,
    /// The figure says how a quantity changes or compares, not how much it is.
    Shape,
    /// The inputs of the figure were not printed.
    #[serde(rename = "not identifiable")]
    NotIdentifiable,
}

impl FigureStatus {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FigureStatus::Blind => "blind",
            FigureStatus::Calibrated => "calibrated",
            FigureStatus::Shape => "shape",
            FigureStatus::NotIdentifiable => "not identifiable",
        }
    }
}

/// Kind of bound, for a figure printed without a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// "More than", "at least".
    AtLeast,
    /// "Less than", "at most".
    AtMost,
}

/// The device under test of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestedDevice {
    /// The flash drives.
    Flash,
    /// The disks.
    Disk,
}

impl TestedDevice {
    /// Every one.
    pub const ALL: [TestedDevice; 2] = [TestedDevice::Flash, TestedDevice::Disk];

    /// The parameter of a model that is the device's cost.
    pub const fn cost(self) -> &'static str {
        match self {
            TestedDevice::Flash => "flash_cost",
            TestedDevice::Disk => "disk_cost",
        }
    }
}

/// The values of ours at which a figure is as printed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct AcceptedRange {
    /// The least; none if any is low enough.
    pub least: Option<f64>,
    /// The most; none if any is high enough.
    pub most: Option<f64>,
}

/// A verdict on a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureVerdict {
    /// All of the interval is accepted.
    Met,
    /// Nothing of the interval is accepted.
    Missed,
    /// A part of the interval is accepted.
    Inconclusive,
}

impl FigureVerdict {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FigureVerdict::Met => "met",
            FigureVerdict::Missed => "MISSED",
            FigureVerdict::Inconclusive => "inconclusive",
        }
    }
}

impl AcceptedRange {
    /// The one judgement of all figures, by the interval of ours.
    pub fn judge(&self, [from, to]: [f64; 2]) -> FigureVerdict {
        let least = self.least.unwrap_or(f64::NEG_INFINITY);
        let most = self.most.unwrap_or(f64::INFINITY);
        if least <= from && to <= most {
            FigureVerdict::Met
        } else if to < least || most < from {
            FigureVerdict::Missed
        } else {
            FigureVerdict::Inconclusive
        }
    }
}

/// One printed figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The figure's name; the experiment measures under the same name.
    pub figure: String,
    /// The unit of the published value and of ours.
    pub unit: String,
    /// Published value.
    pub value: f64,
    /// Worth of a comparison.
    pub status: FigureStatus,
    /// Side of the published value on which ours is to be, for a bound.
    pub bound: Option<Bound>,
    /// Ends of a shape: beyond them ours has the opposite one.
    pub within: Option<[f64; 2]>,
    /// The device under test, of a blind measurement: at another cost it must turn the verdict.
    pub device: Option<TestedDevice>,
    /// The measurement that the figure follows from; none for a measurement of its own.
    pub derived_from: Option<String>,
    /// Remarks.
    #[serde(default)]
    pub note: String,
}

impl Printed {
    /// Distance of `ours` from the published value, in percent; of nothing that was printed, ours
    /// in hundredths.
    pub fn error_percent(&self, ours: f64) -> f64 {
        match self.value == 0.0 {
            true => ours * 100.0,
            false => (ours / self.value - 1.0) * 100.0,
        }
    }

    /// The accepted values, by the one rule; `None` for an unidentifiable figure.
    pub fn accepted(&self) -> Option<AcceptedRange> {
        let around =
            |percent: f64| [100.0 - percent, 100.0 + percent].map(|p| self.value * p / 100.0);
        let both = |[least, most]: [f64; 2]| [Some(least), Some(most)];
        let [least, most] = match (self.bound, self.status) {
            (Some(Bound::AtLeast), _) => [Some(self.value), None],
            (Some(Bound::AtMost), _) => [None, Some(self.value)],
            (None, FigureStatus::Blind) => both(around(BLIND_PERCENT)),
            (None, FigureStatus::Calibrated) => both(around(CALIBRATED_PERCENT)),
            (None, FigureStatus::Shape | FigureStatus::NotIdentifiable) => both(self.within?),
        };
        Some(AcceptedRange { least, most })
    }

    /// Tests for the one way in which the status is judged.
    fn check(&self) -> Result<(), String> {
        let ways = (self.bound.is_some(), self.within.is_some());
        let (sound, wanted) = match self.status {
            FigureStatus::Blind | FigureStatus::Calibrated => (!ways.1, "no `within`"),
            FigureStatus::Shape => (ways.0 != ways.1, "a bound or `within`, and not both"),
            FigureStatus::NotIdentifiable => (ways == (false, false), "neither bound nor `within`"),
        };
        let (name, status) = (&self.figure, self.status.name());
        let is_tested = self.status == FigureStatus::Blind && self.derived_from.is_none();
        if is_tested != self.device.is_some() {
            return Err(format!(
                "{name}: a blind measurement has a device under test, and no other figure has"
            ));
        }
        sound
            .then_some(())
            .ok_or_else(|| format!("{name} is {status}: give {wanted}"))
    }
}

/// A parameter that was fitted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Name of the parameter, with its unit.
    pub parameter: String,
    /// Fitted value.
    pub value: f64,
    /// The figure that the parameter was fitted to.
    pub figure: String,
}

/// All that one evaluation printed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigures {
    /// Place of publication.
    pub source: String,
    /// The commit with the engine defaults of the runs; none was changed for a figure.
    pub engine: String,
    /// Assumptions in place of unpublished facts.
    pub assumed: Vec<String>,
    /// Contradictions of the source.
    pub contradictions: Vec<String>,
    /// The fitted parameters.
    #[serde(default)]
    pub fitted: Vec<Fitted>,
    /// The figures.
    pub printed: Vec<Printed>,
}

impl PublishedFigures {
    /// Reads a data file of `figures/`; the error names the problem and its place.
    pub fn parse(text: &str) -> Result<PublishedFigures, String> {
        let figures: PublishedFigures = toml::from_str(text).map_err(|error| error.to_string())?;
        for fitted in &figures.fitted {
            let named = figures.printed.iter().find(|p| p.figure == fitted.figure);
            if named.is_none_or(|printed| printed.status != FigureStatus::Calibrated) {
                return Err(format!(
                    "{} was fitted to {}, which must be a printed figure with status = \"calibrated\"",
                    fitted.parameter, fitted.figure
                ));
            }
        }
        for printed in &figures.printed {
            let name = &printed.figure;
            let is_measurement = |of: &String| {
                let found = figures.printed.iter().find(|p| p.figure == *of);
                found.is_some_and(|found| found.derived_from.is_none())
            };
            if let Some(of) = printed
                .derived_from
                .as_ref()
                .filter(|of| !is_measurement(of))
            {
                return Err(format!(
                    "{name} is derived from {of}, which must be a printed figure without derived_from"
                ));
            }
            printed.check()?;
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        source = "a paper"
        engine = "0123abc"
        assumed = []
        contradictions = []
        [[fitted]]
        parameter = "files"
        value = 3.0
        figure = "tps"
        [[printed]]
        figure = "tps"
        unit = "1/s"
        value = 10.0
        status = "calibrated"
    "#;

    #[test]
    fn a_figure_that_was_fitted_to_cannot_be_called_blind() {
        assert!(PublishedFigures::parse(TEXT).is_ok());
        let blind = TEXT.replace("\"calibrated\"", "\"blind\"\ndevice = \"disk\"");
        assert!(
            PublishedFigures::parse(&blind)
                .unwrap_err()
                .contains("files")
        );
        let unknown = TEXT.replace(
            "figure = \"tps\"\n        unit",
            "figure = \"x\"\n        unit",
        );
        assert!(
            PublishedFigures::parse(&unknown)
                .unwrap_err()
                .contains("tps")
        );
    }

    fn printed(more: &str) -> Result<Printed, String> {
        let text = format!(
            "source = \"a paper\"\nengine = \"0123abc\"\nassumed = []\ncontradictions = []\n\
             [[printed]]\nfigure = \"tps\"\nunit = \"1/s\"\nvalue = 10.0\n{more}"
        );
        let figures = PublishedFigures::parse(&text)?;
        Ok(figures.printed.into_iter().next().expect("there is one"))
    }

    #[test]
    fn a_figure_is_judged_in_one_way_unless_it_cannot_be_identified() {
        for (way, works) in [
            ("status = \"blind\"\ndevice = \"disk\"", true),
            (
                "status = \"blind\"\ndevice = \"disk\"\nbound = \"at-least\"",
                true,
            ),
            (
                "status = \"blind\"\ndevice = \"disk\"\nwithin = [1.0, 2.0]",
                false,
            ),
            ("status = \"blind\"", false),
            ("status = \"calibrated\"\ndevice = \"disk\"", false),
            ("status = \"shape\"", false),
            ("status = \"shape\"\nwithin = [9.0, 11.0]", true),
            (
                "status = \"shape\"\nwithin = [9.0, 11.0]\nbound = \"at-most\"",
                false,
            ),
            ("status = \"not identifiable\"", true),
            ("status = \"not identifiable\"\nbound = \"at-most\"", false),
        ] {
            let parsed = printed(way);
            assert_eq!(parsed.is_ok(), works, "{way}: {parsed:?}");
        }
    }

    /// The rule: 15 % blind, 3 % calibrated, a bound on its side, a shape within its ends.
    #[test]
    fn a_verdict_is_of_the_interval_against_the_bound_that_is_judged() {
        use FigureVerdict::{Inconclusive, Met, Missed};
        let judge = |way: &str, interval| {
            let device = if way.contains("blind") {
                "\ndevice = \"flash\""
            } else {
                ""
            };
            let accepted = printed(&format!("status = {way}{device}"))
                .unwrap()
                .accepted();
            accepted.map(|accepted| accepted.judge(interval))
        };
        for (way, interval, verdict) in [
            ("\"blind\"", [8.6, 11.4], Met),
            ("\"blind\"", [8.4, 9.0], Inconclusive),
            ("\"blind\"", [11.6, 12.0], Missed),
            ("\"calibrated\"", [9.75, 10.25], Met),
            ("\"calibrated\"", [10.4, 10.5], Missed),
            ("\"blind\"\nbound = \"at-least\"", [10.1, 99.0], Met),
            ("\"blind\"\nbound = \"at-least\"", [9.9, 99.0], Inconclusive),
            ("\"blind\"\nbound = \"at-most\"", [10.1, 99.0], Missed),
            ("\"shape\"\nwithin = [9.9, 10.1]", [9.0, 10.0], Inconclusive),
            ("\"shape\"\nwithin = [9.9, 10.1]", [10.0, 10.0], Met),
        ] {
            assert_eq!(judge(way, interval), Some(verdict), "{way}: {interval:?}");
        }
        assert_eq!(judge("\"not identifiable\"", [10.0, 10.0]), None);
    }

    #[test]
    fn a_derived_figure_names_a_measurement() {
        let derived = |of: &str| {
            let more = "[[printed]]\nfigure = \"rbps\"\nunit = \"B/s\"\nvalue = 1.0\n\
                        status = \"blind\"";
            let text = format!("{TEXT}\n{more}\nderived_from = \"{of}\"");
            PublishedFigures::parse(&text).map(drop)
        };
        assert_eq!(derived("tps"), Ok(()));
        assert!(derived("mtt").unwrap_err().contains("mtt"));
        assert!(derived("rbps").unwrap_err().contains("rbps"));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = PublishedFigures::parse(&format!("{TEXT}\ntolerance = 1")).unwrap_err();
        assert!(error.contains("tolerance"), "{error}");
    }
}
