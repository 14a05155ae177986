//! Pages of one file that work without a network, light or dark as the reader prefers, and charts
//! that take their colours from the page.

use plotters::style::RGBColor;
use std::fmt::Write;

/// Stand-in colour of text and axes in charts; the page names the real colour.
pub const INK: RGBColor = RGBColor(1, 1, 1);
/// Lines that guide the eye.
pub const GRID: RGBColor = RGBColor(1, 1, 2);
/// The first series.
pub const FIRST: RGBColor = RGBColor(1, 1, 3);
/// The second series.
pub const SECOND: RGBColor = RGBColor(1, 1, 4);
/// Colour of marks for the reader's attention.
pub const MARK: RGBColor = RGBColor(1, 1, 5);
/// The page itself.
pub const PAPER: RGBColor = RGBColor(1, 1, 6);

const NAMES: [(RGBColor, &str); 6] = [
    (INK, "ink"),
    (GRID, "grid"),
    (FIRST, "first"),
    (SECOND, "second"),
    (MARK, "mark"),
    (PAPER, "paper"),
];

/// Colours of a drawing that stands alone, in place of the stand-ins: the page's light colours.
const LIGHT: [&str; 6] = [
    "#1d2730", "#d9dfe4", "#1769aa", "#c2571a", "#a3195b", "#ffffff",
];

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1d2730;--soft:#5b6874;--grid:#d9dfe4;--paper:#fff;--back:#f4f6f8;
--first:#1769aa;--second:#c2571a;--mark:#a3195b;--warn:#8a5a00;--warnback:#fff4d9}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa7b3;--grid:#36414b;--paper:#1b2228;
--back:#12171c;--first:#6db6f2;--second:#f0955a;--mark:#ff86bd;--warn:#ffd27a;--warnback:#3a2f14}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.6rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .75rem}
p{margin:.25rem 0 .75rem}
.soft{color:var(--soft)}
section{background:var(--paper);border:1px solid var(--grid);border-radius:.6rem;padding:1.1rem 1.25rem;margin-top:1rem}
.warn{background:var(--warnback);border-color:var(--warn)}
.warn li{margin:.3rem 0}
.facts{display:flex;flex-wrap:wrap;gap:.5rem 2.2rem;margin:0}
.facts div{display:flex;flex-direction:column-reverse}
.facts dt{color:var(--soft);font-size:.85rem}
.facts dd{margin:0;font-size:1.35rem;font-weight:600}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{text-align:right;padding:.35rem .45rem;border-bottom:1px solid var(--grid);white-space:nowrap}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0}
th.long,td.long{text-align:left;white-space:normal;min-width:16rem}
tr.chosen td{font-weight:600;color:var(--mark)}
svg{width:100%;height:auto;display:block}
h3{font-size:1rem;margin:1.1rem 0 .3rem}
ul{margin:.2rem 0;padding-left:1.2rem}
figure{margin:1rem 0;max-width:44rem;break-inside:avoid}
figcaption{color:var(--soft);font-size:.85rem}
@media(max-width:30rem){main{padding:1rem .5rem 2rem}section{padding:.8rem .7rem}}
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--grid:#ccc;--paper:#fff;--back:#fff;
--first:#1769aa;--second:#c2571a;--mark:#a3195b}main{max-width:none;padding:0}section{border:0;padding:.5rem 0}
figure{max-width:30rem}svg{max-height:24cm}
tr{break-inside:avoid}.wide{overflow:visible}table{font-size:.7rem}th,td{white-space:normal}}
code{font:.9em ui-monospace,monospace}
";

/// Text for a page.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

/// A drawing with the page's colours instead of the stand-ins above, to be put
/// into a page.
pub fn themed(svg: &str, title: &str) -> String {
    let mut svg = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    for (colour, name) in NAMES {
        svg = svg.replace(&hexadecimal(colour), &format!("var(--{name})"));
    }
    let label = format!("<svg role=\"img\" aria-label=\"{}\"", escape(title));
    svg.replacen("<svg", &label, 1)
}

/// The same drawing as a file of its own.
pub fn standalone(svg: &str) -> String {
    let colours = NAMES.iter().zip(LIGHT);
    colours.fold(svg.to_owned(), |svg, ((colour, _), light)| {
        svg.replace(&hexadecimal(*colour), light)
    })
}

fn hexadecimal(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// A page under construction.
pub struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    /// A page with a title, and a line below the title.
    pub fn new(title: &str, below: &str) -> HtmlPage {
        let (title, below) = (escape(title), escape(below));
        let body = format!("<h1>{title}</h1>\n<p class=\"soft\">{below}</p>\n");
        HtmlPage { title, body }
    }

    /// A section; `inner` is markup.
    pub fn section(&mut self, heading: &str, inner: &str) {
        let heading = escape(heading);
        let _ = writeln!(
            self.body,
            "<section>\n<h2>{heading}</h2>\n{inner}\n</section>"
        );
    }

    /// Figures side by side, each with its name.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.body += "<section>\n<dl class=\"facts\">\n";
        for (name, value) in facts {
            let (name, value) = (escape(name), escape(value));
            let _ = writeln!(self.body, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        self.body += "</dl>\n</section>\n";
    }

    /// Warnings; no section without any.
    pub fn warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        self.body += "<section class=\"warn\">\n<h2>Keep in mind</h2>\n<ul>\n";
        for warning in warnings {
            let _ = writeln!(self.body, "<li>{}</li>", escape(warning));
        }
        self.body += "</ul>\n</section>\n";
    }

    /// The whole file.
    pub fn finish(self) -> String {
        let HtmlPage { title, body } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
             </body>\n</html>\n"
        )
    }
}

/// A table; cells are text, those of a row in `long` columns flush left.
pub fn table(head: &[&str], rows: &[(Vec<String>, bool)], long: &[usize]) -> String {
    let mut out = String::from("<div class=\"wide\"><table>\n<tr>");
    let class = |column: usize| {
        if long.contains(&column) {
            " class=\"long\""
        } else {
            ""
        }
    };
    for (column, cell) in head.iter().enumerate() {
        let _ = write!(out, "<th{}>{}</th>", class(column), escape(cell));
    }
    out += "</tr>\n";
    for (cells, chosen) in rows {
        out += if *chosen {
            "<tr class=\"chosen\">"
        } else {
            "<tr>"
        };
        for (column, cell) in cells.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(column), escape(cell));
        }
        out += "</tr>\n";
    }
    out + "</table></div>"
}

/// Bytes in a binary unit, to three digits or so.
pub fn bytes(n: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (n, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0 && value.fract() >= 0.05);
    format!("{value:.digits$} {}", units[unit])
}

/// A span of time in the unit that suits it.
pub fn span(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".into(),
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// Panics if a page needs anything but itself.
pub fn assert_self_contained(page: &str) {
    for outside in [
        "http", "//", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe",
    ] {
        assert!(!page.contains(outside), "the page holds {outside:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_stay_text() {
        let mut page = HtmlPage::new("<b>&\"", "x");
        page.facts(&[("<i>", "<script>".into())]);
        page.warnings(&["<u>".into()]);
        let page = page.finish() + &table(&["<a>"], &[(vec!["<td>".into()], true)], &[]);
        for raw in ["<b>", "<i>", "<script>", "<u>", "<a>", "<td><"] {
            assert!(!page.contains(raw), "{raw}");
        }
        assert_self_contained(&page);
    }

    #[test]
    fn canary_a_page_that_needs_the_network_is_found() {
        for outside in [
            "<img src='x'>",
            "<link rel=x>",
            "//cdn/x",
            "<script>1</script>",
        ] {
            std::panic::catch_unwind(|| assert_self_contained(outside)).unwrap_err();
        }
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(64.0 * 1024.0), "64 KiB");
        assert_eq!(
            (span(0.004), span(90.0), span(7300.0)),
            ("4 ms".into(), "90 s".into(), "2.0 h".into())
        );
    }
}
