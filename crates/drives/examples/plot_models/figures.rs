//! The page of tables: results of the models, and every parameter with its source.

use crate::disk::random_reads;
use crate::flash::random_pages;
use block::IoResult;
use drives::catalogue::{Drive, controller, hdd, link, ssd};
use drives::{DriveOp, Figure, SsdWear};
use std::fmt::Write;

/// The page as Markdown.
pub fn page() -> IoResult<String> {
    let mut page = String::from(
        "# Device models: figures\n\n\
         Written by `cargo run --release -p drives --example plot_models` from the catalogue\n\
         in `crates/drives/src/catalogue/`; [models.md](models.md) explains the models.\n\n\
         ## What the models give\n\n\
         Random 4 KiB requests over the whole drive, computed by the models and not\n\
         measured on the drives. Latencies are means.\n\n",
    );
    hard_disks(&mut page)?;
    flash_drives(&mut page)?;
    page.push_str("## Parameters\n");
    for drive in Drive::all() {
        table(&mut page, drive.name(), &drive.figures());
    }
    for parameters in controller::ALL {
        table(&mut page, parameters.name, &parameters.figures());
    }
    for parameters in link::ALL {
        table(&mut page, parameters.name, &parameters.figures());
    }
    Ok(page)
}

fn hard_disks(page: &mut String) -> IoResult {
    page.push_str(
        "| Hard disk | IOPS at 1 | at 4 | at 32 | latency at 1 | at 4 | at 32 |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for drive in hdd::ALL {
        let mut rates = String::new();
        let mut latencies = String::new();
        for depth in [1, 4, 32] {
            let run = random_reads(&drive, depth)?;
            line(&mut rates, format_args!(" {:.0} |", run.iops()));
            let latency_ms = run.latency_mean_s() * 1e3;
            line(&mut latencies, format_args!(" {latency_ms:.1} ms |"));
        }
        line(page, format_args!("| {} |{rates}{latencies}\n", drive.name));
    }
    page.push('\n');
    Ok(())
}

fn flash_drives(page: &mut String) -> IoResult {
    page.push_str(
        "| Flash drive | read IOPS at 1 | at 32 | fresh write IOPS at 32 | steady at 32 |\n\
         |---|--:|--:|--:|--:|\n",
    );
    for drive in ssd::ALL {
        line(page, format_args!("| {} |", drive.name));
        for (wear, op, depth) in [
            (SsdWear::Fresh, DriveOp::Read, 1),
            (SsdWear::Fresh, DriveOp::Read, 32),
            (SsdWear::Fresh, DriveOp::Write, 32),
            (SsdWear::Steady, DriveOp::Write, 32),
        ] {
            let run = random_pages(&drive, wear, op, depth)?;
            line(page, format_args!(" {:.0} |", run.iops()));
        }
        page.push('\n');
    }
    page.push('\n');
    Ok(())
}

fn table(page: &mut String, name: &str, figures: &[(&'static str, Figure)]) {
    line(
        page,
        format_args!("\n### {name}\n\n| Parameter | Value | Basis | Source |\n|---|--:|---|---|\n"),
    );
    for (name, figure) in figures {
        let Figure {
            value,
            basis,
            source,
        } = figure;
        line(
            page,
            format_args!("| `{name}` | {value} | {basis} | {source} |\n"),
        );
    }
}

fn line(page: &mut String, text: std::fmt::Arguments) {
    page.write_fmt(text).expect("a string takes any text");
}
