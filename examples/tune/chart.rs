//! The target quantile against the extra load, as an SVG picture.
//!
//! Written by hand: it is lines, dots and words. Its colours follow the reader's light or dark theme
//! where the picture is shown on its own or as an image.

use std::{cmp::Reverse, fmt::Write as _, time::Duration};

use crate::{
    axis::Axis,
    policy::Timing,
    report::Report,
    units::{count, ms, percent, pth},
};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;

/// Of the plot itself.
const LEFT: f64 = 76.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = HEIGHT - 56.0;

/// A letter's width at 13 pixels, generously.
const LETTER: f64 = 7.8;

/// Of a live quantile's name, in smaller letters.
const NAME: f64 = 48.0;

/// Letters of a file's name that leave room for the rest of the line.
const LONGEST_NAME: usize = 32;

/// From one line of text to the next.
const LINE: f64 = 17.0;

const STYLE: &str = "\
svg { font: 13px system-ui, 'DejaVu Sans', sans-serif }
text { paint-order: stroke; stroke: #fff; stroke-width: 4px }
.paper { fill: #fff } .ink { fill: #1f2328 } .pale { fill: #59636e }
.grid { stroke: #d8dee4 } .axis { stroke: #818b98 }
.fixed { stroke: #0969da; fill: none; stroke-width: 2 } .fixed-dot { fill: #0969da }
.live { fill: #fff; stroke: #bc4c00; stroke-width: 2 }
.limit { stroke: #818b98; stroke-dasharray: 2 4 } .none { stroke: #59636e; stroke-dasharray: 7 5; stroke-width: 1.5 }
.chosen { fill: #1a7f37; stroke: #fff; stroke-width: 2 } .label { fill: #1a7f37; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { stroke: #0d1117 }
.paper { fill: #0d1117 } .ink { fill: #f0f6fc } .pale { fill: #9198a1 }
.grid { stroke: #2a313c } .axis { stroke: #656c76 }
.fixed { stroke: #58a6ff } .fixed-dot { fill: #58a6ff }
.live { fill: #0d1117; stroke: #f0883e }
.limit { stroke: #656c76 } .none { stroke: #9198a1 }
.chosen { fill: #3fb950; stroke: #0d1117 } .label { fill: #3fb950 } }";

/// Draws it.
pub(crate) fn svg(report: &Report<'_>) -> String {
    Chart::new(report).draw()
}

/// A policy's place.
struct Point<'a> {
    name: String,
    timing: &'a Timing,
    attempts: u32,
    load: f64,
    latency: Duration,
}

struct Chart<'a> {
    report: &'a Report<'a>,
    /// All that lie within the picture.
    points: Vec<Point<'a>>,
    chosen: Point<'a>,
    without: Duration,
    x: Axis,
    y: Axis,
    svg: String,
}

impl<'a> Chart<'a> {
    fn new(report: &'a Report<'a>) -> Self {
        let quantile = report.asked.quantile;
        // What is far dearer than the load is of no interest.
        let widest = (2.2 * report.asked.load).clamp(0.02, 0.6);
        let mut points: Vec<_> = report
            .outcomes
            .iter()
            .map(|outcome| Point {
                name: outcome.policy.name(),
                timing: &outcome.policy.timing,
                attempts: outcome.policy.attempts,
                load: outcome.extra_load,
                latency: outcome.quantile(quantile),
            })
            .collect();
        let chosen = points.remove(report.advice.chosen);
        let without = report.outcomes[0].quantile(quantile);
        points.retain(|point| point.load <= widest);
        points.sort_by(|a, b| a.load.total_cmp(&b.load));
        let latencies = points.iter().chain([&chosen]).map(|point| point.latency);
        let latencies = latencies.chain([without]).map(milliseconds);
        let (x, y) = (
            Axis::linear(100.0 * widest, [LEFT, RIGHT]),
            Axis::fitting(latencies, [BOTTOM, TOP]),
        );
        Self {
            report,
            points,
            chosen,
            without,
            x,
            y,
            svg: String::new(),
        }
    }

    fn draw(mut self) -> String {
        let (file, target) = (&self.report.source.file, pth(self.report.asked.quantile));
        let file = file.rsplit('/').next().unwrap_or(file);
        let file = match file.char_indices().nth(LONGEST_NAME) {
            Some((end, _)) => format!("{}...", &file[..end]),
            None => file.to_owned(),
        };
        let title = format!("{target} against extra load");
        let what = format!(
            "{file}: {} recorded latencies, replayed as independent of each other",
            count(self.report.recorded.latencies.count())
        );
        self.svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n<title>{}</title>\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
            escaped(&format!("{title}. {what}"))
        );
        self.text(
            LEFT,
            28.0,
            "ink",
            "start",
            "font-size=\"17\" font-weight=\"600\"",
            &title,
        );
        self.text(LEFT, 48.0, "pale", "start", "", &what);
        self.axes(&target);
        self.without();
        self.limit();
        self.curve();
        self.chosen();
        self.legend();
        self.svg += "</svg>\n";
        self.svg
    }

    fn axes(&mut self, target: &str) {
        for tick in self.x.ticks() {
            let x = self.x.at(tick);
            self.line([x, TOP, x, BOTTOM], "grid");
            self.text(
                x,
                BOTTOM + 20.0,
                "pale",
                "middle",
                "",
                &format!("{}", round(tick)),
            );
        }
        for tick in self.y.ticks() {
            let y = self.y.at(tick);
            self.line([LEFT, y, RIGHT, y], "grid");
            self.text(
                LEFT - 8.0,
                y + 4.5,
                "pale",
                "end",
                "",
                &format!("{}", round(tick)),
            );
        }
        self.line([LEFT, BOTTOM, RIGHT, BOTTOM], "axis");
        self.line([LEFT, TOP, LEFT, BOTTOM], "axis");
        let middle = (LEFT + RIGHT) / 2.0;
        self.text(
            middle,
            HEIGHT - 12.0,
            "ink",
            "middle",
            "",
            "extra load, % of calls",
        );
        let scale = match self.y.is_logarithmic() {
            true => " (logarithmic)",
            false => "",
        };
        let (x, y) = (22.0, (TOP + BOTTOM) / 2.0);
        let turned = format!("transform=\"rotate(-90 {x} {y})\"");
        self.text(
            x,
            y,
            "ink",
            "middle",
            &turned,
            &format!("{target}, ms{scale}"),
        );
    }

    fn without(&mut self) {
        let y = self.y.at(milliseconds(self.without));
        self.line([LEFT, y, RIGHT, y], "none");
        let label = format!("no hedging: {}", ms(self.without));
        self.text(RIGHT - 4.0, y - 7.0, "pale", "end", "", &label);
    }

    fn limit(&mut self) {
        let load = self.report.asked.load;
        let x = self.x.at(100.0 * load);
        self.line([x, TOP, x, BOTTOM], "limit");
        let label = format!("load {}", percent(load));
        self.text(x + 6.0, BOTTOM - 8.0, "pale", "start", "", &label);
    }

    /// Fixed delays as a line; live quantiles and plans as dots, for they lie on it.
    fn curve(&mut self) {
        let mut path = String::new();
        let mut dots = String::new();
        for point in self.points.iter().chain([&self.chosen]) {
            if point.attempts > 2 {
                continue;
            }
            let (x, y) = self.place(point);
            let title = escaped(&format!(
                "{}: {} for {}",
                point.name,
                ms(point.latency),
                percent(point.load)
            ));
            let (class, radius) = match point.timing {
                Timing::Never => continue,
                Timing::After(_) => ("fixed-dot", 2.5),
                Timing::At(_) | Timing::Within { .. } => ("live", 4.5),
            };
            _ = writeln!(
                dots,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{title}</title></circle>"
            );
        }
        for (index, (x, y)) in self.fixed().into_iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            _ = write!(path, "{command}{x:.1} {y:.1}");
        }
        _ = writeln!(self.svg, "<path class=\"fixed\" d=\"{path}\"/>");
        self.svg += &dots;
        self.quantiles();
    }

    /// Names the dots of live quantiles.
    fn quantiles(&mut self) {
        for ([x, y], label) in self.names() {
            self.text(x, y, "pale", "start", "font-size=\"11\"", &label);
        }
    }

    /// Where their names begin; without those that would run into each other or the chosen one.
    fn names(&self) -> Vec<([f64; 2], String)> {
        let mut taken = vec![self.place(&self.chosen).0];
        let mut names = Vec::new();
        for point in &self.points {
            let (x, y) = self.place(point);
            if let (Timing::At(_), 2) = (point.timing, point.attempts)
                && taken.iter().all(|other| (x - other).abs() > NAME)
            {
                taken.push(x);
                let left = match x + 7.0 + NAME < RIGHT {
                    true => x + 7.0,
                    false => x - 7.0 - NAME,
                };
                names.push(([left, y - 7.0], point.name.clone()));
            }
        }
        names
    }

    /// Marked, with two lines of words where there is room.
    fn chosen(&mut self) {
        let (x, y) = self.place(&self.chosen);
        let lines = [
            self.chosen.name.clone(),
            format!(
                "{} {} for {} more calls",
                pth(self.report.asked.quantile),
                ms(self.chosen.latency),
                percent(self.chosen.load)
            ),
        ];
        _ = writeln!(
            self.svg,
            "<circle class=\"chosen\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>"
        );
        let longest = lines.iter().map(String::len).max().unwrap_or(0);
        let [left, top] = self.room([x, y], LETTER * longest as f64);
        for (line, text) in lines.iter().enumerate() {
            let y = top + LINE * (0.8 + line as f64);
            self.text(left, y, "label", "start", "", text);
        }
    }

    /// Where two lines of that width beside a dot cover the least: their left upper corner.
    fn room(&self, [x, y]: [f64; 2], width: f64) -> [f64; 2] {
        let height = 2.0 * LINE;
        let inside = |[left, top]: &[f64; 2]| {
            *left > LEFT + 4.0 && left + width < RIGHT && *top > TOP && top + height < BOTTOM - 4.0
        };
        let covered = |[left, top]: &[f64; 2]| {
            let covers = |[x, y]: &[f64; 2]| {
                (left - 6.0..left + width + 6.0).contains(x)
                    && (top - 4.0..top + height + 4.0).contains(y)
            };
            self.drawn().iter().filter(|it| covers(it)).count()
        };
        let mut places = Vec::new();
        for away in [14.0, 30.0, 54.0, 90.0] {
            for left in [x + 14.0, x - 14.0 - width] {
                places.extend([[left, y + away - 8.0], [left, y - away - height + 8.0]]);
            }
        }
        let place = places.into_iter().filter(inside).min_by_key(covered);
        place.unwrap_or([x + 14.0, y - height])
    }

    /// Points on all that words may not cover, at small distances. They may cover the load's dots.
    fn drawn(&self) -> Vec<[f64; 2]> {
        let dots = self.points.iter().map(|point| self.place(point));
        let mut drawn: Vec<_> = dots.map(|(x, y)| [x, y]).collect();
        for ([x, y], _) in self.names() {
            drawn.extend([0.0, 0.5, 1.0].map(|share| [x + share * NAME, y - 4.0]));
        }
        let none = self.y.at(milliseconds(self.without));
        let none = [(LEFT, none), (RIGHT, none)];
        let fixed = self.fixed();
        let lines = fixed.windows(2).map(|pair| [pair[0], pair[1]]);
        for [(x1, y1), (x2, y2)] in lines.chain([none]) {
            let steps = ((x2 - x1).hypot(y2 - y1) / 5.0).ceil();
            let shares = (0..=steps as u32).map(|step| f64::from(step) / steps.max(1.0));
            drawn.extend(shares.map(|share| [x1 + share * (x2 - x1), y1 + share * (y2 - y1)]));
        }
        drawn
    }

    /// The line of fixed delays: from the longest, which costs least, to the shortest.
    fn fixed(&self) -> Vec<(f64, f64)> {
        let points = self.points.iter().chain([&self.chosen]);
        let mut fixed: Vec<_> = points
            .filter(|point| point.attempts == 2)
            .filter_map(|point| match point.timing {
                Timing::After(delay) => Some((delay, self.place(point))),
                _ => None,
            })
            .collect();
        fixed.sort_by_key(|(delay, _)| Reverse(*delay));
        fixed.into_iter().map(|(_, place)| place).collect()
    }

    fn legend(&mut self) {
        let y = 70.0;
        self.line([LEFT, y - 4.5, LEFT + 24.0, y - 4.5], "fixed");
        self.text(LEFT + 30.0, y, "pale", "start", "", "fixed delay");
        _ = writeln!(
            self.svg,
            "<circle class=\"live\" cx=\"{}\" cy=\"{}\" r=\"4.5\"/>",
            LEFT + 136.0,
            y - 4.5
        );
        self.text(LEFT + 147.0, y, "pale", "start", "", "live quantile, plan");
        _ = writeln!(
            self.svg,
            "<circle class=\"chosen\" cx=\"{}\" cy=\"{}\" r=\"7\"/>",
            LEFT + 296.0,
            y - 4.5
        );
        self.text(LEFT + 310.0, y, "pale", "start", "", "chosen");
    }

    fn place(&self, point: &Point<'_>) -> (f64, f64) {
        (
            self.x.at(100.0 * point.load),
            self.y.at(milliseconds(point.latency)),
        )
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str) {
        _ = writeln!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, more: &str, text: &str) {
        _ = writeln!(
            self.svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{}</text>",
            escaped(text)
        );
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// What a product of decimals misses by is not shown.
fn round(tick: f64) -> f64 {
    (tick * 1e9).round() / 1e9
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    // XML has no control characters, even escaped.
    text.replace('>', "&gt;").replace(char::is_control, " ")
}
