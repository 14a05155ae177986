//! What the sources could not try: an experiment's load with each choice of today, one at a
//! time.
//!
//! The load runs twice on one node, with the event of the choice in between: the first time
//! fills the cache, and the second is measured, but for its first third. Between the two the
//! server's own memory is emptied, so that all choices begin the second alike.
//!
//! Invariant: a client's error ends the run; the loss of a flash drive is none.

use crate::load::Load;
use crate::rig::Rig;
use crate::visitors::{Curve, Tally};
use control::observed::Observed;
use futures_util::future::join;

/// What happens between the two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing.
    None,
    /// A flash drive is pulled.
    Lost,
    /// The daemon ends in order and starts again.
    Restarted,
}

/// One choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Its name.
    pub name: &'static str,
    /// Lines of the pool's section, beside its defaults.
    pub pool: &'static str,
    /// The flash, in percent of the experiment's.
    pub flash_percent: u64,
    /// What happens.
    pub event: Event,
}

const fn pool(name: &'static str, pool: &'static str) -> Choice {
    Choice {
        name,
        pool,
        flash_percent: 100,
        event: Event::None,
    }
}

/// The default, against which all are held.
pub const AUTO: Choice = pool("auto", "");

/// Every choice, the default first.
pub const ALL: [Choice; 19] = [
    AUTO,
    pool("auto-endurance", "policy = \"auto-endurance\""),
    pool("lru", "policy = \"lru\""),
    pool("clock", "policy = \"clock\""),
    pool("2q", "policy = \"2q\""),
    pool("arc", "policy = \"arc\""),
    pool("sieve", "policy = \"sieve\""),
    pool("clock2q-plus", "policy = \"clock2q-plus\""),
    pool("lirs", "policy = \"lirs\""),
    pool("w-tinylfu-1", "policy = \"w-tinylfu-1\""),
    pool("w-tinylfu-20", "policy = \"w-tinylfu-20\""),
    pool("s3-fifo", "policy = \"s3-fifo\""),
    pool("streams admitted", "sequential = \"0B\""),
    pool("few streams admitted", "sequential = \"256KiB\""),
    Choice {
        name: "half the flash",
        flash_percent: 50,
        ..AUTO
    },
    Choice {
        name: "twice the flash",
        flash_percent: 200,
        ..AUTO
    },
    Choice {
        name: "a flash drive lost",
        event: Event::Lost,
        ..AUTO
    },
    Choice {
        name: "restarted warm",
        event: Event::Restarted,
        ..AUTO
    },
    Choice {
        name: "restarted cold",
        pool: "cold = true",
        flash_percent: 100,
        event: Event::Restarted,
    },
];

impl Choice {
    /// Whether it is another policy or admission, all else being equal.
    pub fn is_fixed(&self) -> bool {
        *self != AUTO && self.event == Event::None && self.flash_percent == 100
    }

    /// A configuration with the pool's lines in it; of what the two both say, the choice's.
    pub fn configure(&self, text: &str) -> String {
        let set = self.pool.split(" =").next().unwrap_or_default();
        let kept = text
            .lines()
            .filter(|line| set.is_empty() || !line.trim_start().starts_with(&format!("{set} =")));
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        text.replace("[[pool]]\n", &format!("[[pool]]\n{}\n", self.pool))
    }
}

/// What a choice came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Came {
    /// Work a second: pages where there are some, else MB.
    pub rate: f64,
    /// The mean response of a page, or of a read.
    pub response_ms: f64,
    /// Of the blocks looked up the second time, those found.
    pub hit_ratio: f64,
    /// What was observed when it was asked how large the pool should be.
    pub observed: Observed,
    /// Simulated seconds.
    pub virtual_s: f64,
}

/// Tries a choice on a load.
pub fn choose<L: Load>(load: L, seed: u64, choice: Choice) -> Result<Came, String> {
    let text = choice.configure(&load.topology());
    let tried = async move |rig| try_on(rig, load, seed, choice).await;
    let load = load.with_flash(choice.flash_percent);
    let (came, _) = load.on_node(seed, &text, tried)?;
    Ok(came)
}

async fn try_on<L: Load>(mut rig: Rig, load: L, seed: u64, choice: Choice) -> Result<Came, String> {
    let began = rig.env.timer.now();
    let place = load.place();
    let watch = rig.watch();
    let timer = rig.env.timer.clone();
    let ask = async move {
        timer.sleep(place.advised_after).await;
        watch.observe(place.volumes[0]).await
    };
    let (first, observed) = join(load.work(&mut rig, seed, seed), ask).await;
    first?;
    match choice.event {
        Event::None => {}
        Event::Lost => rig.pull(place.flash),
        Event::Restarted => rig = rig.restart().await?,
    }
    let before = rig.counters().await?;
    let curve = load.work(&mut rig, seed, seed + (1 << 32)).await?;
    let after = rig.counters().await?;
    let of = |counter: &str| (after[counter] - before[counter]) as f64;
    let (sum, s) = last_two_thirds(&curve);
    let (rate, response_s) = match sum.pages {
        0 => (sum.bytes as f64 / 1e6 / s, sum.request_s()),
        pages => (pages as f64 / s, sum.response_s()),
    };
    let looked_up = of("blocks_hit") + of("blocks_missed");
    Ok(Came {
        rate,
        response_ms: response_s * 1e3,
        hit_ratio: if looked_up > 0.0 {
            of("blocks_hit") / looked_up
        } else {
            0.0
        },
        observed: observed?,
        virtual_s: (rig.env.timer.now() - began).0 as f64 / 1e9,
    })
}

fn last_two_thirds(curve: &Curve) -> (Tally, f64) {
    let end = curve.interval_s * curve.points.len() as f64;
    curve.over(end / 3.0, f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cachecade, maxiq, nytro, redskin, rig};

    #[test]
    fn every_choice_is_a_sound_configuration_with_its_own_lines() {
        let replay = redskin::Scale::QUICK.topology();
        for topology in [
            cachecade::TOPOLOGY,
            maxiq::TOPOLOGY,
            nytro::TOPOLOGY,
            &replay,
        ] {
            for choice in ALL {
                let text = choice.configure(topology);
                let config = rig::topology(&text);
                config.unwrap_or_else(|error| panic!("{}: {error}", choice.name));
                assert!(text.contains(choice.pool), "{}", choice.name);
            }
        }
        assert_eq!(ALL.iter().filter(|choice| choice.is_fixed()).count(), 13);
    }
}
