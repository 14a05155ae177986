//! Published figures: one data file an evaluation, in hotset's own words, with the source.

use serde::{Deserialize, Serialize};

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

impl Bound {
    /// Tests whether `ours` is on the right side of the published value.
    pub fn holds(self, ours: f64, printed: f64) -> bool {
        match self {
            Bound::AtLeast => ours >= printed,
            Bound::AtMost => ours <= printed,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
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
    /// Largest distance of ours from the published value, in percent; none for an unidentifiable
    /// figure, and for a bound.
    pub tolerance_percent: Option<f64>,
    /// Side of the published value on which ours is to be, for a bound.
    pub bound: Option<Bound>,
    /// The measurement that the figure follows from; none for a measurement of its own.
    pub derived_from: Option<String>,
    /// Remarks.
    #[serde(default)]
    pub note: String,
}

impl Printed {
    /// Distance of `ours` from the published value, in percent.
    pub fn error_percent(&self, ours: f64) -> f64 {
        (ours / self.value - 1.0) * 100.0
    }

    /// Tests whether `ours` is within the tolerance, or on the right side of the bound; `None`
    /// without both.
    pub fn met(&self, ours: f64) -> Option<bool> {
        match (self.bound, self.tolerance_percent) {
            (Some(bound), _) => Some(bound.holds(ours, self.value)),
            (None, most) => most.map(|most| self.error_percent(ours).abs() <= most),
        }
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
            if let Some(of) = printed.derived_from.as_ref().filter(|of| !is_measurement(of)) {
                return Err(format!(
                    "{name} is derived from {of}, which must be a printed figure without derived_from"
                ));
            }
            let judged = printed.tolerance_percent.is_some() || printed.bound.is_some();
            if printed.tolerance_percent.is_some() && printed.bound.is_some() {
                return Err(format!(
                    "{name} has a tolerance and a bound; give one of them"
                ));
            }
            if judged == (printed.status == FigureStatus::NotIdentifiable) {
                return Err(format!(
                    "{name} must have a tolerance or a bound, or else status = \"not identifiable\""
                ));
            }
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
        tolerance_percent = 5.0
    "#;

    #[test]
    fn a_figure_that_was_fitted_to_cannot_be_called_blind() {
        assert!(PublishedFigures::parse(TEXT).is_ok());
        let blind = TEXT.replace("calibrated", "blind");
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

    #[test]
    fn a_figure_is_judged_in_one_way_unless_it_cannot_be_identified() {
        let tolerance = "tolerance_percent = 5.0";
        for (instead, works) in [
            ("bound = \"at-least\"", true),
            ("", false),
            ("tolerance_percent = 5.0\nbound = \"at-most\"", false),
        ] {
            let parsed = PublishedFigures::parse(&TEXT.replace(tolerance, instead));
            assert_eq!(parsed.is_ok(), works, "{instead}: {parsed:?}");
        }
        assert!(Bound::AtLeast.holds(3.1, 3.0) && !Bound::AtLeast.holds(2.9, 3.0));
        assert!(Bound::AtMost.holds(2.9, 3.0) && !Bound::AtMost.holds(3.1, 3.0));
    }

    #[test]
    fn a_derived_figure_names_a_measurement() {
        let derived = |of: &str| {
            let more = "[[printed]]\nfigure = \"rbps\"\nunit = \"B/s\"\nvalue = 1.0\n\
                        status = \"blind\"\ntolerance_percent = 5.0";
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
