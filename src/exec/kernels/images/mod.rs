//! Images in the rows of a matrix, and windows that move over them.
//!
//! A row is one image: channel after channel, each row by row, as `reshape(n, c·h·w)` makes it of what
//! others call NCHW. The result has a row for each image in the same order of cells, where the places
//! of the window are its pixels.
//!
//! ```text
//!  padding 0 0 0 0 0 0        kernel 3x3, stride 1
//!          0 a b c d 0        place (0, 0) reads  0 0 0
//!          0 e f g h 0                            0 a b
//!          0 0 0 0 0 0                            0 e f
//! ```
//!
//! The result of an image depends on that image alone: not on its neighbours in a block, nor on threads.

mod convolve;
mod pool;

use std::fmt;
use std::ops::Range;

pub use convolve::{convolve, convolve_into};
pub use pool::{Pooling, pool, pool_into};

/// A window and the images it moves over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Channels of an image.
    pub channels: usize,
    /// Pixels of a channel.
    pub image: Sides,
    /// Pixels of one channel that the window shows.
    pub kernel: Sides,
    /// Pixels from one place to the next.
    pub stride: Sides,
    /// Pixels around an image, on each of its sides, that the window may show too.
    pub padding: usize,
}

/// Pixels down and across.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sides {
    /// Down.
    pub height: usize,
    /// Across.
    pub width: usize,
}

impl Sides {
    /// Equally many both ways.
    pub fn square(side: usize) -> Self {
        Self { height: side, width: side }
    }

    /// All pixels.
    pub fn area(self) -> usize {
        self.height.saturating_mul(self.width)
    }
}

impl Window {
    /// How many places the window takes, down and across; none where it does not fit.
    pub fn places(&self) -> Sides {
        let along = |image: usize, kernel: usize, stride: usize| {
            let free = (image + 2 * self.padding).checked_sub(kernel);
            free.map_or(0, |free| free / stride + 1)
        };
        Sides {
            height: along(self.image.height, self.kernel.height, self.stride.height),
            width: along(self.image.width, self.kernel.width, self.stride.width),
        }
    }

    /// Cells of an image, its columns.
    pub fn image_cells(&self) -> usize {
        self.channels.saturating_mul(self.image.area())
    }

    /// Cells that the window shows, of all channels: the columns of a filter.
    pub fn kernel_cells(&self) -> usize {
        self.channels.saturating_mul(self.kernel.area())
    }
}

/// The places, of so many, at which a pixel of the window lies on an image of this size.
fn inside(
    offset: usize,
    padding: usize,
    size: usize,
    stride: usize,
    places: usize,
) -> Range<usize> {
    let end = (size + padding).saturating_sub(offset).div_ceil(stride).min(places);
    let start = padding.saturating_sub(offset).div_ceil(stride).min(end);
    start..end
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { channels, image, kernel, stride, padding } = self;
        write!(f, "{channels}x{image} kernel={kernel} stride={stride} padding={padding}")
    }
}

#[cfg(test)]
mod testing {
    //! Windows of every kind, and what a naive twin reads.

    use rand::Rng;
    use rand::rngs::SmallRng;

    use super::{Sides, Window};

    /// A window that fits its image.
    pub(super) fn window(rng: &mut SmallRng) -> Window {
        loop {
            let mut sides = |most: usize| Sides {
                height: rng.random_range(1..=most),
                width: rng.random_range(1..=most),
            };
            let (image, kernel, stride) = (sides(9), sides(4), sides(3));
            let channels = rng.random_range(1..=3);
            let padding = rng.random_range(0..=kernel.height.min(kernel.width) / 2);
            let window = Window { channels, image, kernel, stride, padding };
            if window.places().area() > 0 {
                return window;
            }
        }
    }

    /// The pixel that a place of the window shows; `None` in the padding.
    pub(super) fn pixel(
        window: &Window,
        image: &[f64],
        channel: usize,
        place: (usize, usize),
        offset: (usize, usize),
    ) -> Option<f64> {
        let along = |place: usize, stride: usize, offset: usize, size: usize| {
            let at = (place * stride + offset).checked_sub(window.padding)?;
            (at < size).then_some(at)
        };
        let Sides { height, width } = window.image;
        let i = along(place.0, window.stride.height, offset.0, height)?;
        let j = along(place.1, window.stride.width, offset.1, width)?;
        Some(image[(channel * height + i) * width + j])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_every_place_it_fits() {
        let window = |image, kernel, stride, padding| Window {
            channels: 1,
            image: Sides::square(image),
            kernel: Sides::square(kernel),
            stride: Sides::square(stride),
            padding,
        };
        let sides =
            [(8, 3, 1, 0, 6), (8, 3, 1, 1, 8), (8, 2, 2, 0, 4), (7, 2, 2, 0, 3), (2, 3, 1, 0, 0)];
        for (image, kernel, stride, padding, expected) in sides {
            assert_eq!(window(image, kernel, stride, padding).places(), Sides::square(expected));
        }
        assert_eq!(window(8, 3, 1, 1).to_string(), "1x8x8 kernel=3x3 stride=1x1 padding=1");
    }

    #[test]
    fn places_inside_an_image_are_those_of_the_definition() {
        for (offset, padding, size, stride, places) in (0..4).flat_map(|offset| {
            (0..6).flat_map(move |padding| {
                (1..5).flat_map(move |size| {
                    (1..4).flat_map(move |stride| {
                        (0..7).map(move |n| (offset, padding, size, stride, n))
                    })
                })
            })
        }) {
            let lies = |&place: &usize| {
                (place * stride + offset).checked_sub(padding).is_some_and(|at| at < size)
            };
            let expected: Vec<usize> = (0..places).filter(lies).collect();
            let found: Vec<usize> = inside(offset, padding, size, stride, places).collect();
            assert_eq!(found, expected, "{offset} {padding} {size} {stride} {places}");
        }
    }
}
