//! The rows of one column of a row group, read or passed over from its first page to its last.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::types::{Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type};
use arrow::array::{ArrayData, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use parquet::basic::Type as Physical;
use parquet::file::metadata::ColumnChunkMetaData;

use super::chunk::{Chunk, PageBytes};
use super::flaw::{Checked, Flaw};
use super::header::Kind;
use super::layout::Layout;
use super::lists::Lists;
use super::page::{DataPage, Definitions, Form};
use super::texts::Texts;
use super::values::{
    Binary, Bits32, Bits64, Dictionary, Digits, Digits32, Digits64, Stored, Truth, Utf8,
};

/// Rows of a column for each value of its dictionary, at least, where these are few: to look at all of them then takes a quarter of
/// the time that the rows take, at most.
const ROWS_OF_VALUE_MIN: usize = 4;

/// The rows of one column of a row group.
pub(super) trait Column: Send {
    /// The next rows, or of them those at places that are chosen, in ascending order.
    ///
    /// # Errors
    /// Where there are fewer, or the file is not what its footer says.
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<ArrayRef>;

    /// As [`Column::read`], but texts that are of one dictionary of few values, and of no more than `most`, by their places there, for
    /// whoever decides by its values.
    ///
    /// # Errors
    /// As for [`Column::read`].
    fn read_codes(
        &mut self,
        rows: usize,
        chosen: Option<&[u32]>,
        _most: usize,
    ) -> Checked<ArrayRef> {
        self.read(rows, chosen)
    }

    /// Passes over rows, and over whole pages without looking at them.
    ///
    /// # Errors
    /// As for [`Column::read`].
    fn skip(&mut self, rows: usize) -> Checked<()>;
}

/// The column of this layout in a row group.
///
/// # Errors
/// Where the footer says what cannot be.
pub(super) fn column(
    chunk: Chunk,
    metadata: &ColumnChunkMetaData,
    layout: &Layout,
) -> Checked<Box<dyn Column>> {
    let data_type = layout.field.data_type();
    let count = usize::try_from(metadata.num_values()).map_err(Flaw::new)?;
    match (metadata.column_type(), data_type) {
        (Physical::INT32, DataType::Decimal128(..)) if layout.is_encoded => {
            numbers(Pages::<Bits32>::new(chunk, count, layout.form), &DataType::Int32)
        }
        (Physical::INT64, DataType::Decimal128(..)) if layout.is_encoded => {
            numbers(Pages::<Bits64>::new(chunk, count, layout.form), &DataType::Int64)
        }
        (Physical::INT32, DataType::Decimal128(..)) => {
            numbers(Pages::<Digits32>::new(chunk, count, layout.form), data_type)
        }
        (Physical::INT64, DataType::Decimal128(..)) => {
            numbers(Pages::<Digits64>::new(chunk, count, layout.form), data_type)
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, DataType::Decimal128(..)) => {
            numbers(Pages::<Digits>::new(chunk, count, layout.form), data_type)
        }
        (Physical::INT32 | Physical::FLOAT, _) => {
            bits(Pages::<Bits32>::new(chunk, count, layout.form), data_type)
        }
        (Physical::INT64 | Physical::DOUBLE, _) => {
            bits(Pages::<Bits64>::new(chunk, count, layout.form), data_type)
        }
        (Physical::BOOLEAN, DataType::Boolean) => {
            let pages = Pages::<Truth>::new(chunk, count, layout.form);
            Ok(Box::new(Truths(Rows::new(pages))))
        }
        (Physical::BYTE_ARRAY, DataType::Utf8View) => {
            texts(Pages::<Utf8>::new(chunk, count, layout.form), data_type)
        }
        (Physical::BYTE_ARRAY, DataType::BinaryView) => {
            texts(Pages::<Binary>::new(chunk, count, layout.form), data_type)
        }
        (other, _) => Err(Flaw::new(format!("{other} is none of {data_type}"))),
    }
}

fn numbers<S: Stored>(pages: Pages<S>, data_type: &DataType) -> Checked<Box<dyn Column>> {
    Ok(Box::new(Numbers { rows: Rows::new(pages), data_type: data_type.clone() }))
}

fn bits<S: Stored>(pages: Pages<S>, data_type: &DataType) -> Checked<Box<dyn Column>> {
    match pages.form.element {
        None => numbers(pages, data_type),
        Some(element) => Ok(Box::new(Lists::new(pages, element, data_type.clone()))),
    }
}

fn texts<S: Stored<Cell = u128>>(
    pages: Pages<S>,
    data_type: &DataType,
) -> Checked<Box<dyn Column>> {
    Ok(Box::new(Texts::new(Rows::new(pages), data_type.clone())))
}

/// The pages of a column, with the dictionary that they refer to.
pub(super) struct Pages<S: Stored> {
    chunk: Chunk,
    form: Form,
    dictionary: Dictionary<S>,
    /// Levels of the column, and those that are not seen yet, at most.
    count: usize,
    left: usize,
}

impl<S: Stored> Pages<S> {
    fn new(chunk: Chunk, count: usize, form: Form) -> Self {
        Self { chunk, form, dictionary: Dictionary::none(), count, left: count }
    }

    /// The definition level of a value that is there.
    pub(super) fn present(&self) -> u8 {
        self.form.present
    }

    /// The dictionary of the page that was read last.
    pub(super) fn dictionary(&self) -> &Dictionary<S> {
        &self.dictionary
    }

    /// The next data page; `None` after the last.
    pub(super) fn next(&mut self) -> Checked<Option<DataPage<S>>> {
        loop {
            let Some((header, bytes)) = self.chunk.next()? else { return Ok(None) };
            match header.kind {
                Kind::Dictionary => self.learn(bytes)?,
                Kind::Data { .. } | Kind::DataV2 { .. } | Kind::Other => {
                    let page = DataPage::open(&header, bytes, self.form, self.left)?;
                    self.left -= page.count;
                    self.provide_dictionary(&page)?;
                    return Ok(Some(page));
                }
            }
        }
    }

    fn learn(&mut self, page: PageBytes) -> Checked<()> {
        self.dictionary = Dictionary::new(page, self.form.value_bytes)?;
        Ok(())
    }

    /// Lets the dictionary go where a page does without, and reads it again where a later one needs it:
    /// most writers give it up for the rest of the column, and it is as large as a page.
    fn provide_dictionary(&mut self, page: &DataPage<S>) -> Checked<()> {
        if !page.has_indices() {
            self.dictionary = Dictionary::none();
        } else if self.dictionary.len() == 0
            && let Some((header, bytes)) = self.chunk.first()?
            && header.kind == Kind::Dictionary
        {
            self.learn(bytes)?;
        }
        Ok(())
    }

    /// Rows of the next data page, where that is told without looking at them.
    pub(super) fn rows_of_next(&mut self) -> Checked<Option<usize>> {
        loop {
            match self.chunk.peek()?.map(|header| header.kind) {
                None | Some(Kind::Other) => return Ok(None),
                Some(Kind::Data { levels, .. }) => {
                    return Ok(self.form.element.is_none().then_some(levels));
                }
                Some(Kind::DataV2 { rows, .. }) => return Ok(Some(rows)),
                Some(Kind::Dictionary) => {
                    if let Some((_, bytes)) = self.chunk.next()? {
                        self.learn(bytes)?;
                    }
                }
            }
        }
    }

    /// Passes over the next data page.
    pub(super) fn skip_next(&mut self) -> Checked<()> {
        self.chunk.skip()
    }
}

/// The rows of a column that is no list: of each row one level.
pub(super) struct Rows<S: Stored> {
    pages: Pages<S>,
    page: Option<DataPage<S>>,
    /// Levels of the page that are done.
    at: usize,
}

/// Cells, and which of them are NULL.
type Read<C> = (Vec<C>, Option<NullBuffer>);

/// Rows that are read: all of the next, or some of them.
pub(super) struct Window<'a, C> {
    rows: usize,
    /// Rows that are done.
    done: usize,
    /// The places of those that are asked for, where not all are.
    chosen: Option<&'a [u32]>,
    pub(super) cells: Vec<C>,
    nulls: NullBufferBuilder,
}

impl<'a, C: Copy + Default> Window<'a, C> {
    pub(super) fn new(rows: usize, chosen: Option<&'a [u32]>) -> Self {
        let count = chosen.map_or(rows, <[u32]>::len);
        let (cells, nulls) = (Vec::with_capacity(count), NullBufferBuilder::new(count));
        Self { rows, done: 0, chosen, cells, nulls }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done == self.rows
    }

    /// How many rows are not done, and which of them are asked for.
    pub(super) fn left(&self) -> (usize, Option<Vec<u32>>) {
        let chosen = self.chosen_of_next(self.rows - self.done);
        let done = self.done as u32;
        (self.rows - self.done, chosen.map(|of| of.iter().map(|place| place - done).collect()))
    }

    /// The cells, and which of them are NULL.
    pub(super) fn finish(mut self) -> Read<C> {
        (self.cells, self.nulls.finish())
    }

    /// Those of the next rows that are asked for; none where all are.
    fn chosen_of_next(&self, count: usize) -> Option<&'a [u32]> {
        let chosen = self.chosen?;
        let place = |row: usize| chosen.partition_point(|&place| (place as usize) < row);
        Some(&chosen[place(self.done)..place(self.done + count)])
    }

    /// Reads those of the next rows that are in this page, of which `at` levels are done, and says how many those are;
    /// `take` appends its next values, or those of them that are chosen, by places from another on.
    fn step<S: Stored>(
        &mut self,
        page: &mut DataPage<S>,
        at: usize,
        take: impl FnOnce(&mut DataPage<S>, usize, Option<(&[u32], usize)>, &mut Vec<C>) -> Checked<()>,
    ) -> Checked<usize> {
        let here = (self.rows - self.done).min(page.count - at);
        let chosen = self.chosen_of_next(here);
        let cells = &mut self.cells;
        match &page.definitions {
            Definitions::All => {
                take(page, here, chosen.map(|chosen| (chosen, self.done)), cells)?;
                self.nulls.append_n_non_nulls(chosen.map_or(here, <[u32]>::len));
            }
            Definitions::Each(_) => {
                let is_there = page.are_there(at..at + here);
                let there = is_there.iter().filter(|&&is_there| is_there).count();
                let first = cells.len();
                take(page, there, None, cells)?;
                spread(cells, first, here, |i| is_there[i]);
                match chosen {
                    None => is_there.iter().for_each(|&is_there| self.nulls.append(is_there)),
                    Some(chosen) => {
                        for (at, &place) in chosen.iter().enumerate() {
                            let place = place as usize - self.done;
                            cells[first + at] = cells[first + place];
                            self.nulls.append(is_there[place]);
                        }
                        cells.truncate(first + chosen.len());
                    }
                }
            }
        }
        self.done += here;
        Ok(here)
    }
}

impl<S: Stored> Rows<S> {
    pub(super) fn new(pages: Pages<S>) -> Self {
        Self { pages, page: None, at: 0 }
    }

    /// Opens the page that the next row is in.
    fn open(&mut self) -> Checked<()> {
        while self.page.as_ref().is_none_or(|page| page.count == self.at) {
            self.page = None;
            self.page = Some(self.pages.next()?.ok_or_else(too_few)?);
            self.at = 0;
        }
        Ok(())
    }

    /// The dictionary of the page that the next row is in, where it has one of few values, and of no more than `most`.
    pub(super) fn dictionary(&mut self, most: usize) -> Checked<Option<&mut Dictionary<S>>> {
        self.open()?;
        let has_indices = self.page.as_ref().is_some_and(DataPage::has_indices);
        let Pages { dictionary, count, .. } = &mut self.pages;
        let has_few = dictionary.len() <= (*count / ROWS_OF_VALUE_MIN).min(most);
        Ok((has_indices && has_few).then_some(dictionary))
    }

    /// Reads those of the next rows that are in one page.
    pub(super) fn step(&mut self, window: &mut Window<'_, S::Cell>) -> Checked<()> {
        self.open()?;
        let page = self.page.as_mut().expect("a page was opened above");
        let dictionary = &self.pages.dictionary;
        self.at += window.step(page, self.at, |page, count, chosen, cells| match chosen {
            None => page.take(count, dictionary, cells),
            Some(chosen) => page.take_chosen(count, chosen, dictionary, cells),
        })?;
        Ok(())
    }

    /// As [`Rows::step`], by their places in its dictionary.
    pub(super) fn step_codes(&mut self, window: &mut Window<'_, u32>) -> Checked<()> {
        self.open()?;
        let page = self.page.as_mut().expect("a page was opened above");
        let most = self.pages.dictionary.len();
        self.at += window.step(page, self.at, |page, count, chosen, codes| {
            page.take_indices(count, chosen, most, codes)
        })?;
        Ok(())
    }

    /// The next rows, or those of them that are chosen: their cells, and which of them are NULL.
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<Read<S::Cell>> {
        let mut window = Window::new(rows, chosen);
        while !window.is_done() {
            self.step(&mut window)?;
        }
        Ok(window.finish())
    }

    pub(super) fn skip(&mut self, mut rows: usize) -> Checked<()> {
        while rows > 0 {
            let is_between = self.page.as_ref().is_none_or(|page| page.count == self.at);
            if is_between
                && let Some(next) = self.pages.rows_of_next()?
                && next <= rows
            {
                self.pages.skip_next()?;
                rows -= next;
                continue;
            }
            self.open()?;
            let page = self.page.as_mut().expect("a page was opened above");
            let here = rows.min(page.count - self.at);
            let there = match &page.definitions {
                Definitions::All => here,
                Definitions::Each(_) => {
                    let is_there = page.are_there(self.at..self.at + here);
                    is_there.into_iter().filter(|&is_there| is_there).count()
                }
            };
            page.skip(there)?;
            self.at += here;
            rows -= here;
        }
        Ok(())
    }

    /// The bytes that the texts are in which were read last.
    pub(super) fn texts(&mut self) -> Option<Buffer> {
        let page = self.page.as_mut()?;
        Some(match page.has_indices() {
            true => self.pages.dictionary.share_bytes(),
            false => page.share_bytes(),
        })
    }
}

/// A column of numbers.
struct Numbers<S: Stored> {
    rows: Rows<S>,
    data_type: DataType,
}

impl<S: Stored> Column for Numbers<S> {
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<ArrayRef> {
        let (cells, nulls) = self.rows.read(rows, chosen)?;
        array_of(&self.data_type, cells, nulls)
    }

    fn skip(&mut self, rows: usize) -> Checked<()> {
        self.rows.skip(rows)
    }
}

/// A column of truths.
struct Truths(Rows<Truth>);

impl Column for Truths {
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<ArrayRef> {
        let (cells, nulls) = self.0.read(rows, chosen)?;
        let truths = BooleanBuffer::collect_bool(cells.len(), |at| cells[at] != 0);
        Ok(Arc::new(BooleanArray::new(truths, nulls)))
    }

    fn skip(&mut self, rows: usize) -> Checked<()> {
        self.0.skip(rows)
    }
}

/// Moves the cells from `first` on, which lie together, to those of the next `count` places that have one.
pub(super) fn spread<C: Copy + Default>(
    cells: &mut Vec<C>,
    first: usize,
    count: usize,
    is_there: impl Fn(usize) -> bool,
) {
    let mut from = cells.len();
    cells.resize(first + count, C::default());
    // From the last on, so that none is overwritten before it has moved.
    for i in (0..count).rev() {
        cells[first + i] = match is_there(i) {
            true => {
                from -= 1;
                cells[from]
            }
            false => C::default(),
        };
    }
}

/// An array of numbers from their bits.
pub(super) fn array_of<C: ArrowNativeType>(
    data_type: &DataType,
    numbers: Vec<C>,
    nulls: Option<NullBuffer>,
) -> Checked<ArrayRef> {
    let stored = match data_type {
        DataType::Int8 | DataType::Int16 => &DataType::Int32,
        DataType::UInt8 | DataType::UInt16 => &DataType::UInt32,
        other => other,
    };
    let data = ArrayData::builder(stored.clone()).len(numbers.len()).nulls(nulls);
    let array = make_array(data.add_buffer(Buffer::from_vec(numbers)).build()?);
    // Numbers of fewer bits are stored in 32, of which the lowest count.
    let (signed, unsigned) =
        (|| array.as_primitive::<Int32Type>(), || array.as_primitive::<UInt32Type>());
    Ok(match data_type {
        DataType::Int8 => Arc::new(signed().unary::<_, Int8Type>(|number| number as i8)),
        DataType::Int16 => Arc::new(signed().unary::<_, Int16Type>(|number| number as i16)),
        DataType::UInt8 => Arc::new(unsigned().unary::<_, UInt8Type>(|number| number as u8)),
        DataType::UInt16 => Arc::new(unsigned().unary::<_, UInt16Type>(|number| number as u16)),
        _ => array,
    })
}

pub(super) fn too_few() -> Flaw {
    Flaw::new("it ends before the rows of its row group")
}
