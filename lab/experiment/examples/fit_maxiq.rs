//! Prints the results of the web sites without and with the cache, given PARAMETER=VALUE of
//! unpublished parameters, to see the effect of each; `part=1` before these runs the whole
//! published load, in place of half. 29.4 Mb/s were printed without, and 107.0 with.

use block::Nanos;
use experiment::maxiq::{MaxiqScale, run_one};

fn main() {
    let mut scale = MaxiqScale::FULL;
    let args: Vec<String> = std::env::args().skip(1).collect();
    for arg in &args {
        let (name, value) = arg.split_once('=').expect("PARAMETER=VALUE");
        let value: u32 = value.parse().expect("a number");
        match name {
            "part" => scale = MaxiqScale::part(value),
            "pages" => scale.pages = value,
            "connections" => scale.connections = value,
            "memory_mib" => scale.memory_pages = value << 8,
            "processor_us" => scale.processor = Nanos::from_micros(value.into()),
            "ramp_s" => scale.ramp = Nanos::from_secs(value.into()),
            "span_s" => scale.span = Nanos::from_secs(value.into()),
            "users" => scale.users = value,
            _ => panic!("no parameter is called {name}"),
        }
    }
    for (name, cached) in [("off", false), ("on", true)] {
        let (users, span) = (scale.users, scale.span);
        let (curve, _) = run_one(1, scale, cached, users, span, |_| ()).expect("a run");
        let (sum, s) = curve.whole();
        println!(
            "{args:?} {name}: {:.1} Mb/s, {:.1} pages/s, page {:.2} s, first byte {:.2} s, \
             request {:.2} s",
            sum.bytes as f64 * 8e-6 / s,
            sum.pages as f64 / s,
            sum.response_s(),
            sum.first_byte_s(),
            sum.request_s(),
        );
    }
}
