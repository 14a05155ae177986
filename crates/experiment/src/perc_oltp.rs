//! Transactions of a brokerage on two mirrored controllers, by as many users as they serve.
//!
//! Not here: the hypervisor and the processors; the log's own disk lies behind the data's.

use crate::controllers;
use crate::entry::Experiment;
use crate::figures::Figures;
use crate::load::Place;
use crate::measured::{Measured, Times, curve};
use crate::oltp::{self, Served, Shape};
use crate::record::record;
use crate::rig::Rig;
use crate::verdict::Outcome;
use crate::visitors::Curve;
use block::Nanos;

/// The name under which it is run.
pub const NAME: &str = "perc-oltp";
const FIGURES: &str = include_str!("../figures/perc-oltp.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "transactions of 250 users of a brokerage on two mirrored controllers of seven drives",
    needs: "300 MB; half a minute a seed",
    seeds: 5,
    figures,
    run: |seed, quick, done| run(seed, Scale::load(quick), done),
    choose: None,
    record: |seed, quick, sink| record(Scale::load(quick), seed, sink),
};

/// What is run, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// The database.
    pub shape: Shape,
    /// When it is measured.
    pub times: Times,
}

impl Scale {
    const fn load(quick: bool) -> Scale {
        if quick { Scale::QUICK } else { Scale::FULL }
    }

    /// Two minutes of it.
    pub const FULL: Scale = Scale {
        shape: Shape {
            users: 250,
            page_bytes: 8 << 10,
            // 250 GB.
            pages: 250_000_000_000 / (8 << 10),
            disks: 3,
            // Over as much of the volume as the mail store's.
            apart_bytes: 250 << 30,
            log_bytes: 204_000_000_000 / (8 << 10) * (8 << 10),
            // 8 GB.
            memory_pages: 1 << 20,
            scale: 1.0,
            ahead: 0.0,
            commit_bytes: 8 << 10,
        },
        times: Times {
            warm_up: Nanos::from_secs(20),
            span: Nanos::from_secs(120),
            interval: Nanos::from_secs(5),
        },
    };
    /// Seconds: too little to judge by.
    pub const QUICK: Scale = Scale {
        times: Times {
            warm_up: Nanos::from_secs(1),
            span: Nanos::from_secs(4),
            interval: Nanos::from_millis(200),
        },
        ..Scale::FULL
    };
}

/// Runs it once: what it came to, and the time it took in the simulation.
pub fn run_one(seed: u64, scale: Scale) -> Result<(Measured<Served>, Nanos), String> {
    controllers::run(seed, controllers::TOPOLOGY, async move |mut rig| {
        scale.served(&mut rig, seed).await
    })
}

impl Scale {
    async fn served(self, rig: &mut Rig, ways: u64) -> Result<Measured<Served>, String> {
        let volume = rig.volume(controllers::VOLUME)?;
        let ran = oltp::run(&rig.env, ways, self.shape, volume, self.times).await;
        ran.map_err(|error| error.to_string())
    }
}

/// Nothing is cached.
impl crate::load::Load for Scale {
    fn place(&self) -> Place {
        controllers::place(self.times)
    }

    fn topology(&self) -> String {
        controllers::TOPOLOGY.into()
    }

    fn on_node<T: 'static>(
        self,
        seed: u64,
        text: &str,
        _: u64,
        work: impl AsyncFnOnce(Rig) -> Result<T, String> + 'static,
    ) -> Result<(T, Nanos), String> {
        controllers::run(seed, text, work)
    }

    async fn work(self, rig: &mut Rig, _: u64, ways: u64) -> Result<Curve, String> {
        let served = self.served(rig, ways).await?;
        let points = served.points.iter().map(Served::data);
        Ok(curve(self.times.interval, points))
    }
}

/// Everything that was printed, measured with one seed. Passes each part to `done`.
pub fn run(seed: u64, scale: Scale, done: &dyn Fn(&str)) -> Result<Outcome, String> {
    let (measured, took) = run_one(seed, scale)?;
    done(&format!("seed {seed}: all users"));
    let mut outcome = Outcome {
        virtual_s: took.0 as f64 / 1e9,
        ..Outcome::default()
    };
    let (sum, s) = measured.whole();
    let data = sum.data();
    for (figure, value) in [
        ("tps", sum.ended() as f64 / s),
        ("mib_s", data.bytes as f64 / f64::from(1 << 20) / s),
        ("iops", data.reads as f64 / s),
        ("latency", data.mean_ms()),
    ] {
        outcome.set(figure, value);
    }
    let points = measured.points.iter().map(Served::data);
    let curve = curve(scale.times.interval, points);
    outcome.curves.push(("data disks".to_owned(), curve));
    Ok(outcome)
}

/// What was printed.
pub fn figures() -> Figures {
    Figures::parse(FIGURES).expect("the shipped figures are well formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;

    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, Scale::QUICK, &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), 0.0).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(outcome.values["tps"] > 100.0, "{outcome:?}");
        let again = || run_one(1, Scale::QUICK).unwrap();
        assert_eq!(again(), again());
        assert_ne!(again(), run_one(2, Scale::QUICK).unwrap());
    }
}
