//! The availability drills in the simulator.

use crate::common::{Place, lab, run};
use serde_json::Value;
use std::fs;

#[test]
fn every_drill_is_survived_in_virtual_time() {
    for (set_up, cells) in [("published", 12), ("write-back", 14)] {
        let place = Place::new();
        let page = place.path("drill.html");
        let mut drill = lab();
        drill.args(["drill", "--json", "--set-up", set_up, "--report"]);
        let rows: Vec<Value> = serde_json::from_str(&run(drill.arg(&page))).unwrap();
        assert_eq!(rows.len(), cells);
        for row in &rows {
            assert_eq!(
                (&row["errors"], &row["wrong_bytes"]),
                (&0.into(), &0.into())
            );
            assert_eq!(row["where"], "sim", "{row}");
            let writes = row["writes_per_s"].as_f64().unwrap();
            assert_eq!(row["io"], writes > 0.0, "{row}");
            // A cleaner that finds no copy to read tries again after a second.
            let stall = row["longest_stall_ms"].as_f64().unwrap();
            assert!(set_up == "published" || stall < 1000.0, "{row}");
        }
        let page = fs::read_to_string(page).unwrap();
        advise::page::assert_self_contained(&page);
        assert!(page.contains("<svg"));
    }
}
