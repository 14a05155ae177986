//! Prints the results of the mail store (`mail`) at so many threads, and of the transactions
//! (`oltp`), given PARAMETER=VALUE of unpublished parameters, to see the effect of each.

use block::Nanos;
use experiment::{perc_mail, perc_oltp};

fn main() {
    let mut mail = perc_mail::Scale::of(perc_mail::SHAPE, false);
    let mut oltp = perc_oltp::Scale::of(perc_oltp::SHAPE, false);
    let (mut seed, mut threads) = (1, perc_mail::THREADS);
    let mut which = Vec::new();
    for arg in std::env::args().skip(1) {
        let Some((name, value)) = arg.split_once('=') else {
            which.push(arg);
            continue;
        };
        let value: f64 = value.parse().expect("a number");
        match name {
            "seed" => seed = value as u64,
            "threads" => threads = value as u32,
            "pause_us" => mail.shape.pause = Nanos::from_micros(value as u64),
            "path_us" => mail.shape.path = Nanos::from_micros(value as u64),
            "changed" => mail.shape.changed = value,
            "scan" => mail.shape.scan_bytes_per_second = value as u64,
            "apart_gib" => {
                mail.shape.apart_bytes = (value as u64) << 30;
                oltp.shape.apart_bytes = mail.shape.apart_bytes;
            }
            "users" => oltp.shape.users = value as u32,
            "scale" => oltp.shape.scale = value,
            "ahead" => oltp.shape.ahead = value,
            "memory_mib" => oltp.shape.memory_pages = (value as u32) << 7,
            "span_s" => {
                mail.times.span = Nanos::from_secs(value as u64);
                oltp.times.span = mail.times.span;
            }
            _ => panic!("no parameter is called {name}"),
        }
    }
    for which in which {
        if which == "mail" {
            let (measured, _) = perc_mail::run_one(seed, mail, threads).expect("a run");
            let (sum, s) = measured.whole();
            let rows = [
                ("reads", sum.all_reads()),
                ("writes", sum.writes),
                ("commits", sum.commits),
                ("scans", sum.scans),
            ];
            for (name, of) in rows {
                let ms = of.mean_ms();
                println!("mail {name}: {:.1}/s, {ms:.3} ms", of.reads as f64 / s);
            }
            let databases = sum.reads.map(|reads| format!("{:.2}", reads.mean_ms()));
            println!("mail reads of each database, ms: {}", databases.join(", "));
        } else {
            let (measured, _) = oltp.run_one(seed).expect("a run");
            let (sum, s) = measured.whole();
            println!("oltp: {:.1} transactions/s", sum.ended() as f64 / s);
            for (name, of) in [
                ("reads", sum.reads),
                ("writes", sum.writes),
                ("commits", sum.commits),
                ("data", sum.data()),
            ] {
                let ms = of.mean_ms();
                println!("oltp {name}: {:.1}/s, {ms:.3} ms", of.reads as f64 / s);
            }
        }
    }
}
