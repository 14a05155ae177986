//! Prints the results of the web content in the CASEs named, given PARAMETER=VALUE of unpublished
//! parameters, to see the effect of each; `part=1` before these runs the whole published load, in
//! place of a tenth; `pool='KEY = VALUE'` is a line of the pool's section.

use block::Nanos;
use experiment::cachecade::{CASES, CachecadeScale, run_one};

fn main() {
    let mut scale = CachecadeScale::FULL;
    let mut seed = 1;
    let mut cases = Vec::new();
    for arg in std::env::args().skip(1) {
        let Some((name, value)) = arg.split_once('=') else {
            let case = CASES.iter().find(|(name, _)| *name == arg);
            cases.push(*case.expect("a case, or PARAMETER=VALUE"));
            continue;
        };
        if name == "pool" {
            scale.pool = value.to_owned().leak();
            continue;
        }
        let value: f64 = value.parse().expect("a number");
        match name {
            "part" => scale = CachecadeScale::part(value as u32),
            "seed" => seed = value as u64,
            "users" => scale.users = value as u32,
            "think_ms" => scale.think = Nanos::from_millis(value as u64),
            "connections" => scale.connections = value as u32,
            "memory_mib" => scale.memory_pages = (value as u32) << 8,
            "processor_us" => scale.processor = Nanos::from_micros(value as u64),
            "span_s" => scale.span = Nanos::from_secs(value as u64),
            "os_touches" => scale.os_touches = value,
            "os_mib" => scale.os_pages = (value as u64) << 8,
            _ => panic!("no parameter is called {name}"),
        }
    }
    for (name, cached) in cases {
        let (ran, took) = run_one(seed, scale, cached, |_| ()).expect("a run");
        println!("{name}: {took}");
        for counter in ["hits_late", "pool_writes_late", "devices_ejected"] {
            println!("  {counter}: {}", ran.counters[counter]);
        }
        let end = scale.span.0 as f64 / 1e9;
        for tenth in 0..9 {
            let (sum, s) = ran.curve.over(
                end * f64::from(tenth) / 9.0,
                end * f64::from(tenth + 1) / 9.0,
            );
            println!(
                "  {tenth}: {:.1} pages/s, {:.1} Mb/s, page {:.3} s, first byte {:.4} s, request {:.4} s",
                sum.pages as f64 / s,
                sum.bytes as f64 * 8e-6 / s,
                sum.response_s(),
                sum.first_byte_s(),
                sum.request_s(),
            );
        }
    }
}
