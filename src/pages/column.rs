//! The rows of one column of a row group, read or passed over from its first page to its last.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::types::{Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type};
use arrow::array::{
    ArrayData, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, FieldRef};
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::flaw::{Checked, Flaw};
use super::layout::Layout;
use super::page::{DataPage, Definitions, Depths, Lane, lanes};

/// The rows of one column of a row group.
pub(super) trait Column: Send {
    /// The next rows.
    ///
    /// # Errors
    /// Where there are fewer, or the file is not what its footer says.
    fn read(&mut self, rows: usize) -> Checked<ArrayRef>;

    /// Passes over rows, and over whole pages without looking at them.
    ///
    /// # Errors
    /// As for [`Column::read`].
    fn skip(&mut self, rows: usize) -> Checked<()>;
}

/// The column of this layout in a row group. Whoever shares the `file` must not read it meanwhile.
///
/// # Errors
/// Where the footer says what cannot be.
pub(super) fn column(
    file: &Arc<File>,
    metadata: &Arc<ParquetMetaData>,
    group: usize,
    layout: &Layout,
) -> Checked<Box<dyn Column>> {
    let chunk = Chunk {
        file: Arc::clone(file),
        metadata: Arc::clone(metadata),
        group,
        leaf: layout.leaf,
        depths: layout.depths,
    };
    match chunk.physical() {
        Physical::INT32 | Physical::FLOAT => of_lanes::<u32>(chunk, layout),
        Physical::INT64 | Physical::DOUBLE => of_lanes::<u64>(chunk, layout),
        other => Err(Flaw::new(format!("{other} is no number"))),
    }
}

fn of_lanes<L: Lane + ArrowNativeType>(chunk: Chunk, layout: &Layout) -> Checked<Box<dyn Column>> {
    let data_type = layout.field.data_type().clone();
    let pages = Pages::<L>::new(chunk)?;
    Ok(match layout.depths.element {
        None => Box::new(Flat { pages, data_type, page: None, at: 0 }),
        Some(element) => {
            Box::new(Lists { pages, element, data_type, page: None, at: 0, row: 0, elements: 0 })
        }
    })
}

/// Where the pages of a column are.
struct Chunk {
    file: Arc<File>,
    metadata: Arc<ParquetMetaData>,
    group: usize,
    leaf: usize,
    depths: Depths,
}

impl Chunk {
    fn physical(&self) -> Physical {
        self.metadata.row_group(self.group).column(self.leaf).column_type()
    }

    /// A reader of its pages, from the first one on.
    fn reader(&self) -> Checked<SerializedPageReader<File>> {
        let group = self.metadata.row_group(self.group);
        let rows = usize::try_from(group.num_rows()).map_err(Flaw::new)?;
        let pages = self.metadata.offset_index().and_then(|index| index.get(self.group));
        let pages = pages.and_then(|columns| columns.get(self.leaf));
        let pages = pages.map(|pages| pages.page_locations().clone()).filter(|all| !all.is_empty());
        let file = Arc::clone(&self.file);
        Ok(SerializedPageReader::new(file, group.column(self.leaf), rows, pages)?)
    }
}

/// The pages of a column, with the dictionary that they refer to.
struct Pages<L> {
    chunk: Chunk,
    reader: SerializedPageReader<File>,
    dictionary: Vec<L>,
    /// Levels of the column that are not seen yet, at most.
    left: usize,
}

impl<L: Lane> Pages<L> {
    fn new(chunk: Chunk) -> Checked<Self> {
        let values = chunk.metadata.row_group(chunk.group).column(chunk.leaf).num_values();
        let left = usize::try_from(values).map_err(Flaw::new)?;
        Ok(Self { reader: chunk.reader()?, chunk, dictionary: Vec::new(), left })
    }

    /// The next data page; `None` after the last.
    fn next(&mut self) -> Checked<Option<DataPage<L>>> {
        loop {
            match self.reader.get_next_page()? {
                None => return Ok(None),
                Some(page @ Page::DictionaryPage { .. }) => self.dictionary = dictionary(&page),
                Some(page) => {
                    let page = DataPage::open(page, self.chunk.depths, self.left)?;
                    self.left -= page.count;
                    self.provide_dictionary(&page)?;
                    return Ok(Some(page));
                }
            }
        }
    }

    /// Lets the dictionary go where a page does without, and reads it again where a later one needs it:
    /// most writers give it up for the rest of the column, and it is as large as a page.
    fn provide_dictionary(&mut self, page: &DataPage<L>) -> Checked<()> {
        if !page.values.are_indices() {
            self.dictionary = Vec::new();
        } else if self.dictionary.is_empty()
            && let Some(first @ Page::DictionaryPage { .. }) =
                self.chunk.reader()?.get_next_page()?
        {
            self.dictionary = dictionary(&first);
        }
        Ok(())
    }

    /// Rows of the next data page, where that is told without looking at them.
    fn rows_of_next(&mut self) -> Checked<Option<usize>> {
        loop {
            match self.reader.peek_next_page()? {
                None => return Ok(None),
                Some(page) if page.is_dict => {
                    if let Some(page) = self.reader.get_next_page()? {
                        self.dictionary = dictionary(&page);
                    }
                }
                Some(page) => {
                    let is_flat = self.chunk.depths.element.is_none();
                    return Ok(page.num_rows.or(page.num_levels.filter(|_| is_flat)));
                }
            }
        }
    }

    /// Passes over the next data page.
    fn skip_next(&mut self) -> Checked<()> {
        Ok(self.reader.skip_next_page()?)
    }
}

fn dictionary<L: Lane>(page: &Page) -> Vec<L> {
    lanes(page.buffer()).collect()
}

/// A column of numbers.
struct Flat<L> {
    pages: Pages<L>,
    data_type: DataType,
    page: Option<DataPage<L>>,
    /// Levels of the page that are done.
    at: usize,
}

impl<L: Lane> Flat<L> {
    /// The page that the next row is in, and that row's place.
    fn page(&mut self) -> Checked<(&mut DataPage<L>, &mut usize, &[L])> {
        while self.page.as_ref().is_none_or(|page| page.count == self.at) {
            self.page = None;
            self.page = Some(self.pages.next()?.ok_or_else(too_few)?);
            self.at = 0;
        }
        let page = self.page.as_mut().expect("a page was opened above");
        Ok((page, &mut self.at, &self.pages.dictionary))
    }
}

impl<L: Lane + ArrowNativeType> Column for Flat<L> {
    fn read(&mut self, rows: usize) -> Checked<ArrayRef> {
        let present = self.pages.chunk.depths.present;
        let mut numbers = Vec::with_capacity(rows);
        let mut nulls = NullBufferBuilder::new(rows);
        while numbers.len() < rows {
            let first = numbers.len();
            let (page, at, dictionary) = self.page()?;
            let here = (rows - first).min(page.count - *at);
            match &page.definitions {
                Definitions::All => {
                    page.values.take(here, dictionary, &mut numbers)?;
                    nulls.append_n_non_nulls(here);
                }
                Definitions::Each(levels) => {
                    let levels = &levels[*at..*at + here];
                    let there = levels.iter().filter(|&&level| level == present).count();
                    page.values.take(there, dictionary, &mut numbers)?;
                    spread(&mut numbers, first, here, |i| levels[i] == present);
                    levels.iter().for_each(|&level| nulls.append(level == present));
                }
            }
            *at += here;
        }
        array_of(&self.data_type, numbers, nulls.finish())
    }

    fn skip(&mut self, mut rows: usize) -> Checked<()> {
        let present = self.pages.chunk.depths.present;
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
            let (page, at, _) = self.page()?;
            let here = rows.min(page.count - *at);
            let there = match &page.definitions {
                Definitions::All => here,
                Definitions::Each(levels) => {
                    levels[*at..*at + here].iter().filter(|&&level| level == present).count()
                }
            };
            page.values.skip(there)?;
            *at += here;
            rows -= here;
        }
        Ok(())
    }
}

/// A column of lists of numbers.
struct Lists<L> {
    pages: Pages<L>,
    /// The definition level from which on a list has an element.
    element: u8,
    data_type: DataType,
    page: Option<DataPage<L>>,
    /// Levels of the page that are done.
    at: usize,
    /// Rows of the page that have begun.
    row: usize,
    /// Elements of the batch before: room for as many is made at once.
    elements: usize,
}

/// Levels of a page, and the rows that begin among them.
struct Span {
    levels: Range<usize>,
    rows: Range<usize>,
}

/// Lists as they are put together.
struct Batch<L> {
    /// Where each begins, counted in elements.
    starts: Vec<usize>,
    lists: NullBufferBuilder,
    numbers: Vec<L>,
    elements: NullBufferBuilder,
}

impl<L: Lane> Lists<L> {
    /// The next levels that belong to the first `rows` rows, of which `begun` have begun; `None` where the
    /// next row is another, or there is none. A row may go on in the next page.
    fn span(&mut self, begun: usize, rows: usize) -> Checked<Option<Span>> {
        while self.page.as_ref().is_none_or(|page| page.count == self.at) {
            self.page = None;
            let Some(page) = self.pages.next()? else { return Ok(None) };
            (self.page, self.at, self.row) = (Some(page), 0, 0);
        }
        let page = self.page.as_ref().expect("a page was opened above");
        let end_row = page.starts.len().min(self.row + rows - begun);
        let end = page.starts.get(end_row).map_or(page.count, |&start| start as usize);
        if end == self.at {
            return Ok(None);
        }
        if begun == 0 && page.starts.get(self.row).is_none_or(|&start| start as usize > self.at) {
            return Err(Flaw::new("it begins within a list"));
        }
        let span = Span { levels: self.at..end, rows: self.row..end_row };
        (self.at, self.row) = (end, end_row);
        Ok(Some(span))
    }

    /// Appends the lists of a span.
    fn take(&mut self, span: &Span, batch: &mut Batch<L>) -> Checked<()> {
        let page = self.page.as_mut().expect("a span is one of the page");
        let (base, first) = (batch.numbers.len(), span.levels.start);
        let starts = &page.starts[span.rows.clone()];
        let Definitions::Each(levels) = &page.definitions else {
            batch.starts.extend(starts.iter().map(|&start| base + start as usize - first));
            batch.lists.append_n_non_nulls(starts.len());
            batch.elements.append_n_non_nulls(span.levels.len());
            let dictionary = &self.pages.dictionary;
            return page.values.take(span.levels.len(), dictionary, &mut batch.numbers);
        };
        let present = self.pages.chunk.depths.present;
        let mut starts = starts.iter().map(|&start| start as usize).peekable();
        let mut is_there = Vec::with_capacity(span.levels.len());
        for at in span.levels.clone() {
            let level = levels[at];
            if starts.next_if_eq(&at).is_some() {
                batch.starts.push(base + is_there.len());
                // One level below that of an element is that of an empty list, what is less is NULL.
                batch.lists.append(level + 1 >= self.element);
            } else if level < self.element {
                return Err(Flaw::new("a list goes on without an element"));
            }
            if level >= self.element {
                is_there.push(level == present);
            }
        }
        let there = is_there.iter().filter(|&&is_there| is_there).count();
        page.values.take(there, &self.pages.dictionary, &mut batch.numbers)?;
        spread(&mut batch.numbers, base, is_there.len(), |i| is_there[i]);
        is_there.iter().for_each(|&is_there| batch.elements.append(is_there));
        Ok(())
    }
}

impl<L: Lane + ArrowNativeType> Column for Lists<L> {
    fn read(&mut self, rows: usize) -> Checked<ArrayRef> {
        let mut batch = Batch {
            starts: Vec::with_capacity(rows + 1),
            lists: NullBufferBuilder::new(rows),
            numbers: Vec::with_capacity(self.elements),
            elements: NullBufferBuilder::new(self.elements),
        };
        while let Some(span) = self.span(batch.starts.len(), rows)? {
            self.take(&span, &mut batch)?;
        }
        if batch.starts.len() < rows {
            return Err(too_few());
        }
        self.elements = batch.numbers.len();
        batch.starts.push(batch.numbers.len());
        lists_of(&self.data_type, batch)
    }

    fn skip(&mut self, rows: usize) -> Checked<()> {
        if rows == 0 {
            return Ok(());
        }
        let mut begun = 0;
        while begun < rows {
            let is_between = self.page.as_ref().is_none_or(|page| page.count == self.at);
            if is_between
                && let Some(next) = self.pages.rows_of_next()?
                && next <= rows - begun
            {
                self.pages.skip_next()?;
                self.page = None;
                begun += next;
                continue;
            }
            let Some(span) = self.span(begun, rows)? else { return Err(too_few()) };
            begun += span.rows.len();
            self.pass(&span)?;
        }
        // The last row may go on.
        while let Some(span) = self.span(rows, rows)? {
            self.pass(&span)?;
        }
        Ok(())
    }
}

impl<L: Lane> Lists<L> {
    fn pass(&mut self, span: &Span) -> Checked<()> {
        let present = self.pages.chunk.depths.present;
        let page = self.page.as_mut().expect("a span is one of the page");
        let there = match &page.definitions {
            Definitions::All => span.levels.len(),
            Definitions::Each(levels) => {
                levels[span.levels.clone()].iter().filter(|&&level| level == present).count()
            }
        };
        page.values.skip(there)
    }
}

/// Moves the numbers from `first` on, which lie together, to those of the next `count` places that have
/// one.
fn spread<L: Lane>(
    numbers: &mut Vec<L>,
    first: usize,
    count: usize,
    is_there: impl Fn(usize) -> bool,
) {
    let mut from = numbers.len();
    numbers.resize(first + count, L::default());
    // From the last on, so that none is overwritten before it has moved.
    for i in (0..count).rev() {
        numbers[first + i] = match is_there(i) {
            true => {
                from -= 1;
                numbers[from]
            }
            false => L::default(),
        };
    }
}

/// An array of numbers from their bits.
fn array_of<L: ArrowNativeType>(
    data_type: &DataType,
    numbers: Vec<L>,
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

/// An array of lists; `batch.starts` ends with the number of all elements.
fn lists_of<L: Lane + ArrowNativeType>(
    data_type: &DataType,
    mut batch: Batch<L>,
) -> Checked<ArrayRef> {
    let (lists, elements) = (batch.lists.finish(), batch.elements.finish());
    let numbers = |field: &FieldRef, numbers, nulls| array_of(field.data_type(), numbers, nulls);
    Ok(match data_type {
        DataType::FixedSizeList(field, size) => {
            let width = usize::try_from(*size).map_err(Flaw::new)?;
            let (of_one_size, elements) =
                of_one_size(&batch.starts, batch.numbers, elements, lists.as_ref(), width)?;
            let numbers = numbers(field, of_one_size, elements)?;
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *size, numbers, lists)?)
        }
        DataType::LargeList(field) => {
            let numbers = numbers(field, batch.numbers, elements)?;
            let starts: Vec<i64> = batch.starts.into_iter().map(|start| start as i64).collect();
            let starts = OffsetBuffer::new(ScalarBuffer::from(starts));
            Arc::new(LargeListArray::try_new(Arc::clone(field), starts, numbers, lists)?)
        }
        DataType::List(field) => {
            if i32::try_from(batch.numbers.len()).is_err() {
                return Err(Flaw::new("the lists of a batch have more than 2³¹ elements"));
            }
            let numbers = numbers(field, batch.numbers, elements)?;
            let starts: Vec<i32> = batch.starts.into_iter().map(|start| start as i32).collect();
            let starts = OffsetBuffer::new(ScalarBuffer::from(starts));
            Arc::new(ListArray::try_new(Arc::clone(field), starts, numbers, lists)?)
        }
        other => return Err(Flaw::new(format!("{other} is no list"))),
    })
}

/// The elements of lists that are all of one size; those of a list that is NULL are made up.
fn of_one_size<L: Lane>(
    starts: &[usize],
    numbers: Vec<L>,
    elements: Option<NullBuffer>,
    lists: Option<&NullBuffer>,
    width: usize,
) -> Checked<(Vec<L>, Option<NullBuffer>)> {
    let is_null = |row: usize| lists.is_some_and(|lists| lists.is_null(row));
    for (row, range) in starts.windows(2).enumerate() {
        let size = range[1] - range[0];
        if size != width && !(size == 0 && is_null(row)) {
            return Err(Flaw::new(format!("a list of {size} among lists of {width}")));
        }
    }
    if lists.is_none_or(|lists| lists.null_count() == 0) {
        return Ok((numbers, elements));
    }
    let rows = starts.len() - 1;
    let mut padded = Vec::with_capacity(rows * width);
    let mut nulls = NullBufferBuilder::new(rows * width);
    for (row, range) in starts.windows(2).enumerate() {
        if is_null(row) {
            padded.resize(padded.len() + width, L::default());
            nulls.append_n_nulls(width);
            continue;
        }
        padded.extend_from_slice(&numbers[range[0]..range[1]]);
        match &elements {
            Some(elements) => (range[0]..range[1]).for_each(|i| nulls.append(elements.is_valid(i))),
            None => nulls.append_n_non_nulls(width),
        }
    }
    Ok((padded, nulls.finish()))
}

fn too_few() -> Flaw {
    Flaw::new("it ends before the rows of its row group")
}
