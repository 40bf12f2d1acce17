//! Functions of images: `conv2d`, `max_pool2d` and `avg_pool2d`, whose options become a [`Window`].
//!
//! A row of `x` is an image, and a row of `w` a filter: channel by channel, and each of them row by row.
//!
//! ```text
//! conv2d(x, w)    channels => 1    stride => 1         height, width: of a square, unless given
//! *_pool2d(x)     channels => 1    stride => kernel    kernel_height, kernel_width: of a square filter
//! bias => b       + kron(b, ones(1, places)): a number for each filter, added at all its places
//! ```
//!
//! Sizes that are not given follow from the widths of `x` and `w`, which are known before the window is.

use sqlparser::ast::Expr;

use super::bind::{Arguments, Binder};
use super::graph::NodeId;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::images::{Pooling, Sides, Window};
use crate::exec::operation::{Axis, Operation as Op};
use crate::matrix::Shape;
use crate::sql::{place_of, place_of_name};

/// What can be said about any window, each a whole number.
const SIZES: [&str; 8] =
    ["channels", "height", "width", "kernel", "kernel_height", "kernel_width", "stride", "padding"];

/// The sizes that were given.
#[derive(Default)]
struct Given {
    channels: Option<usize>,
    /// Height and width.
    image: [Option<usize>; 2],
    kernel: [Option<usize>; 2],
    stride: Option<usize>,
    padding: Option<usize>,
}

impl Binder<'_> {
    /// `conv2d(x, w)`, with `bias` as an addition of its own, which shares the loop of what follows.
    ///
    /// # Errors
    /// Rows that are no images or filters of the window, and a window that does not fit.
    pub(super) fn convolution(&mut self, call: &Arguments<'_>) -> Result<NodeId> {
        let ([x, w], given, bias) = self.images(call, ["x", "w"], Some("bias"))?;
        let (images, filters) = (self.wide(x)?, self.wide(w)?);
        let channels = given.channels.unwrap_or(1);
        let image = image(call, images, &given)?;
        let kernel = sides(filters.columns, channels, given.kernel).ok_or_else(|| {
            let said = said("kernel_height", "kernel_width", channels, given.kernel);
            let message = format!("the rows of w ({filters}) are no {said}, over x ({images})");
            Error::argument(&call.function, message)
        })?;
        let stride = Sides::square(given.stride.unwrap_or(1));
        let padding = given.padding.unwrap_or(0);
        let window = Window { channels, image, kernel, stride, padding };
        let count = self.known_size(w, Axis::Rows)?;
        let places = fitted(call, &window, count)?;
        let convolved = self.graph.add(Op::Convolve(window), [x, w], call.place)?;
        match bias {
            Some(bias) => self.biased(call, convolved, w, bias, places),
            None => Ok(convolved),
        }
    }

    /// `max_pool2d(x)` or `avg_pool2d(x)`.
    ///
    /// # Errors
    /// Rows that are no images, and a window that does not fit, or that would see nothing but padding.
    pub(super) fn pooling(&mut self, call: &Arguments<'_>, pooling: Pooling) -> Result<NodeId> {
        let ([x], given, _) = self.images(call, ["x"], None)?;
        let images = self.wide(x)?;
        let channels = given.channels.unwrap_or(1);
        let image = image(call, images, &given)?;
        let [Some(height), Some(width)] = given.kernel else {
            let message = "needs kernel => n, or kernel_height => n and kernel_width => n";
            return Err(Error::argument(&call.function, message));
        };
        let kernel = Sides { height, width };
        let stride = given.stride.map_or(kernel, Sides::square);
        let padding = given.padding.unwrap_or(0);
        if padding > height.min(width) / 2 {
            let message = format!("padding => {padding} is more than half a kernel of {kernel}");
            return Err(Error::argument(&call.function, message));
        }
        let window = Window { channels, image, kernel, stride, padding };
        fitted(call, &window, channels)?;
        self.graph.add(Op::Pool(pooling, window), [x], call.place)
    }

    /// The arguments of a call: matrices by position, sizes by name, and one matrix more by name.
    fn images<'e, const N: usize>(
        &mut self,
        call: &Arguments<'e>,
        inputs: [&str; N],
        more: Option<&str>,
    ) -> Result<([NodeId; N], Given, Option<&'e Expr>)> {
        let usage = || {
            let more = more.map(|name| format!("[, {name} => b]")).unwrap_or_default();
            let sizes = SIZES.map(|name| format!("[, {name} => n]")).concat();
            let message = format!("takes ({}{more}{sizes})", inputs.join(", "));
            Error::argument(&call.function, message)
        };
        let expressions: [&Expr; N] = call.positional[..].try_into().map_err(|_| usage())?;
        let (mut given, mut kernel, mut other) = (Given::default(), None, None);
        for &(name, expr) in &call.named {
            let option = name.value.to_ascii_lowercase();
            let slot = match option.as_str() {
                "channels" => &mut given.channels,
                "height" => &mut given.image[0],
                "width" => &mut given.image[1],
                "kernel" => &mut kernel,
                "kernel_height" => &mut given.kernel[0],
                "kernel_width" => &mut given.kernel[1],
                "stride" => &mut given.stride,
                "padding" => &mut given.padding,
                option if more == Some(option) => {
                    other = Some(expr);
                    continue;
                }
                _ => return Err(usage().at(place_of_name(name))),
            };
            let size = self.count(expr, &option)?;
            if size == 0 && option != "padding" {
                let message = "0 is not a whole number from 1 on";
                return Err(Error::argument(option, message).at(place_of(expr)));
            }
            *slot = Some(size);
        }
        given.kernel = given.kernel.map(|side| side.or(kernel));
        let mut nodes = Vec::with_capacity(N);
        for expr in expressions {
            nodes.push(self.expression(expr)?);
        }
        Ok((nodes.try_into().expect("one node for each of N expressions"), given, other))
    }

    /// The shape of a node whose columns must be known.
    fn wide(&mut self, node: NodeId) -> Result<Shape> {
        self.known_size(node, Axis::Columns)?;
        Ok(self.graph.node(node).shape())
    }

    /// The convolution with a number for each filter added at all its places.
    fn biased(
        &mut self,
        call: &Arguments<'_>,
        convolved: NodeId,
        filters: NodeId,
        bias: &Expr,
        places: usize,
    ) -> Result<NodeId> {
        let given = self.expression(bias)?;
        let column = self.column(call, given)?;
        let count = self.known_size(filters, Axis::Rows)?;
        if self.known_size(column, Axis::Rows)? != count {
            let [left, right] = [filters, given].map(|node| self.graph.node(node).shape());
            let operation = call.function.clone();
            let needs = "a bias for each filter";
            return Err(
                Error::from(ErrorKind::Shapes { operation, needs, left, right }).at(place_of(bias))
            );
        }
        let mut row = column;
        // A single number stretches by itself.
        if count != 1 {
            let one = self.graph.constant(1.0);
            let ones = self.graph.add(Op::Full(Shape::new(1, places)), [one], call.place)?;
            let ones = self.cast(ones, self.graph.node(column).element, call.place)?;
            row = self.graph.add(Op::Transpose, [column], call.place)?;
            row = self.graph.add(Op::Kronecker, [row, ones], call.place)?;
        }
        self.binary(BinaryFunction::Add, convolved, row, call.place)
    }
}

/// The sides of an image, given or of a square.
fn image(call: &Arguments<'_>, images: Shape, given: &Given) -> Result<Sides> {
    let channels = given.channels.unwrap_or(1);
    sides(images.columns, channels, given.image).ok_or_else(|| {
        let said = said("height", "width", channels, given.image);
        Error::argument(&call.function, format!("the rows of x ({images}) are no {said}"))
    })
}

/// The sides of a rectangle that fills a row of so many channels: the one that is not given follows, and
/// where none is it is a square.
fn sides(columns: usize, channels: usize, given: [Option<usize>; 2]) -> Option<Sides> {
    let area = columns / channels;
    let (height, width) = match given {
        [Some(height), Some(width)] => (height, width),
        [Some(height), None] => (height, area / height),
        [None, Some(width)] => (area / width, width),
        [None, None] => (area.isqrt(), area.isqrt()),
    };
    let cells = height.checked_mul(width).and_then(|area| area.checked_mul(channels));
    (columns > 0 && cells == Some(columns)).then_some(Sides { height, width })
}

/// What a row should have been, by what was said of it.
fn said(height: &str, width: &str, channels: usize, given: [Option<usize>; 2]) -> String {
    let sides = [height, width].into_iter().zip(given);
    let sides = sides.filter_map(|(name, side)| Some(format!(", {name} => {}", side?)));
    match given {
        [None, None] => {
            format!("squares with channels => {channels}; give channels, {height} or {width}")
        }
        _ => format!("rectangles with channels => {channels}{}", sides.collect::<String>()),
    }
}

/// The places of a window, where it has some and so many results of each are columns.
fn fitted(call: &Arguments<'_>, window: &Window, results: usize) -> Result<usize> {
    let Window { image, kernel, padding, .. } = window;
    let places = window.places().area();
    if places == 0 {
        let message = format!(
            "a kernel of {kernel} does not fit images of {image} with padding => {padding}"
        );
        return Err(Error::argument(&call.function, message));
    }
    // Areas saturate, so that what is beyond all memory is refused here.
    if places.checked_mul(results).is_none_or(|columns| columns > isize::MAX as usize) {
        let message = format!("{} places of {results} results are too many", window.places());
        return Err(Error::argument(&call.function, message));
    }
    Ok(places)
}
