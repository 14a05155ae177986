//! The clients' requests to the volumes of a load, as a trace: by the recording of the node, as in
//! `hotset trace record`.
//!
//! Nothing is cached during the recording, so that a closed loop asks as fast as the disks of the
//! source answered.
//!
//! Invariant: the trace has every request, in order of time; a dropped one is an error.

use crate::load::Load;
use crate::rig::{ClientTape, NodeRig};
use block::Nanos;
use futures_util::future::{Either, select};
use std::pin::pin;
use trace::TraceRecord;

/// Interval at which records are taken; a volume's tape holds 150,000 requests or so.
const PERIOD: Nanos = Nanos::from_millis(100);

/// Takes the records, one after the other; its error ends the recording.
pub type Sink = Box<dyn FnMut(&TraceRecord) -> Result<(), String>>;

/// Records the requests of one run of the load; returns the simulated seconds of the run.
pub fn record<L: Load>(load: L, seed: u64, sink: Sink) -> Result<f64, String> {
    let text = uncached(&load.topology());
    let ((), took) = load.on_node(seed, &text, async move |mut rig: NodeRig| {
        let mut tapes = Vec::new();
        for volume in load.place().volumes {
            tapes.push(rig.tape(volume).await?);
        }
        let mut written = WrittenPages {
            tapes,
            sink,
            began: None,
        };
        let timer = rig.env.timer.clone();
        let mut work = pin!(load.work(&mut rig, seed, seed));
        loop {
            let nap = pin!(timer.sleep(PERIOD));
            match select(work, nap).await {
                Either::Left((ended, _)) => {
                    ended?;
                    return written.take().await;
                }
                Either::Right(((), goes_on)) => work = goes_on,
            }
            written.take().await?;
        }
    })?;
    Ok(took.0 as f64 / 1e9)
}

/// A configuration with all volumes in pass-through.
fn uncached(text: &str) -> String {
    let passes = |line: &str| match line {
        "[[volume]]" => "[[volume]]\nmode = \"pass-through\"\n".to_owned(),
        _ if line.starts_with("mode =") => String::new(),
        _ => format!("{line}\n"),
    };
    text.lines().map(passes).collect()
}

struct WrittenPages {
    tapes: Vec<ClientTape>,
    sink: Sink,
    /// Time of the first request: the trace begins then.
    began: Option<Nanos>,
}

impl WrittenPages {
    /// Passes on the records since the last call, of all volumes in one order.
    async fn take(&mut self) -> Result<(), String> {
        let mut records = Vec::new();
        for (number, tape) in (0..).zip(&mut self.tapes) {
            let came = tape.take().await?;
            records.extend(came.into_iter().map(|record| TraceRecord {
                volume: number,
                ..record
            }));
        }
        records.sort_by_key(|record| record.time);
        for mut record in records {
            let began = *self.began.get_or_insert(record.time);
            record.time = Nanos(record.time.since(began).0);
            (self.sink)(&record)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ALL;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn recorded(name: &str, seed: u64) -> Vec<TraceRecord> {
        let experiment = ALL
            .iter()
            .find(|experiment| experiment.name == name)
            .unwrap();
        let records = Rc::new(RefCell::new(Vec::new()));
        let kept = records.clone();
        let sink = Box::new(move |record: &TraceRecord| {
            kept.borrow_mut().push(*record);
            Ok(())
        });
        let took = (experiment.load.as_ref().unwrap().record)(seed, true, sink).unwrap();
        let records = records.take();
        let last = records.last().unwrap().time;
        assert!(last.0 as f64 / 1e9 <= took, "{name}: {last} of {took}");
        records
    }

    #[test]
    fn every_load_is_a_trace_and_a_seed_gives_it_again() {
        for experiment in &ALL {
            let name = experiment.name;
            let records = recorded(name, 1);
            assert!(records.len() > 100, "{name}: {}", records.len());
            assert!(records.is_sorted_by_key(|record| record.time), "{name}");
            assert_eq!(records[0].time, Nanos::ZERO, "{name}");
            let requests = records.iter().filter(|record| !record.is_flush());
            let writes = requests
                .clone()
                .any(|record| record.op == trace::RecordOp::Write);
            let has_writes = name.starts_with("perc") || name == "redskin";
            assert_eq!(writes, has_writes, "{name}");
            let volumes = records.iter().map(|record| record.volume).max();
            assert_eq!(volumes, Some(u32::from(name == "cachecade")), "{name}");
        }
        assert_eq!(recorded("nytro", 1), recorded("nytro", 1));
        assert_ne!(recorded("nytro", 1), recorded("nytro", 2));
    }

    #[test]
    fn what_the_sink_refuses_ends_the_recording() {
        let sink = Box::new(|_: &TraceRecord| Err("the disk is full".to_owned()));
        let error = (ALL[0].load.as_ref().unwrap().record)(1, true, sink).unwrap_err();
        assert_eq!(error, "the disk is full");
    }

    #[test]
    fn nothing_is_cached_whatever_the_topology_says() {
        let text = uncached("[[volume]]\nname = \"a\"\nmode = \"write-back\"\n[[volume]]\n");
        assert_eq!(text.matches("pass-through").count(), 2);
        assert!(!text.contains("write-back"));
    }
}
