//! The advice as a page of one file with its charts.

use super::{Advice, SizeOutcome};
use crate::page::{FIRST, GRID, HtmlPage, INK, MARK, PAPER, SECOND, bytes, span, table, themed};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

const SIZE: (u32, u32) = (900, 380);
const TEXT: (&str, i32) = ("sans-serif", 16);

type Drawn<T = ()> = Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The page.
pub fn page(advice: &Advice) -> Drawn<String> {
    let recommended = advice.recommended();
    let mut page = HtmlPage::new(
        &format!("How large a pool for {}", advice.source),
        &format!("{} Policy: {}.", advice.basis, advice.policy),
    );
    let profile = &advice.profile;
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let mut facts = vec![
        ("recommended pool", bytes(recommended.pool_bytes as f64)),
        ("touched in all", bytes(advice.footprint_bytes as f64)),
        ("cacheable accesses", percent(advice.cacheable_share)),
        (
            "of them reads",
            percent(profile.reads as f64 / profile.accesses().max(1) as f64),
        ),
        ("line", bytes(profile.line_bytes as f64)),
    ];
    if profile.seconds > 0.0 {
        facts.push(("observed for", span(profile.seconds)));
    }
    page.facts(&facts);
    page.warnings(&advice.warnings);
    page.section("Sizes side by side", &sizes(advice));
    let text = "Of 4 KiB blocks read, those that the pool serves. The band holds the true curve in \
                19 cases of 20, as far as it rests on samples; dots are the sizes of the table.";
    let chart = draw("Hit ratio by size of the pool", |area| curve(advice, area))?;
    page.section(
        "Hit ratio by size",
        &format!("{chart}<p class=\"soft\">{text}</p>"),
    );
    if !profile.working_set.is_empty() {
        let chart = draw("Working set over time", |area| working_set(advice, area))?;
        let text = "Distinct lines touched in each interval, times their length.";
        page.section(
            "Working set over time",
            &format!("{chart}<p class=\"soft\">{text}</p>"),
        );
    }
    if let Some(write_back) = &advice.write_back {
        crate::writeback::section(&mut page, write_back);
    }
    let prices = &advice.prices;
    let text = format!(
        "Net present value over {} years at {:.1}% a year: hardware at {} {} a gigabyte and its replacements once the \
         rated writes are used up ({} device writes a day for {} years), power at {} {} a kilowatt-hour. Prices of {}, \
         from a price book to be edited.",
        prices.years,
        100.0 * prices.discount_rate,
        prices.ssd.price_per_gb,
        prices.currency,
        prices.ssd.writes_per_day,
        prices.ssd.warranty_years,
        prices.power_per_kwh,
        prices.currency,
        prices.dated,
    );
    if advice.sizes.iter().any(|size| size.cost.is_some()) {
        page.section(
            "What it costs",
            &format!(
                "{}<p class=\"soft\">{}</p>",
                costs(advice),
                crate::page::escape(&text)
            ),
        );
    }
    Ok(page.finish())
}

fn chosen(size: &SizeOutcome) -> bool {
    size.label == "recommended"
}

fn sizes(advice: &Advice) -> String {
    let rows = advice.sizes.iter().map(|size| {
        let mut cells = vec![size.label.to_owned(), bytes(size.pool_bytes as f64)];
        let Some(e) = &size.estimate else {
            cells.resize(7, "not known".into());
            return (cells, chosen(size));
        };
        let rate = |bytes: f64| match advice.profile.seconds > 0.0 {
            true => format!("{:.2}", bytes / 1e6),
            false => "-".into(),
        };
        let busy = e
            .origin_busy
            .map_or("-".into(), |busy| format!("{:.0}", 100.0 * busy));
        cells.extend([
            format!("{:.1}", 100.0 * e.hit_ratio),
            format!("{:.2}", e.latency_us_mean / 1e3),
            format!("{:.2}", e.latency_us_p99 / 1e3),
            rate(e.origin_bytes_per_second),
            if e.saturated {
                "saturated".into()
            } else {
                busy
            },
        ]);
        (cells, chosen(size))
    });
    let head = [
        "size",
        "pool",
        "blocks hit %",
        "mean ms",
        "p99 ms",
        "origin MB/s",
        "busy %",
    ];
    table(&head, &rows.collect::<Vec<_>>(), &[])
}

fn costs(advice: &Advice) -> String {
    let currency = &advice.prices.currency;
    let rows = advice
        .sizes
        .iter()
        .filter(|size| size.pool_bytes > 0)
        .filter_map(|size| {
            let cost = size.cost.as_ref()?;
            let written = size.estimate;
            let written = written.map_or("not known".into(), |e| {
                format!("{:.1}", e.pool_written_bytes_per_second * 86_400.0 / 1e9)
            });
            let cells = vec![
                size.label.to_owned(),
                bytes(size.pool_bytes as f64),
                written,
                cost.endurance_years
                    .map_or("-".into(), |years| format!("{years:.1}")),
                cost.purchases.to_string(),
                format!("{:.2}", cost.hardware),
                format!("{:.2}", cost.power),
                format!("{:.2}", cost.total),
            ];
            Some((cells, chosen(size)))
        });
    let head = [
        "size",
        "pool",
        "written GB/day",
        "endures years",
        "bought",
        &format!("hardware {currency}"),
        &format!("power {currency}"),
        &format!("total {currency}"),
    ];
    table(&head, &rows.collect::<Vec<_>>(), &[])
}

fn draw(title: &str, chart: impl FnOnce(&Area<'_>) -> Drawn) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        chart(&area)?;
        area.present()?;
    }
    Ok(themed(&svg, title))
}

fn curve(advice: &Advice, area: &Area<'_>) -> Drawn {
    let line = advice.profile.line_bytes as f64;
    let points = &advice.curve;
    let log = |bytes: f64| bytes.max(1.0).log2();
    let x = |bytes: u64| log(bytes as f64);
    let last = points.last().map_or(1, |point| point.pool_bytes);
    let sizes = advice.sizes.iter().filter(|size| size.pool_bytes > 0);
    let most = sizes
        .clone()
        .map(|size| log(size.pool_bytes as f64))
        .fold(x(last), f64::max);
    let from = log(line).min(most - 1.0);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(54)
        .y_label_area_size(72)
        .build_cartesian_2d(from..most + 0.2, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("size of the pool")
        .y_desc("hits, % of blocks read")
        .x_label_formatter(&|x| bytes(x.exp2()))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_labels(9)
        .y_labels(6)
        .label_style(TEXT.into_font().color(&INK))
        .axis_desc_style(TEXT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(PAPER.mix(0.0))
        .draw()?;
    let at = |y: f64| (100.0 * y).clamp(0.0, 100.0);
    let upper = points
        .iter()
        .map(|p| (x(p.pool_bytes), at(p.hit_ratio + p.error)));
    let lower = points
        .iter()
        .rev()
        .map(|p| (x(p.pool_bytes), at(p.hit_ratio - p.error)));
    let band: Vec<_> = upper.chain(lower).collect();
    chart.draw_series([Polygon::new(band, FIRST.mix(0.25))])?;
    let mid = points.iter().map(|p| (x(p.pool_bytes), at(p.hit_ratio)));
    chart.draw_series(LineSeries::new(mid, FIRST.stroke_width(2)))?;
    for (n, size) in sizes.enumerate() {
        let x = log(size.pool_bytes as f64);
        let colour = if chosen(size) { MARK } else { INK };
        chart.draw_series([PathElement::new([(x, 0.0), (x, 100.0)], colour.mix(0.5))])?;
        let text = TEXT.into_font().color(&colour);
        // Near the right edge a label stands on the left of its line.
        let (side, label) = if x > from + 0.8 * (most - from) {
            (HPos::Right, format!("{} ", size.label))
        } else {
            (HPos::Left, format!(" {}", size.label))
        };
        let text = text.pos(Pos::new(side, VPos::Top));
        let y = 98.0 - 7.0 * (n % 4) as f64;
        chart.draw_series([Text::new(label, (x, y), text)])?;
        if let Some(e) = &size.estimate {
            let y = at(e.hit_ratio);
            chart.draw_series([Circle::new((x, y), 5, SECOND.filled())])?;
        }
    }
    Ok(())
}

fn working_set(advice: &Advice, area: &Area<'_>) -> Drawn {
    let sets = &advice.profile.working_set;
    let end = sets.last().map_or(1.0, |set| set.end_seconds);
    let most = sets
        .iter()
        .map(|set| set.read_bytes.max(set.written_bytes))
        .max();
    let most = most.unwrap_or(0).max(1) as f64 * 1.15;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(54)
        .y_label_area_size(92)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc("time since the beginning")
        .x_label_formatter(&|x| span(*x))
        .y_label_formatter(&|y| bytes(*y))
        .x_labels(9)
        .y_labels(6)
        .label_style(TEXT.into_font().color(&INK))
        .axis_desc_style(TEXT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(PAPER.mix(0.0))
        .draw()?;
    let series = [
        (
            "read",
            FIRST,
            sets.iter().map(|s| s.read_bytes).collect::<Vec<_>>(),
        ),
        (
            "written",
            SECOND,
            sets.iter().map(|s| s.written_bytes).collect(),
        ),
    ];
    for (name, colour, heights) in series {
        let mut from = 0.0;
        let mut steps = Vec::new();
        for (set, height) in sets.iter().zip(heights) {
            steps.push((from, height as f64));
            steps.push((set.end_seconds, height as f64));
            from = set.end_seconds;
        }
        chart
            .draw_series(LineSeries::new(steps, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(TEXT.into_font().color(&INK))
        .background_style(PAPER.mix(0.9))
        .border_style(GRID)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_self_contained;
    use crate::sizing::tests::{loop_of, lru};
    use crate::sizing::{AdviceSubject, EXAMPLE_PRICES, Estimate, PriceBook, advise};

    fn made(seconds: bool, estimate: Option<Estimate>) -> String {
        let subject = AdviceSubject {
            source: "a <trace>".into(),
            basis: "Nothing.".into(),
            policy: "lru".into(),
            pool_bytes: Some(1 << 20),
        };
        let prices = PriceBook::parse(EXAMPLE_PRICES).unwrap();
        let profile = loop_of(1000, 5000, seconds);
        let curve = lru(&profile);
        page(&advise(profile, curve, subject, &[estimate; 5], prices)).unwrap()
    }

    #[test]
    fn the_page_holds_everything_it_needs() {
        let page = made(true, Some(Estimate::default()));
        assert_self_contained(&page);
        assert_eq!(page.matches("<svg ").count(), 2);
        for expected in [
            "a &lt;trace&gt;",
            "recommended",
            "var(--first)",
            "total USD",
            "2026-11-01",
            "3.9 MiB",
        ] {
            assert!(page.contains(expected), "no {expected:?}");
        }
        assert!(!page.contains("#0101"), "a stand-in for a colour is left");
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let page = made(false, None);
        assert_eq!(page.matches("<svg ").count(), 1);
        assert!(page.contains("not known") && page.contains("no times are known"));
    }
}
