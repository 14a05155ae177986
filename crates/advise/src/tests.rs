//! The recommendation for recorded traces, by replay, where `HOTSET_SHARED` names the folder with
//! the traces.

use crate::sizing::replay::{ModelledDevices, hits, replay};
use crate::sizing::{profile, sizes};
use block::IoError;
use drives::catalogue::Drive;
use std::path::{Path, PathBuf};
use trace::{Strictness, TraceReader, TraceRecord};

const LINE_BYTES: u64 = 65_536;
const TRACES: [&str; 5] = [
    "arc_P3",
    "cap_web",
    "cloudphysics_sample",
    "hplajw",
    "umass_websearch_s",
];

fn records(path: &Path) -> impl Iterator<Item = Result<TraceRecord, IoError>> + use<> {
    let reader = TraceReader::open(path, None, Strictness::Lenient).unwrap();
    reader.map(|record| Ok(record.unwrap()))
}

/// Returns the folder of the traces; `None` if that is not named.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("HOTSET_SHARED");
    if folder.is_none() {
        println!("skipped: HOTSET_SHARED does not name the folder of traces");
    }
    Some(Path::new(&folder?).join("traces"))
}

#[test]
fn the_recommended_size_hits_nearly_what_the_largest_does() {
    let Some(folder) = folder() else { return };
    for name in TRACES {
        recommends_enough(&folder.join(format!("{name}.csv.zst")));
    }
}

#[test]
#[ignore = "takes minutes"]
fn the_recommended_size_of_every_trace_hits_nearly_what_the_largest_does() {
    let Some(folder) = folder() else { return };
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
    let traces = files.filter(|path| path.extension().is_some_and(|end| end == "zst"));
    assert!(traces.map(|path| recommends_enough(&path)).count() >= TRACES.len());
}

fn recommends_enough(path: &Path) {
    let devices = ModelledDevices {
        origin: Drive::named("ST3500320AS").unwrap(),
        origin_drives: 1,
        pool: Drive::named("Nytro 400").unwrap(),
    };
    let profile = profile(records(path), LINE_BYTES).unwrap();
    let footprint = profile.footprint_bytes() as u64;
    for policy in ["auto", "lru"] {
        let begin = || Ok::<_, IoError>(records(path));
        let curve = hits(begin, policy, footprint, LINE_BYTES).unwrap();
        let chosen = sizes(&curve, LINE_BYTES, None);
        let (_, recommended) = chosen.iter().find(|size| size.0 == "recommended").unwrap();
        let largest = curve.last().unwrap();
        let both = [*recommended, largest.pool_bytes];
        let timed = profile.seconds > 0.0;
        let found = replay(records(path), policy, &both, LINE_BYTES, timed, &devices).unwrap();
        let [small, large] = [found[0].hit_ratio, found[1].hit_ratio];
        let what = format!("{} {policy}", path.display());
        println!("{what}: {small:.3} of {large:.3} with {recommended} of {footprint}");
        assert!(small >= 0.95 * large, "{what}: {small} of {large}");
        // One estimator: the curve says the same.
        assert_eq!(large, largest.hit_ratio);
        // A canary: the smallest size of the curve would not do.
        assert!(curve[0].hit_ratio < 0.95 * large || curve[0].pool_bytes == *recommended);
    }
}
