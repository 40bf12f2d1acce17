//! Convolution and pooling on a device: a window that moves over images, each of which is a row.
//!
//! Enters: images, filters and a window. Leaves: the rows that the host would make. Not here: batch and layer norm, softmax and what else
//! networks are made of, which are loops and reductions.
//!
//! ```text
//! filters  f x c·kh·kw  ─┐ tiles in shared memory     results of n images: f x n·places, each written
//! patches  c·kh·kw x n·places, never made as a whole   where its image has it
//! ```
//!
//! A convolution is a product whose right factor is read out of the images as it is needed: patches as a whole would be kh·kw times as
//! large as they are. It is computed in the type of its cells, whatever products may be computed in. Pooling has the bits of the host.

use super::loops::THREADS;
use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::kernels::images::{Pooling, Window};
use crate::gpu::{Argument, Work};
use crate::matrix::{Element, Shape};

pub(super) const TEXT: &str = include_str!("../../../kernels/images.cu");

/// So many filters, or fewer, have a kernel of their own: the other one computes no fewer than [`MANY`], wanted or not.
const FEW: usize = 16;

/// Results of a block of either kernel, in `f64` and `f32`.
const TILE: usize = 16 * THREADS;
const LARGE_TILE: usize = 64 * THREADS;

/// Filters of a block that has many of them.
const MANY: usize = 64;

/// Pixels along an image, with its padding, or along a window at most: a kernel has them in 32 bits, with a sign.
const SIDE_MAX: usize = 1 << 30;

impl Queue<'_> {
    pub(super) fn convolve(
        &self,
        window: &Window,
        images: &Matrix,
        filters: &Matrix,
    ) -> Result<Matrix, Failed> {
        let element = images.element.common(filters.element);
        let (images, filters) = (self.cast(images, element)?, self.cast(filters, element)?);
        let fits = images.shape.columns == window.image_cells()
            && filters.shape.columns == window.kernel_cells();
        let sides = sides(window).filter(|_| fits).ok_or_else(unfit)?;
        let (count, filter_count) = (images.shape.rows, filters.shape.rows);
        let places = window.places().area();
        let out = self.empty(Shape::new(count, filter_count * places), element)?;
        if out.is_empty() {
            return Ok(out);
        }
        let (entry, at_once, tile) = match (filter_count <= FEW, element) {
            (true, Element::Float64) => ("convolve_few_f64", FEW, TILE),
            (true, Element::Float32) => ("convolve_few_f32", FEW, TILE),
            (false, Element::Float64) => ("convolve_f64", MANY, TILE),
            (false, Element::Float32) => ("convolve_f32", MANY, LARGE_TILE),
        };
        let tiles = (count * places).div_ceil(tile / at_once) * filter_count.div_ceil(at_once);
        let buffers = [&out, &images, &filters].map(|matrix| Argument::Buffer(&matrix.buffer));
        let counts = [count, filter_count, window.channels].map(|n| Argument::U64(n as u64));
        let arguments = [buffers.as_slice(), &counts, &sides].concat();
        self.launch(TEXT, entry, Work::Threads((tiles * THREADS) as u64), &arguments)?;
        Ok(out)
    }

    pub(super) fn pool(
        &self,
        pooling: Pooling,
        window: &Window,
        images: &Matrix,
    ) -> Result<Matrix, Failed> {
        let fits = images.shape.columns == window.image_cells();
        let sides = sides(window).filter(|_| fits).ok_or_else(unfit)?;
        let planes = images.shape.rows * window.channels;
        let places = window.places().area();
        let shape = Shape::new(images.shape.rows, window.channels * places);
        let out = self.empty(shape, images.element)?;
        if out.is_empty() {
            return Ok(out);
        }
        let (entry, nothing) = match (pooling, images.element) {
            (Pooling::Max, Element::Float64) => ("pool_max_f64", f64::NEG_INFINITY),
            (Pooling::Max, Element::Float32) => ("pool_max_f32", f64::NEG_INFINITY),
            (Pooling::Mean, Element::Float64) => ("pool_mean_f64", 0.0),
            (Pooling::Mean, Element::Float32) => ("pool_mean_f32", 0.0),
        };
        let buffers = [&out, images].map(|matrix| Argument::Buffer(&matrix.buffer));
        let area = Argument::F64(window.kernel.area() as f64);
        let counts = [Argument::U64(planes as u64), Argument::F64(nothing), area];
        let arguments = [buffers.as_slice(), &counts, &sides].concat();
        self.launch(TEXT, entry, Work::Threads(shape.cells() as u64), &arguments)?;
        Ok(out)
    }
}

/// A window as kernels read it; none of one that is too large for them.
fn sides(window: &Window) -> Option<[Argument<'static>; 9]> {
    let Window { image, kernel, stride, padding, .. } = *window;
    let places = window.places();
    let sides = [
        image.height,
        image.width,
        kernel.height,
        kernel.width,
        stride.height,
        stride.width,
        padding,
        places.height,
        places.width,
    ];
    let padded = image.height.max(image.width) + 2 * padding;
    let largest = sides.into_iter().fold(padded, usize::max);
    (largest <= SIDE_MAX).then(|| sides.map(|side| Argument::U32(side as u32)))
}

fn unfit() -> Failed {
    Failed::Unfit("images, or a window, of sizes that do not fit".into())
}
