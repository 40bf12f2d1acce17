//! Convolution as a product: what the window shows at each place becomes a column.
//!
//! ```text
//! filters  f x c·kh·kw          patches  c·kh·kw x places       result  f x places
//! ```
//!
//! The patches of an image are made a tile of places at a time, small enough to stay in cache, and the
//! product of a tile is written where it stays. Tiles are cut by the window and the number of filters alone.

use std::ops::Range;

use faer::{Accum, MatMut, MatRef};
use rayon::prelude::*;

use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense, view, view_mut};
use super::{Sides, Window, inside};
use crate::matrix::{CellBuffer, Dense, Shape};

/// Cells of the patches at hand: half a MiB of `f64`, half of a core's second cache.
const TILE_CELLS: usize = 1 << 16;
/// Places of a tile at least, so that the product's packing of the filters is paid for.
const TILE_PLACES_MIN: usize = 64;
/// Multiplications that are worth a task: some 0.5 ms.
const TASK_WORK: usize = 1 << 24;

/// The cross-correlation of each image with each filter, which networks call convolution:
/// `result[f, i, j] = Σ filter[f, c, u, v] · image[c, i·s + u - p, j·s + v - p]`, with zeros around the image.
///
/// - Shapes: n images of c·h·w cells, f filters of c·kh·kw; the result n x f·(places).
/// - Work: 2·n·f·c·kh·kw·places flop. Memory: the result, and a tile of patches for each thread.
/// - Source: Chellapilla, Puri and Simard, *High Performance Convolutional Neural Networks for
///   Document Processing*, 2006, §3.
///
/// # Panics
/// Where images or filters are not of the window's size.
pub fn convolve<T: Real>(
    images: &Dense<T>,
    filters: &Dense<T>,
    window: &Window,
    stop: Stop<'_>,
) -> Dense<T> {
    let columns = filters.shape().rows * window.places().area();
    let shape = Shape::new(images.shape().rows, columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    convolve_into(images, filters, window, &mut cells, stop);
    dense(shape, cells)
}

/// The same for a block of images, into memory of the caller, shared with threads that have nothing to do.
///
/// # Panics
/// Where images or filters are not of the window's size, or `out` is not as long as the result.
pub fn convolve_into<T: Real>(
    images: &Dense<T>,
    filters: &Dense<T>,
    window: &Window,
    out: &mut [T],
    stop: Stop<'_>,
) {
    let shape = Shape::new(filters.shape().rows, window.places().area());
    assert_eq!(images.shape().columns, window.image_cells(), "images of the window's size");
    assert_eq!(filters.shape().columns, window.kernel_cells(), "filters of the window's size");
    assert_eq!(out.len(), images.shape().rows * shape.cells(), "a row for each image");
    if out.is_empty() {
        return;
    }
    let work = shape.cells().saturating_mul(window.kernel_cells());
    let each = out.par_chunks_mut(shape.cells()).with_min_len(TASK_WORK / work.max(1) + 1);
    each.enumerate().for_each_init(Vec::new, |patches, (i, out)| {
        let one = One { image: images.row(i), filters: view(filters), window, stop };
        one.run(view_mut(out, shape), 0..shape.columns, patches);
    });
}

/// One image under all filters.
#[derive(Clone, Copy)]
struct One<'a, T> {
    image: &'a [T],
    filters: MatRef<'a, T>,
    window: &'a Window,
    stop: Stop<'a>,
}

impl<T: Real> One<'_, T> {
    /// The results at these places; `patches` is memory to use.
    fn run(self, mut out: MatMut<'_, T>, places: Range<usize>, patches: &mut Vec<T>) {
        let depth = self.window.kernel_cells();
        let tile = (TILE_CELLS / depth / 16 * 16).max(TILE_PLACES_MIN);
        let work = self.filters.nrows().saturating_mul(depth).saturating_mul(places.len());
        if places.len() <= tile || work <= TASK_WORK {
            for start in (0..places.len()).step_by(tile) {
                if self.stop.is_asked() {
                    return;
                }
                let count = tile.min(places.len() - start);
                let out = out.as_mut().subcols_mut(start, count);
                self.tile(out, places.start + start, patches);
            }
            return;
        }
        let cut = places.len().div_ceil(tile) / 2 * tile;
        let middle = places.start + cut;
        let (left, right) = out.split_at_col_mut(cut);
        rayon::join(
            || self.run(left, places.start..middle, patches),
            || self.run(right, middle..places.end, &mut Vec::new()),
        );
    }

    /// The results at as many places as there are columns.
    fn tile(self, out: MatMut<'_, T>, first: usize, patches: &mut Vec<T>) {
        let (depth, count) = (self.window.kernel_cells(), out.ncols());
        let shown = if self.shows_all() {
            let all = Shape::new(depth, self.window.image.area());
            MatRef::from_row_major_slice(self.image, all.rows, all.columns).subcols(first, count)
        } else {
            patches.resize(patches.len().max(depth * count), T::ZERO);
            let patches = &mut patches[..depth * count];
            self.patches(first..first + count, patches);
            MatRef::from_row_major_slice(patches, depth, count)
        };
        let grain = Grain::product(self.stop);
        multiply(out, Accum::Replace, self.filters, shown, T::ONE, grain);
    }

    /// Whether the places show the pixels one by one, so that the image is its own patches.
    fn shows_all(&self) -> bool {
        let one = Sides::square(1);
        let Window { kernel, stride, padding, .. } = *self.window;
        (kernel, stride, padding) == (one, one, 0)
    }

    /// For each cell of the window a row of what it shows at these places.
    fn patches(&self, places: Range<usize>, patches: &mut [T]) {
        let kernel = self.window.kernel;
        let mut rows = patches.chunks_exact_mut(places.len());
        for plane in self.image.chunks_exact(self.window.image.area()) {
            for u in 0..kernel.height {
                for v in 0..kernel.width {
                    let row = rows.next().expect("a row for each cell of the window");
                    self.shown(plane, (u, v), places.start, row);
                }
            }
        }
    }

    /// What one cell of the window shows of a channel, at the places from `first` on.
    fn shown(&self, plane: &[T], (u, v): (usize, usize), first: usize, mut row: &mut [T]) {
        let Window { image, stride, padding, .. } = *self.window;
        let places = self.window.places();
        let down = inside(u, padding, image.height, stride.height, places.height);
        let across = inside(v, padding, image.width, stride.width, places.width);
        let (mut i, mut j) = (first / places.width, first % places.width);
        while !row.is_empty() {
            // The places of one row of the result, of which those between have a pixel.
            let (line, rest) = row.split_at_mut(row.len().min(places.width - j));
            let [from, to] = [across.start, across.end].map(|at| at.clamp(j, j + line.len()));
            if down.contains(&i) && from < to {
                let start = (i * stride.height + u - padding) * image.width;
                let pixels = &plane[start + from * stride.width + v - padding..];
                let (left, line) = line.split_at_mut(from - j);
                let (line, right) = line.split_at_mut(to - from);
                left.fill(T::ZERO);
                gather(pixels, stride.width, line);
                right.fill(T::ZERO);
            } else {
                line.fill(T::ZERO);
            }
            (row, i, j) = (rest, i + 1, 0);
        }
    }
}

/// Every `stride`-th of the pixels, from the first on.
fn gather<T: Real>(pixels: &[T], stride: usize, line: &mut [T]) {
    if stride == 1 {
        line.copy_from_slice(&pixels[..line.len()]);
    } else {
        line.iter_mut().zip(pixels.iter().step_by(stride)).for_each(|(to, &from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::testing;
    use super::*;

    /// The seven loops of the definition: images, filters, places, channels, the window.
    fn naive<T: Real>(images: &Dense<T>, filters: &Dense<T>, window: &Window) -> Dense<T> {
        let (places, kernel) = (window.places(), window.kernel);
        build(images.shape().rows, filters.shape().rows * places.area(), |n, column| {
            let (f, place) = (column / places.area(), column % places.area());
            let place = (place / places.width, place % places.width);
            let image: Vec<f64> = images.row(n).iter().map(|cell| cell.to_f64()).collect();
            let mut sum = 0.0;
            for c in 0..window.channels {
                for u in 0..kernel.height {
                    for v in 0..kernel.width {
                        let pixel = testing::pixel(window, &image, c, place, (u, v));
                        let cell = filters.row(f)[(c * kernel.height + u) * kernel.width + v];
                        sum += cell.to_f64() * pixel.unwrap_or(0.0);
                    }
                }
            }
            T::from_f64(sum)
        })
    }

    fn window(
        channels: usize,
        image: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> Window {
        let [image, kernel, stride] = [image, kernel, stride].map(Sides::square);
        Window { channels, image, kernel, stride, padding }
    }

    fn matches<T: Real>(rounds: u64) {
        for seed in 0..rounds {
            let mut rng = rng(seed);
            let mut window = testing::window(&mut rng);
            // A convolution may be padded beyond its window.
            window.padding += (seed % 3) as usize;
            let images = random::<T>(&mut rng, (seed % 4) as usize, window.image_cells());
            let filters = random::<T>(&mut rng, (seed % 5) as usize, window.kernel_cells());
            let found = convolve(&images, &filters, &window, Stop::NEVER);
            assert_close(&found, &naive(&images, &filters, &window), 100.0);
        }
    }

    #[test]
    fn a_convolution_is_that_of_the_definition() {
        matches::<f64>(400);
        matches::<f32>(100);
    }

    #[test]
    fn tiles_of_a_large_image_fit_together() {
        let mut rng = rng(7);
        // Rows longer than a tile, rows cut by tiles, and a tile of the fewest places.
        let shapes = [
            (1, (3, 9000), (2, 5), (1, 1), 1),
            (4, (150, 130), (3, 3), (1, 1), 1),
            (2, (90, 70), (7, 7), (2, 3), 3),
            (180, (13, 11), (3, 3), (1, 1), 1),
        ];
        for (channels, image, kernel, stride, padding) in shapes {
            let [image, kernel, stride] =
                [image, kernel, stride].map(|(height, width)| Sides { height, width });
            let window = Window { channels, image, kernel, stride, padding };
            let images = random::<f64>(&mut rng, 2, window.image_cells());
            let filters = random::<f64>(&mut rng, 3, window.kernel_cells());
            let found = convolve(&images, &filters, &window, Stop::NEVER);
            assert_close(&found, &naive(&images, &filters, &window), 1000.0);
        }
    }

    /// Values of SciPy 1's `correlate2d`: a 4x4 image of `(7 i) mod 11`, a 3x3 filter of `i - 4`.
    #[test]
    fn a_convolution_is_that_of_scipy() {
        let image = build(1, 16, |_, j| ((7 * j) % 11) as f64);
        let filter = build(1, 9, |_, j| j as f64 - 4.0);
        let valid = convolve(&image, &filter, &window(1, 4, 3, 1, 0), Stop::NEVER);
        assert_eq!(valid.cells(), [18.0, -26.0, 18.0, 7.0]);
        let full = convolve(&image, &filter, &window(1, 4, 3, 1, 2), Stop::NEVER);
        assert_eq!(
            full.cells(),
            [
                0.0, 28.0, 33.0, 63.0, 36.0, 20.0, 24.0, 33.0, 57.0, 54.0, 30.0, 0.0, 10.0, 23.0,
                18.0, -26.0, -43.0, -45.0, 17.0, 19.0, 18.0, 7.0, -17.0, -8.0, 5.0, -16.0, -33.0,
                -41.0, -26.0, -6.0, -14.0, -27.0, -57.0, -54.0, -58.0, -24.0
            ]
        );
        let strided = convolve(&image, &filter, &window(1, 4, 3, 2, 1), Stop::NEVER);
        assert_eq!(strided.cells(), [33.0, 54.0, 19.0, 7.0]);
    }

    #[test]
    fn a_filter_of_one_cell_shows_the_image() {
        let images = random::<f64>(&mut rng(8), 5, 3 * 49);
        let delta = |side: usize| {
            build(3, 3 * side * side, |f, j| {
                f64::from(j == (f * side + side / 2) * side + side / 2)
            })
        };
        for side in [1, 3, 5] {
            let same = window(3, 7, side, 1, side / 2);
            let found = convolve(&images, &delta(side), &same, Stop::NEVER);
            assert_eq!(found.cells(), images.cells(), "{side}");
        }
    }

    #[test]
    fn a_filter_of_one_pixel_is_a_product_of_channels() {
        let mut rng = rng(9);
        let (images, filters) = (random::<f64>(&mut rng, 2, 4 * 36), random::<f64>(&mut rng, 5, 4));
        let found = convolve(&images, &filters, &window(4, 6, 1, 1, 0), Stop::NEVER);
        for n in 0..2 {
            let image = dense(Shape::new(4, 36), images.row(n).to_vec());
            let expected = naive_product(&filters, &image);
            assert_close(&dense(Shape::new(5, 36), found.row(n).to_vec()), &expected, 10.0);
        }
    }

    #[test]
    fn a_convolution_is_linear_in_its_images() {
        let (mut rng, window) = (rng(10), window(2, 8, 3, 1, 1));
        let [x, y] = [(); 2].map(|()| random::<f64>(&mut rng, 3, window.image_cells()));
        let filters = random::<f64>(&mut rng, 4, window.kernel_cells());
        let of = |x: &Dense<f64>| convolve(x, &filters, &window, Stop::NEVER);
        let both = build(3, window.image_cells(), |i, j| 2.0 * x.row(i)[j] - y.row(i)[j]);
        let (left, right) = (of(&x), of(&y));
        let columns = left.shape().columns;
        let expected = build(3, columns, |i, j| 2.0 * left.row(i)[j] - right.row(i)[j]);
        assert_close(&of(&both), &expected, 100.0);
    }

    #[test]
    fn the_bits_of_an_image_depend_on_nothing_else() {
        let mut rng = rng(11);
        let window = Window { image: Sides { height: 120, width: 90 }, ..window(4, 1, 5, 1, 2) };
        let images = random::<f32>(&mut rng, 9, window.image_cells());
        let filters = random::<f32>(&mut rng, 40, window.kernel_cells());
        same_bits(|| convolve(&images, &filters, &window, Stop::NEVER).cells().to_vec());
        let all = convolve(&images, &filters, &window, Stop::NEVER);
        for n in 0..9 {
            let one = convolve(&images.rows(n..n + 1), &filters, &window, Stop::NEVER);
            assert_eq!(one.cells(), all.row(n), "image {n}");
        }
    }

    #[test]
    fn a_convolution_that_is_asked_to_stop_is_left_undone() {
        let asked = std::sync::atomic::AtomicBool::new(true);
        let window = window(1, 8, 3, 1, 0);
        let images = random::<f64>(&mut rng(12), 4, 64);
        let filters = random::<f64>(&mut rng(13), 2, 9);
        let found = convolve(&images, &filters, &window, Stop::once(&asked));
        assert!(found.cells().iter().all(|&cell| cell == 0.0));
    }
}
