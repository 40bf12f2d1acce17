//! The rows of one column of a row group, read or passed over from its first page to its last.

use std::fs::File;
use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::types::{Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type};
use arrow::array::{ArrayData, ArrayRef, AsArray, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::flaw::{Checked, Flaw};
use super::layout::Layout;
use super::lists::Lists;
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
        Some(element) => Box::new(Lists::new(pages, element, data_type)),
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
pub(super) struct Pages<L> {
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

    /// The definition level of a number that is there.
    pub(super) fn present(&self) -> u8 {
        self.chunk.depths.present
    }

    /// The dictionary of the page that was read last.
    pub(super) fn dictionary(&self) -> &[L] {
        &self.dictionary
    }

    /// The next data page; `None` after the last.
    pub(super) fn next(&mut self) -> Checked<Option<DataPage<L>>> {
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
    pub(super) fn rows_of_next(&mut self) -> Checked<Option<usize>> {
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
    pub(super) fn skip_next(&mut self) -> Checked<()> {
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
        let present = self.pages.present();
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
        let present = self.pages.present();
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

/// Moves the numbers from `first` on, which lie together, to those of the next `count` places that have
/// one.
pub(super) fn spread<L: Lane>(
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
pub(super) fn array_of<L: ArrowNativeType>(
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

pub(super) fn too_few() -> Flaw {
    Flaw::new("it ends before the rows of its row group")
}
