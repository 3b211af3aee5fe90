//! Draws the chart of ratios as SVG, with one bar for each goal. A bar to the right of the line at
//! 1 means that AGEniX is better. The colours follow the light or dark scheme of the reader.

use std::fmt::Write;

use super::row::{GoalVerdict, ResultRow};

const WIDTH: f64 = 860.0;
/// Horizontal range of the bars. Labels end to the left of the range.
const LEFT: f64 = 470.0;
const RIGHT: f64 = 800.0;
const LINE: f64 = 20.0;
const HEADING: f64 = 30.0;
const TOP: f64 = 44.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.h{font-weight:600}.s{fill:#59636e}.e{text-anchor:end}.m{text-anchor:middle}\
.aim{fill:#1a7f37}.ok{fill:#54aeff}.below{fill:#cf222e}.grid{stroke:#d1d9e0}.one{stroke:#1f2328}.back{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.s{fill:#9198a1}.aim{fill:#3fb950}.ok{fill:#388bfd}.below{fill:#f85149}\
.grid{stroke:#3d444d}.one{stroke:#f0f6fc}.back{fill:#0d1117}}";

struct Bar<'a> {
    section: &'a str,
    label: String,
    ratio: f64,
    verdict: GoalVerdict,
}

/// Returns the chart of all goals, or `None` if there is no goal.
pub(crate) fn svg(rows: &[ResultRow]) -> Option<String> {
    let bars: Vec<Bar<'_>> = rows.iter().flat_map(bars_of).collect();
    let scale = Scale::of(&bars)?;
    let mut body = String::new();
    let mut y = TOP;
    let mut section = "";
    for bar in &bars {
        if bar.section != section {
            section = bar.section;
            y += HEADING;
            line(&mut body, format_args!(r#"<text class="h" x="12" y="{:.0}">{section}</text>"#, y - 7.0));
        }
        draw(&mut body, bar, &scale, y);
        y += LINE;
    }
    let height = y + 16.0;
    let mut svg = String::new();
    line(
        &mut svg,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" role="img" aria-label="How many times as fast as its peers AGEniX is">"#
        ),
    );
    line(&mut svg, format_args!("<style>{STYLE}</style>"));
    line(&mut svg, format_args!(r#"<rect class="back" width="{WIDTH}" height="{height:.0}"/>"#));
    line(
        &mut svg,
        format_args!(
            r#"<text class="h" x="12" y="20">How many times as fast as its peers AGEniX is (medians, logarithmic)</text>"#
        ),
    );
    grid(&mut svg, &scale, y);
    svg += &body;
    svg += "</svg>\n";
    Some(svg)
}

fn bars_of(row: &ResultRow) -> impl Iterator<Item = Bar<'_>> {
    row.goals.iter().map(|goal| Bar {
        section: &row.section,
        label: format!("{} ÷ {}", row.title, goal.peer),
        ratio: goal.ratio,
        verdict: goal.verdict(),
    })
}

/// Logarithmic scale between a power of two below the least ratio and one above the greatest.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(bars: &[Bar<'_>]) -> Option<Self> {
        let exponents = || bars.iter().map(|bar| bar.ratio.log2());
        let low = exponents().reduce(f64::min)?.floor().clamp(-6.0, -1.0);
        let high = exponents().reduce(f64::max)?.ceil().clamp(1.0, 8.0);
        Some(Self { low, high })
    }

    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.log2() - self.low) / (self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Returns the powers of two within the scale.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (-6_i32..=8).map(f64::from).filter(|power| (self.low..=self.high).contains(power)).map(f64::exp2)
    }
}

fn grid(svg: &mut String, scale: &Scale, bottom: f64) {
    for ratio in scale.ticks() {
        let x = scale.x(ratio);
        let class = if (ratio - 1.0).abs() < f64::EPSILON { "one" } else { "grid" };
        line(svg, format_args!(r#"<path class="{class}" d="M{x:.1} {TOP}V{bottom:.0}"/>"#));
        line(svg, format_args!(r#"<text class="s m" x="{x:.1}" y="{:.0}">{ratio}</text>"#, TOP - 4.0));
    }
}

fn draw(svg: &mut String, bar: &Bar<'_>, scale: &Scale, y: f64) {
    let (one, end) = (scale.x(1.0), scale.x(bar.ratio));
    let (from, width) = (one.min(end), (one - end).abs().max(1.0));
    let class = match bar.verdict {
        GoalVerdict::Aim => "aim",
        GoalVerdict::Ok => "ok",
        GoalVerdict::Below => "below",
    };
    let (text, label) = (y + 13.0, escaped(&shortened(&bar.label)));
    line(svg, format_args!(r#"<text class="e" x="{:.0}" y="{text:.0}">{label}</text>"#, LEFT - 8.0));
    line(
        svg,
        format_args!(
            r#"<rect class="{class}" x="{from:.1}" y="{:.0}" width="{width:.1}" height="14" rx="2"/>"#,
            y + 2.0
        ),
    );
    line(
        svg,
        format_args!(
            r#"<text class="s" x="{:.1}" y="{text:.0}">{:.2}</text>"#,
            one.max(end) + 5.0,
            bar.ratio
        ),
    );
}

/// Cuts a label to the width in front of the bars.
fn shortened(label: &str) -> String {
    const FITS: usize = 74;
    if label.chars().count() <= FITS {
        return label.to_owned();
    }
    let mut short: String = label.chars().take(FITS - 1).collect();
    short.push('…');
    short
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _written = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::svg;
    use crate::{comparison::Better, row};

    #[test]
    fn bar_starts_at_one_and_ends_at_its_ratio() {
        let mut better = row::tests::row(Better::More, 200.0);
        better.title = "a < b & c".into();
        let drawn = svg(&[better, row::tests::row(Better::More, 70.0)]).unwrap();
        // From a half to two: one is in the middle.
        assert!(drawn.contains(r#"class="one" d="M635.0"#), "{drawn}");
        assert!(drawn.contains(r#"class="aim" x="635.0""#), "{drawn}");
        assert!(drawn.contains(r#"class="below""#) && drawn.contains("a &lt; b &amp; c ÷ redis"), "{drawn}");
        assert_eq!(drawn.matches("wire").count(), 1);
    }

    #[test]
    fn chart_is_none_without_goals() {
        assert_eq!(svg(&[]), None);
    }
}
