//! Pooling: the largest or the mean pixel of each channel that the window shows.
//!
//! Rows that a window shows are combined first, column by column, and their result across: of a window of
//! kh·kw pixels kh·w + kw·places operations for each row of places, the first of them as vectors.

use rayon::prelude::*;

use super::super::{Real, Stop, dense};
use super::Window;
use crate::matrix::{CellBuffer, Dense, Shape};

/// Pixels that are worth a task.
const TASK_CELLS: usize = 1 << 14;

/// What becomes of the pixels that a window shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pooling {
    /// The largest; padding never is, and `NaN` always.
    Max,
    /// The mean of all pixels of the window, of which those in the padding are 0.
    Mean,
}

/// Pools each channel of each image by itself.
///
/// - Shapes: n images of c·h·w cells; the result n x c·(places).
///
/// # Panics
/// Where images are not of the window's size.
pub fn pool<T: Real>(
    images: &Dense<T>,
    pooling: Pooling,
    window: &Window,
    stop: Stop<'_>,
) -> Dense<T> {
    let columns = window.channels * window.places().area();
    let shape = Shape::new(images.shape().rows, columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    pool_into(images, pooling, window, &mut cells, stop);
    dense(shape, cells)
}

/// The same for a block of images, into memory of the caller, shared with threads that have nothing to do.
///
/// # Panics
/// Where images are not of the window's size, or `out` is not as long as the result.
pub fn pool_into<T: Real>(
    images: &Dense<T>,
    pooling: Pooling,
    window: &Window,
    out: &mut [T],
    stop: Stop<'_>,
) {
    match pooling {
        Pooling::Max => {
            let larger = |a: T, b: T| if b > a || b.is_nan() { b } else { a };
            combined(images, window, -T::INFINITY, larger, |most| most, out, stop);
        }
        Pooling::Mean => {
            let count = T::from_f64(window.kernel.area() as f64);
            combined(images, window, T::ZERO, |a, b| a + b, |sum| sum / count, out, stop);
        }
    }
}

fn combined<T: Real>(
    images: &Dense<T>,
    window: &Window,
    nothing: T,
    combine: impl Fn(T, T) -> T + Sync,
    finish: impl Fn(T) -> T + Sync,
    out: &mut [T],
    stop: Stop<'_>,
) {
    let Window { channels, image, kernel, stride, padding } = *window;
    let places = window.places();
    assert_eq!(images.shape().columns, window.image_cells(), "images of the window's size");
    assert_eq!(out.len(), images.shape().rows * channels * places.area(), "a row for each image");
    if out.is_empty() {
        return;
    }
    // What lies on the image, of the pixels that a place shows.
    let clipped = |place: usize, stride: usize, kernel: usize, size: usize| {
        let first = place * stride;
        let end = (first + kernel).saturating_sub(padding).min(size);
        first.saturating_sub(padding).min(end)..end
    };
    let row_cells = image.width * kernel.height.min(image.height) + places.width;
    let rows = out.par_chunks_mut(places.width).with_min_len(TASK_CELLS / row_cells + 1);
    rows.enumerate().for_each_init(
        || vec![nothing; image.width],
        |line, (row, out)| {
            if stop.is_asked() {
                return;
            }
            // Channels follow one another as the images do.
            let plane = &images.cells()[row / places.height * image.area()..][..image.area()];
            line.fill(nothing);
            for i in clipped(row % places.height, stride.height, kernel.height, image.height) {
                let pixels = &plane[i * image.width..(i + 1) * image.width];
                line.iter_mut().zip(pixels).for_each(|(all, &pixel)| *all = combine(*all, pixel));
            }
            for (j, out) in out.iter_mut().enumerate() {
                let shown = &line[clipped(j, stride.width, kernel.width, image.width)];
                *out = finish(shown.iter().fold(nothing, |all, &pixel| combine(all, pixel)));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::{Sides, convolve, testing};
    use super::*;

    fn naive<T: Real>(images: &Dense<T>, pooling: Pooling, window: &Window) -> Dense<T> {
        let (places, kernel) = (window.places(), window.kernel);
        build(images.shape().rows, window.channels * places.area(), |n, column| {
            let (c, place) = (column / places.area(), column % places.area());
            let place = (place / places.width, place % places.width);
            let image: Vec<f64> = images.row(n).iter().map(|cell| cell.to_f64()).collect();
            let offsets = (0..kernel.height).flat_map(|u| (0..kernel.width).map(move |v| (u, v)));
            let pixels = offsets.filter_map(|at| testing::pixel(window, &image, c, place, at));
            T::from_f64(match pooling {
                Pooling::Max => pixels.fold(f64::NEG_INFINITY, f64::max),
                Pooling::Mean => pixels.sum::<f64>() / kernel.area() as f64,
            })
        })
    }

    fn matches<T: Real>() {
        for seed in 0..300 {
            let mut rng = rng(seed);
            let window = testing::window(&mut rng);
            let images = random::<T>(&mut rng, (seed % 4) as usize, window.image_cells());
            for pooling in [Pooling::Max, Pooling::Mean] {
                let found = pool(&images, pooling, &window, Stop::NEVER);
                assert_close(&found, &naive(&images, pooling, &window), 10.0);
            }
        }
    }

    #[test]
    fn pooling_is_that_of_the_definition() {
        matches::<f64>();
        matches::<f32>();
    }

    #[test]
    fn a_mean_is_a_convolution_with_equal_cells() {
        let mut rng = rng(1);
        for _ in 0..20 {
            let window = Window { channels: 1, ..testing::window(&mut rng) };
            let images = random::<f64>(&mut rng, 3, window.image_cells());
            let area = window.kernel_cells();
            let filter = build(1, area, |_, _| 1.0 / area as f64);
            let expected = convolve(&images, &filter, &window, Stop::NEVER);
            assert_close(&pool(&images, Pooling::Mean, &window, Stop::NEVER), &expected, 10.0);
        }
    }

    #[test]
    fn the_largest_of_equal_pixels_is_that_pixel_also_beside_padding() {
        let mut rng = rng(2);
        for _ in 0..20 {
            let window = testing::window(&mut rng);
            let images = build(2, window.image_cells(), |_, _| -3.0);
            let found = pool(&images, Pooling::Max, &window, Stop::NEVER);
            assert!(found.cells().iter().all(|&cell| cell == -3.0));
        }
    }

    #[test]
    fn a_nan_is_seen_through_every_window_that_shows_it() {
        let [image, kernel, stride] = [Sides::square(3), Sides::square(2), Sides::square(1)];
        let window = Window { channels: 1, image, kernel, stride, padding: 0 };
        let mut cells = vec![1.0; 9];
        cells[2] = f64::NAN;
        let images = dense(Shape::new(1, 9), cells);
        for pooling in [Pooling::Max, Pooling::Mean] {
            let found = pool(&images, pooling, &window, Stop::NEVER);
            assert_eq!(
                found.cells().iter().map(|x| x.is_nan()).collect::<Vec<_>>(),
                [false, true, false, false]
            );
        }
    }

    #[test]
    fn the_bits_of_pooling_do_not_depend_on_threads() {
        let [image, kernel] = [Sides::square(200), Sides::square(3)];
        let window = Window { channels: 3, image, kernel, stride: kernel, padding: 1 };
        let images = random::<f32>(&mut rng(3), 4, window.image_cells());
        same_bits(|| pool(&images, Pooling::Mean, &window, Stop::NEVER).cells().to_vec());
    }
}
