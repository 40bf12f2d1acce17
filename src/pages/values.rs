//! What the values of a column are: how each lies in a file, and the cell of an array that it becomes.

use std::ops::Range;

use arrow::array::{ArrayRef, make_view};
use arrow::buffer::Buffer;
use arrow::datatypes::ArrowNativeType;

use super::chunk::PageBytes;
use super::flaw::{Checked, Flaw};

/// Bytes of a text that its view holds whole.
const VIEW_BYTES: u32 = 12;

/// How values of one kind are stored.
pub(super) trait Stored: Send + Sync + 'static {
    type Cell: ArrowNativeType + Send + Sync;

    /// Bytes of a value.
    const BYTES: usize;

    /// Whether they are numbers, which have encodings of their own.
    const ARE_NUMBERS: bool = true;

    /// Whether they may be runs of zeros and ones.
    const MAY_BE_RUNS: bool = false;

    /// The cell of a value: of as many bytes as it has, the lowest first.
    fn cell(bytes: &[u8]) -> Self::Cell;

    /// The cells of the values in a part of a page that follow one another, each of so many bytes where that is left open;
    /// `None` where each can be found by itself, by the width of its type.
    ///
    /// # Errors
    /// Where they are not what they should be.
    fn cells(
        _page: &[u8],
        _part: Range<usize>,
        _value_bytes: usize,
    ) -> Checked<Option<Vec<Self::Cell>>> {
        Ok(None)
    }
}

/// The values that indices name.
pub(super) struct Dictionary<S: Stored> {
    page: PageBytes,
    /// Where values have no width.
    cells: Option<Vec<S::Cell>>,
    /// Its values, where somebody has asked for them.
    array: Option<ArrayRef>,
}

impl<S: Stored> Dictionary<S> {
    pub(super) fn none() -> Self {
        Self { page: PageBytes::none(), cells: None, array: None }
    }

    /// # Errors
    /// As for [`Stored::cells`].
    pub(super) fn new(page: PageBytes, value_bytes: usize) -> Checked<Self> {
        let cells = S::cells(&page, 0..page.len(), value_bytes)?;
        Ok(Self { page, cells, array: None })
    }

    pub(super) fn len(&self) -> usize {
        self.cells.as_ref().map_or(self.page.len() / S::BYTES, Vec::len)
    }

    pub(super) fn cells(&self) -> Option<&[S::Cell]> {
        self.cells.as_deref()
    }

    /// The values one after another, where they have a width.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.page
    }

    /// Its bytes, which others have from now on as well.
    pub(super) fn share_bytes(&mut self) -> Buffer {
        self.page.share()
    }

    /// The array of its cells and its bytes, which is made once.
    pub(super) fn array(&mut self, make: impl FnOnce(&[S::Cell], Buffer) -> ArrayRef) -> &ArrayRef {
        let cells = self.cells.as_deref().unwrap_or_default();
        self.array.get_or_insert_with(|| make(cells, self.page.share()))
    }
}

/// The lowest bytes of a number.
fn lowest<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    bytes.first_chunk().copied().unwrap_or([0; BYTES])
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $stored:ty => $cell:ty),*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Stored for $name {
            type Cell = $cell;
            const BYTES: usize = size_of::<$stored>();

            #[inline]
            fn cell(bytes: &[u8]) -> $cell {
                <$cell>::from(<$stored>::from_le_bytes(lowest(bytes)))
            }
        }
    )*};
}

numbers! {
    /// Bits, whatever they mean.
    Bits32: u32 => u32,
    /// Bits, whatever they mean.
    Bits64: u64 => u64,
    /// Digits of a decimal.
    Digits32: i32 => i128,
    /// Digits of a decimal.
    Digits64: i64 => i128
}

/// Digits of a decimal in as many bytes as its precision needs, the highest first.
pub(super) struct Digits;

impl Stored for Digits {
    type Cell = i128;
    const BYTES: usize = size_of::<i128>();
    const ARE_NUMBERS: bool = false;

    fn cell(bytes: &[u8]) -> i128 {
        let sign = if bytes.first().is_some_and(|&first| first >= 0x80) { -1 } else { 0 };
        bytes.iter().fold(sign, |digits, &byte| digits << 8 | i128::from(byte))
    }

    fn cells(page: &[u8], part: Range<usize>, value_bytes: usize) -> Checked<Option<Vec<i128>>> {
        match value_bytes {
            1..=16 => Ok(Some(page[part].chunks_exact(value_bytes).map(Self::cell).collect())),
            _ => Err(Flaw::new(format!("decimals of {value_bytes} bytes"))),
        }
    }
}

/// One where it is true, else zero.
pub(super) struct Truth;

impl Stored for Truth {
    type Cell = u8;
    const BYTES: usize = 1;
    const ARE_NUMBERS: bool = false;
    const MAY_BE_RUNS: bool = true;

    fn cell(bytes: &[u8]) -> u8 {
        u8::from_le_bytes(lowest(bytes))
    }

    /// One bit for each, the lowest first.
    fn cells(page: &[u8], part: Range<usize>, _: usize) -> Checked<Option<Vec<u8>>> {
        let bits = |byte: &u8| {
            (0..8).map({
                let byte = *byte;
                move |bit| byte >> bit & 1
            })
        };
        Ok(Some(page[part].iter().flat_map(bits).collect()))
    }
}

/// Texts, as views of the first buffer.
pub(super) struct Utf8;

/// Bytes, as views of the first buffer.
pub(super) struct Binary;

impl Stored for Utf8 {
    type Cell = u128;
    const BYTES: usize = size_of::<u128>();
    const ARE_NUMBERS: bool = false;

    fn cell(bytes: &[u8]) -> u128 {
        u128::from_le_bytes(lowest(bytes))
    }

    fn cells(page: &[u8], part: Range<usize>, _: usize) -> Checked<Option<Vec<u128>>> {
        let is_ascii = page[part.clone()].is_ascii();
        let mut is_text = true;
        let views = views(page, part, |text| {
            is_text &= is_ascii || std::str::from_utf8(text).is_ok();
        })?;
        match is_text {
            true => Ok(Some(views)),
            false => Err(Flaw::new("a text that is not UTF-8")),
        }
    }
}

impl Stored for Binary {
    type Cell = u128;
    const BYTES: usize = size_of::<u128>();
    const ARE_NUMBERS: bool = false;

    fn cell(bytes: &[u8]) -> u128 {
        u128::from_le_bytes(lowest(bytes))
    }

    fn cells(page: &[u8], part: Range<usize>, _: usize) -> Checked<Option<Vec<u128>>> {
        views(page, part, |_| ()).map(Some)
    }
}

/// Views of texts that follow one another, each after four bytes that tell its length.
fn views(page: &[u8], part: Range<usize>, mut each: impl FnMut(&[u8])) -> Checked<Vec<u128>> {
    let page = &page[..part.end];
    let mut at = part.start;
    let mut views = Vec::new();
    while at < page.len() {
        let text = page[at..].split_first_chunk().and_then(|(length, rest)| {
            rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
        });
        let text = text.ok_or_else(|| Flaw::new("a page ends within a text"))?;
        each(text);
        at += size_of::<u32>();
        let offset = u32::try_from(at).map_err(Flaw::new)?;
        views.push(make_view(text, 0, offset));
        at += text.len();
    }
    Ok(views)
}

/// Whether a view's text lies in a buffer.
pub(super) fn is_long(view: u128) -> bool {
    view as u32 > VIEW_BYTES
}

/// The view of a text in this buffer that was one of the first.
pub(super) fn in_buffer(view: u128, buffer: u32) -> u128 {
    if is_long(view) { view + (u128::from(buffer) << 64) } else { view }
}
