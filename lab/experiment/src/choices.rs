//! Choices beyond the sources: an experiment's load with each choice of today, one at a time.
//!
//! The load runs twice on one node: the first time fills the cache, and the second is measured, but
//! for its first third. Between the two the server's own memory is emptied, so that all choices
//! begin the second alike. A restart is between the two as well, since an ended daemon answers no
//! client; flash drives are pulled soon after the second has begun.
//!
//! Invariant: a client's error ends the run; the loss of a flash drive is none.

use crate::load::Load;
use crate::rig::{NodeRig, Plug};
use crate::visitors::{VisitCurve, VisitTally};
use block::Nanos;
use control::observed::Observed;
use futures_util::future::join;

/// Event between the two times, or in the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MiddleEvent {
    /// Nothing.
    None,
    /// The first flash drive of the pool is pulled, while clients ask.
    Lost,
    /// All flash drives of the pool are pulled.
    AllLost,
    /// The daemon ends in order and starts again.
    Restarted,
}

/// One choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Name of the choice.
    pub name: &'static str,
    /// Lines of the pool's section, beside its defaults.
    pub pool: &'static str,
    /// The flash, in percent of the default's flash.
    pub flash_percent: u64,
    /// True for two flash drives, of half the size each where the experiment has one.
    pub is_split: bool,
    /// The order of volumes that are write-back, each with a log on two flash drives of its own;
    /// none of those that write through.
    pub order: Option<&'static str>,
    /// The event.
    pub event: MiddleEvent,
}

const fn pool(name: &'static str, pool: &'static str) -> Choice {
    Choice {
        name,
        pool,
        flash_percent: 100,
        is_split: false,
        order: None,
        event: MiddleEvent::None,
    }
}

const fn write_back(name: &'static str, order: &'static str) -> Choice {
    Choice {
        order: Some(order),
        ..pool(name, "")
    }
}

/// The default, against which all are held.
pub const AUTO: Choice = pool("auto", "");

/// Every choice, the default first.
pub const ALL: [Choice; 15] = [
    AUTO,
    pool("auto-endurance", "policy = \"auto-endurance\""),
    pool("lru", "policy = \"lru\""),
    pool("streams admitted", "sequential = \"0B\""),
    pool("few streams admitted", "sequential = \"256KiB\""),
    write_back("write-back ordered", "ordered"),
    write_back("write-back journaled", "journaled"),
    write_back("write-back coalesced", "coalesced"),
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
        name: "two flash drives",
        is_split: true,
        ..AUTO
    },
    Choice {
        name: "one of two flash drives lost",
        is_split: true,
        event: MiddleEvent::Lost,
        ..AUTO
    },
    Choice {
        name: "all flash drives lost",
        event: MiddleEvent::AllLost,
        ..AUTO
    },
    Choice {
        name: "restarted warm",
        event: MiddleEvent::Restarted,
        ..AUTO
    },
    Choice {
        name: "restarted cold",
        pool: "cold = true",
        event: MiddleEvent::Restarted,
        ..AUTO
    },
];

/// The second flash drive, where the experiment has one.
const SECOND: &str = "second";

impl Choice {
    /// Tests for another policy or admission, all else being equal.
    pub fn is_fixed(&self) -> bool {
        let same = self.flash_percent == 100 && !self.is_split && self.order.is_none();
        *self != AUTO && same && self.event == MiddleEvent::None
    }

    /// A configuration with the pool's lines added; where both set the same key, the choice wins.
    pub fn configure(&self, text: &str) -> String {
        let set = self.pool.split(" =").next().unwrap_or_default();
        let kept = text
            .lines()
            .filter(|line| set.is_empty() || !line.trim_start().starts_with(&format!("{set} =")));
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        let text = text.replace("[[pool]]\n", &format!("[[pool]]\n{}\n", self.pool));
        let text = match self.order {
            Some(order) => logged(&text, order),
            None => text,
        };
        match self.is_split {
            true => split(&text),
            false => text,
        }
    }
}

/// The same with write-back for its cached volumes: the log of each on two drives of the pool's
/// model, a journal on one of the first other model.
fn logged(text: &str, order: &str) -> String {
    let Some(ssd) = flash(text).first().map(|name| model_of(text, name)) else {
        return text.to_owned();
    };
    let mut models = text.lines().filter(|line| line.starts_with("model ="));
    let disk = models
        .find(|line| *line != ssd)
        .expect("an origin has a model");
    let mut devices = String::new();
    let mut device = |name: &str, model: &str| {
        devices += &format!(
            "[[device]]\nname = \"{name}\"\npath = \"/dev/{name}\"\ncontroller = \"{name}\"\n{model}\n\n"
        );
    };
    let mut sections = text.split("[[volume]]\n");
    let mut out = sections.next().unwrap_or_default().to_owned();
    for section in sections {
        let (own, _) = section.split_once("[[").unwrap_or((section, ""));
        let name = own
            .split("name = \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let name = name.filter(|_| !own.contains("mode ="));
        out += "[[volume]]\n";
        if let Some(name) = name {
            let names = ["a", "b", "c"].map(|part| format!("log-{part}-{name}"));
            for (name, model) in names.iter().zip([ssd, ssd, disk]) {
                device(name, model);
            }
            let [first, second, third] = names;
            out += &format!(
                "mode = \"write-back\"\nwrite_back = \"{}\"\nlog = [\"{first}\", \"{second}\"]\n\
                 journal = \"{third}\"\n",
                order
            );
        }
        out += section;
    }
    out.replacen("[[device]]", &format!("{devices}[[device]]"), 1)
}

/// The names of the pool's drives.
fn flash(text: &str) -> Vec<&str> {
    let list = text
        .split_once("devices = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let names = list.map_or("", |(list, _)| list).split(',');
    let names = names.map(|name| name.trim().trim_matches('"'));
    names.filter(|name| !name.is_empty()).collect()
}

/// The line with the model of a drive.
fn model_of<'a>(text: &'a str, name: &str) -> &'a str {
    let section = text.split_once(&format!("[[device]]\nname = \"{name}\"\n"));
    let mut lines = section.map_or("", |(_, rest)| rest).lines();
    lines
        .find(|line| line.starts_with("model ="))
        .expect("a drive has a model")
}

/// The same with two flash drives, if there is one.
fn split(text: &str) -> String {
    let [name] = flash(text)[..] else {
        return text.to_owned();
    };
    let model = model_of(text, name);
    let second = format!("[[device]]\nname = \"{SECOND}\"\npath = \"/dev/{SECOND}\"\n{model}\n\n");
    let both = format!("devices = [\"{name}\", \"{SECOND}\"]");
    let text = text.replace(&format!("devices = [\"{name}\"]"), &both);
    text.replacen("[[device]]", &format!("{second}[[device]]"), 1)
}

/// Result of a choice.
#[derive(Clone, PartialEq, Debug)]
pub struct Came {
    /// Work a second: pages where there are some, else MB.
    pub rate: f64,
    /// The mean response of a page, or of a read.
    pub response_ms: f64,
    /// Share of blocks found among those looked up the second time, once drives were pulled.
    pub hit_ratio: f64,
    /// Observations at the time when the size of the pool was asked for.
    pub observed: Observed,
    /// Simulated seconds.
    pub virtual_s: f64,
}

/// Tries a choice on a load, where the default has so many percent of the experiment's flash.
pub fn choose<L: Load>(
    load: L,
    seed: u64,
    flash_percent: u64,
    choice: Choice,
) -> Result<Came, String> {
    let text = choice.configure(&load.topology());
    let tried = async move |rig| try_on(rig, load, seed, choice).await;
    let load = load.with_flash(flash_percent * choice.flash_percent / 100);
    let (came, _) = load.on_node(seed, &text, tried)?;
    Ok(came)
}

async fn try_on<L: Load>(
    mut rig: NodeRig,
    load: L,
    seed: u64,
    choice: Choice,
) -> Result<Came, String> {
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
    let soon = Nanos((rig.env.timer.now() - began).0 / 9);
    if choice.event == MiddleEvent::Restarted {
        rig = rig.restart().await?;
    }
    let plugs = match choice.event {
        MiddleEvent::Lost => rig.flash().into_iter().take(1).collect(),
        MiddleEvent::AllLost => rig.flash(),
        MiddleEvent::None | MiddleEvent::Restarted => Vec::new(),
    };
    let timer = rig.env.timer.clone();
    let watch = rig.watch();
    let pull = async move {
        timer.sleep(soon).await;
        plugs.iter().for_each(Plug::pull);
        watch.counters().await
    };
    let (curve, before) = join(load.work(&mut rig, seed, seed + (1 << 32)), pull).await;
    let (curve, before) = (curve?, before?);
    let after = rig.watch().counters().await?;
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

fn last_two_thirds(curve: &VisitCurve) -> (VisitTally, f64) {
    let end = curve.interval_s * curve.points.len() as f64;
    curve.over(end / 3.0, f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cachecade, controllers, maxiq, nytro, perc_oltp, redskin, rig};

    #[test]
    fn every_choice_is_a_sound_configuration_with_its_own_lines() {
        let replay = redskin::RedskinScale::QUICK.topology();
        let database = controllers::ControllersScale::of(perc_oltp::SHAPE, true).cached(1);
        let database = database.topology();
        let cachecade = cachecade::TOPOLOGY;
        for topology in [
            cachecade,
            maxiq::TOPOLOGY,
            nytro::TOPOLOGY,
            &replay,
            &database,
        ] {
            for choice in ALL {
                let text = choice.configure(topology);
                let config = rig::topology(&text);
                let config = config.unwrap_or_else(|error| panic!("{}: {error}", choice.name));
                assert!(text.contains(choice.pool), "{}", choice.name);
                let is_logged = choice.order.is_some();
                let has_log = |v: &control::config::Volume| !v.log.value.is_empty();
                let logged = config.volumes.iter().filter(|v| has_log(v)).count();
                assert_eq!(logged > 0, is_logged, "{}", choice.name);
                let drives = config.pools[0].devices.value.len();
                let split = choice.is_split || topology == cachecade;
                assert_eq!(drives > 1, split, "{}", choice.name);
            }
        }
        assert_eq!(ALL.iter().filter(|choice| choice.is_fixed()).count(), 4);
    }
}
