//! A small picture of a matrix: a heat map of a dense one, the pattern of a sparse one.
//!
//! A matrix of any size is brought down to a grid of dots that fits the terminal: a dot is the mean of its
//! cells, or for the pattern the share of them that is stored. With colours a character shows two dots, one
//! above the other; without, a dot is two characters wide, so that dots are about square either way.

use std::ops::Range;

use relatrix::matrix::{Cells, Layout, Matrix, Scalar, Shape, Storage};

use crate::format::grouped;
use crate::terminal::Screen;

/// From nothing to everything, without colours.
const SHADES: [&str; 5] = ["  ", "░░", "▒▒", "▓▓", "██"];
/// Stands for a dot with a NaN among its cells.
const NAN_SHADE: &str = "××";
/// From the lowest value to the highest: dark blue over green to yellow, of the 256 terminal colours.
const SEQUENTIAL: [u8; 11] = [17, 18, 24, 30, 29, 35, 71, 107, 149, 185, 226];
/// From the lowest value over zero to the highest: blue, grey, red.
const DIVERGING: [u8; 11] = [21, 27, 33, 75, 153, 254, 223, 216, 209, 203, 196];
/// NaN: in no palette.
const NAN_COLOUR: u8 = 201;
/// Lines left for the caption and the prompt.
const LINES_KEPT: usize = 5;
/// A dimension with fewer cells is blown up to about so many dots.
const DOTS_WANTED: usize = 12;

/// The picture and its caption, on lines of their own.
pub(crate) fn plot(matrix: &Matrix, screen: Screen) -> String {
    let shape = matrix.shape();
    let caption = caption(matrix);
    if shape.cells() == 0 {
        return format!("{caption}; nothing to draw\n");
    }
    let columns = screen.columns.unwrap_or(80).saturating_sub(4).max(2);
    let lines = screen.lines.saturating_sub(LINES_KEPT).max(2);
    let room = match screen.colour {
        true => Shape::new(lines * 2, columns),
        false => Shape::new(lines, columns / 2),
    };
    let grid = Grid::new(shape, room);
    let dots = match matrix.cells() {
        Cells::F64(storage) => grid.dots(storage),
        Cells::F32(storage) => grid.dots(storage),
    };
    let scale = Scale::new(&dots, matrix.layout());
    let drawn = if screen.colour {
        in_colour(&grid, &dots, &scale)
    } else {
        in_shades(&grid, &dots, &scale)
    };
    let infinite = match matrix.cells() {
        Cells::F64(storage) => infinite(storage),
        Cells::F32(storage) => infinite(storage),
    };
    let infinite = match infinite {
        0 => String::new(),
        1 => "1 infinite cell".to_owned(),
        many => format!("{} infinite cells", grouped(many as u64)),
    };
    let nan = if dots.iter().any(|dot| dot.is_nan()) { "× has a NaN" } else { "" };
    let parts = [caption, grid.legend(matrix.layout()), scale.legend(), nan.to_owned(), infinite];
    let told: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{drawn}{}\n", told.join("; "))
}

/// How many cells are infinite: they are drawn as the largest finite ones are.
fn infinite<T: Scalar>(storage: &Storage<T>) -> usize {
    let count = |cells: &[T]| cells.iter().filter(|cell| cell.to_f64().is_infinite()).count();
    match storage {
        Storage::Dense(dense) => (0..dense.shape().rows).map(|row| count(dense.row(row))).sum(),
        Storage::Csr(csr) => (0..csr.shape().rows).map(|row| count(csr.row(row).1)).sum(),
    }
}

fn caption(matrix: &Matrix) -> String {
    let (shape, layout, element) = (matrix.shape(), matrix.layout(), matrix.element());
    let stored = match layout {
        Layout::Dense => String::new(),
        Layout::Csr => format!(", {} cells stored", grouped(matrix.cells().stored() as u64)),
    };
    format!("{shape} {layout} {element}{stored}")
}

/// How cells fall onto dots.
struct Grid {
    shape: Shape,
    /// Rows and columns of dots.
    dots: Shape,
}

impl Grid {
    fn new(shape: Shape, room: Shape) -> Self {
        let fit = |cells: usize, room: usize| (cells * (DOTS_WANTED / cells).max(1)).min(room);
        Self {
            shape,
            dots: Shape::new(fit(shape.rows, room.rows), fit(shape.columns, room.columns)),
        }
    }

    /// The cells of a dot along one dimension; at least one.
    fn cells(dot: usize, dots: usize, cells: usize) -> Range<usize> {
        let begin = dot * cells / dots;
        begin..((dot + 1) * cells / dots).max(begin + 1)
    }

    /// What a dot stands for, where it is not one cell.
    fn legend(&self, layout: Layout) -> String {
        let per_dot = |cells: usize, dots: usize| (cells as f64 / dots as f64).max(1.0).round();
        let rows = per_dot(self.shape.rows, self.dots.rows);
        let columns = per_dot(self.shape.columns, self.dots.columns);
        match layout {
            Layout::Dense if rows * columns > 1.0 => {
                format!("each dot the mean of about {rows}x{columns} cells")
            }
            Layout::Dense | Layout::Csr => String::new(),
        }
    }

    fn dots<T: Scalar>(&self, storage: &Storage<T>) -> Vec<f64> {
        match storage {
            Storage::Dense(dense) => self
                .each(|rows, columns| mean(rows.flat_map(|row| &dense.row(row)[columns.clone()]))),
            Storage::Csr(csr) => self.each(|rows, columns| {
                let cells = (rows.len() * columns.len()) as f64;
                let stored = |row| {
                    let (at, values) = csr.row(row);
                    let from = at.partition_point(|&column| (column as usize) < columns.start);
                    let to = at.partition_point(|&column| (column as usize) < columns.end);
                    let nan = values[from..to].iter().any(|value| value.to_f64().is_nan());
                    if nan { f64::NAN } else { (to - from) as f64 }
                };
                rows.map(stored).sum::<f64>() / cells
            }),
        }
    }

    fn each(&self, mut dot: impl FnMut(Range<usize>, Range<usize>) -> f64) -> Vec<f64> {
        let mut dots = Vec::with_capacity(self.dots.cells());
        for row in 0..self.dots.rows {
            let rows = Self::cells(row, self.dots.rows, self.shape.rows);
            for column in 0..self.dots.columns {
                dots.push(dot(
                    rows.clone(),
                    Self::cells(column, self.dots.columns, self.shape.columns),
                ));
            }
        }
        dots
    }
}

/// The mean; an infinite or NaN cell makes it so, lest it hide among finite ones.
fn mean<'a, T: Scalar>(values: impl Iterator<Item = &'a T>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.to_f64();
        count += 1.0;
    }
    sum / count
}

/// What the lightest and the darkest dot stand for.
struct Scale {
    low: f64,
    high: f64,
    kind: ScaleKind,
}

enum ScaleKind {
    /// Zero has a colour of its own, in the middle.
    Diverging,
    Sequential,
    /// Share of cells stored, by its logarithm: the pattern of a very sparse matrix would else be blank.
    Pattern,
}

impl Scale {
    fn new(dots: &[f64], layout: Layout) -> Self {
        let finite = || dots.iter().copied().filter(|dot| dot.is_finite());
        let (low, high) =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        match layout {
            Layout::Csr => {
                let least = finite().filter(|&dot| dot > 0.0).fold(f64::INFINITY, f64::min);
                Self { low: least, high, kind: ScaleKind::Pattern }
            }
            Layout::Dense if low < 0.0 && high > 0.0 => {
                let reach = high.max(-low);
                Self { low: -reach, high: reach, kind: ScaleKind::Diverging }
            }
            Layout::Dense => Self { low, high, kind: ScaleKind::Sequential },
        }
    }

    /// Where a dot lies between 0 and 1; `None` for NaN.
    fn position(&self, dot: f64) -> Option<f64> {
        if dot.is_nan() {
            return None;
        }
        let (low, high, dot) = match self.kind {
            // What is stored at all is told from what is not: it begins at a quarter.
            ScaleKind::Pattern if dot == 0.0 => return Some(0.0),
            ScaleKind::Pattern => {
                let range = (self.high / self.low).ln();
                let along = if range > 0.0 { (dot / self.low).ln() / range } else { 1.0 };
                return Some(0.25 + 0.75 * along);
            }
            _ => (self.low, self.high, dot),
        };
        // One value everywhere is in the middle, whatever it is.
        Some(if high > low { ((dot - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 })
    }

    fn shade(&self, dot: f64) -> &'static str {
        let last = SHADES.len() - 1;
        self.position(dot).map_or(NAN_SHADE, |at| SHADES[(at * last as f64).round() as usize])
    }

    fn colour(&self, dot: f64) -> u8 {
        let palette = match self.kind {
            ScaleKind::Diverging => DIVERGING,
            ScaleKind::Sequential | ScaleKind::Pattern => SEQUENTIAL,
        };
        let last = palette.len() - 1;
        self.position(dot).map_or(NAN_COLOUR, |at| palette[(at * last as f64).round() as usize])
    }

    fn legend(&self) -> String {
        match self.kind {
            _ if self.low > self.high => String::new(),
            ScaleKind::Pattern => format!("darkest {:.2} % stored", self.high * 100.0),
            _ => format!("from {} to {}", short(self.low), short(self.high)),
        }
    }
}

/// A number in a few digits.
fn short(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        format!("{value:.3e}")
    } else {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn in_shades(grid: &Grid, dots: &[f64], scale: &Scale) -> String {
    let line = |row: &[f64]| row.iter().map(|&dot| scale.shade(dot)).collect::<String>();
    let edge = "─".repeat(grid.dots.columns * 2);
    let lines = dots.chunks(grid.dots.columns).map(|row| format!("│{}│\n", line(row)));
    format!("╭{edge}╮\n{}╰{edge}╯\n", lines.collect::<String>())
}

fn in_colour(grid: &Grid, dots: &[f64], scale: &Scale) -> String {
    let rows: Vec<&[f64]> = dots.chunks(grid.dots.columns).collect();
    let mut picture = String::new();
    for pair in rows.chunks(2) {
        picture.push_str("  ");
        for column in 0..grid.dots.columns {
            let upper = scale.colour(pair[0][column]);
            picture.push_str(&match pair.get(1) {
                Some(lower) => {
                    format!("\u{1b}[38;5;{upper};48;5;{}m▀", scale.colour(lower[column]))
                }
                None => format!("\u{1b}[0;38;5;{upper}m▀"),
            });
        }
        picture.push_str("\u{1b}[0m\n");
    }
    picture
}

#[cfg(test)]
mod tests {
    use relatrix::matrix::Csr;

    use super::*;

    const PLAIN: Screen = Screen { columns: Some(40), lines: 20, colour: false };

    fn dense(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> f64) -> Matrix {
        let cells = (0..rows * columns).map(|at| cell(at / columns, at % columns)).collect();
        Matrix::from_row_major(Shape::new(rows, columns), cells).unwrap()
    }

    #[test]
    fn a_gradient_becomes_darker() {
        let drawn = plot(&dense(1, 5, |_, column| column as f64), PLAIN);
        assert!(drawn.contains("│    ░░░░▒▒▒▒▓▓▓▓████│"), "{drawn}");
        assert!(drawn.ends_with("1x5 dense float64; from 0 to 4\n"), "{drawn}");
    }

    #[test]
    fn a_large_matrix_fits_and_keeps_its_pattern() {
        let drawn = plot(&dense(1000, 1000, |row, column| f64::from(row == column)), PLAIN);
        let lines: Vec<&str> = drawn.lines().collect();
        let (_caption, picture) = lines.split_last().unwrap();
        assert!(picture.iter().all(|line| crate::terminal::width(line) <= 40), "{drawn}");
        assert!(lines.len() <= 20, "{drawn}");
        assert!(lines[1].starts_with("│█"), "{drawn}");
        assert!(lines[lines.len() - 3].ends_with("█│"), "{drawn}");
    }

    #[test]
    fn nan_and_infinity_are_seen() {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 1.0];
        let drawn = plot(&dense(1, 5, |_, column| special[column]), PLAIN);
        assert!(drawn.contains("│××××████        ████│"), "{drawn}");
        assert!(drawn.ends_with("; × has a NaN; 2 infinite cells\n"), "{drawn}");
        let nothing_else = plot(&dense(2, 2, |_, _| f64::NAN), PLAIN);
        assert!(nothing_else.contains("float64; × has a NaN"), "{nothing_else}");
    }

    #[test]
    fn a_sparse_pattern_shows_what_is_stored() {
        let offsets: Vec<i64> = (0..=1000).collect();
        let columns: Vec<u32> = (0..1000).collect();
        let csr = Csr::new(
            Shape::new(1000, 1000),
            offsets.into(),
            columns.into(),
            vec![1.0; 1000].into(),
        );
        let drawn = plot(&Matrix::new(csr), PLAIN);
        let first = drawn.lines().nth(1).unwrap();
        assert!(first.starts_with("│█") || first.starts_with("│▓"), "{drawn}");
        assert!(first.ends_with("  │"), "{drawn}");
        assert!(drawn.contains("1000x1000 csr float64, 1,000 cells stored"), "{drawn}");
    }

    #[test]
    fn a_sparse_matrix_without_entries_has_nothing_to_tell() {
        let csr =
            Csr::new(Shape::new(2, 2), vec![0, 0, 0].into(), vec![].into(), vec![0.0; 0].into());
        let drawn = plot(&Matrix::new(csr), PLAIN);
        assert!(drawn.ends_with("2x2 csr float64, 0 cells stored\n"), "{drawn}");
    }

    #[test]
    fn every_shape_fits_every_screen() {
        for (rows, columns) in [(0, 3), (1, 1), (7, 1), (1, 7), (500, 3), (3, 500)] {
            for width in [1, 5, 40, 200] {
                for colour in [false, true] {
                    let screen = Screen { columns: Some(width), lines: 10, colour };
                    let drawn = plot(&dense(rows, columns, |row, _| row as f64), screen);
                    let picture = drawn.lines().rev().skip(1);
                    let widest = picture.map(crate::terminal::width).max().unwrap_or(0);
                    assert!(widest <= width.max(6), "{rows}x{columns} on {width}:\n{drawn}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1.5, -2.0, 1e-9].map(short), ["0", "1.5", "-2", "1.000e-9"]);
    }
}
