//! Sampled miss-ratio curves against the exact ones, on traces of
//! HOTSET_SHARED: the mean error stays within 0.01 in less than a mebibyte.

use crate::{PoolSize, SimulationPlan, TraceSource};
use policy::profile::{MissRatioCurve, STATE_BYTES_MAX};
use std::path::PathBuf;
use trace::Strictness;

const MEAN_ERROR_MAX: f64 = 0.01;
const SHARES: [f64; 6] = [0.003, 0.01, 0.03, 0.1, 0.3, 0.6];

#[test]
fn sampled_curves_agree_with_simulated_lru() {
    let Some(shared) = std::env::var_os("HOTSET_SHARED") else {
        println!("skipped: HOTSET_SHARED is not set, so there are no traces to run");
        return;
    };
    for name in ["hplajw", "iozone_ssd", "cloudphysics_sample"] {
        let path = PathBuf::from(&shared).join(format!("traces/{name}.csv.zst"));
        let source = TraceSource::open(&path, None, Strictness::Strict, 4096).expect("the trace");
        let mut curve = MissRatioCurve::new(1);
        let each = |chunk: &crate::RequestChunk| {
            chunk
                .lines
                .iter()
                .for_each(|line| curve.access(u64::from(*line), 1));
        };
        source.for_each_chunk(each).expect("it was read before");
        assert!(curve.state_bytes() < STATE_BYTES_MAX);
        let plan = SimulationPlan {
            policies: vec!["lru".into()],
            sizes: SHARES.map(PoolSize::Share).to_vec(),
            threads: 1,
        };
        let rows = plan.run(&source, &|| ()).expect("lru runs");
        let off =
            |row: &crate::ResultRow| (curve.at(row.cache_blocks).miss_ratio - row.miss_ratio).abs();
        let error = rows.iter().map(off).sum::<f64>() / rows.len() as f64;
        assert!(
            error <= MEAN_ERROR_MAX,
            "{name}: mean absolute error {error}"
        );
    }
}
