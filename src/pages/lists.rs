//! The rows of a column of lists of numbers: where each list begins, and its elements.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{ArrayRef, FixedSizeListArray, LargeListArray, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType, FieldRef};

use super::column::{Column, Pages, array_of, spread, too_few};
use super::flaw::{Checked, Flaw};
use super::page::{DataPage, Definitions};
use super::values::Stored;

/// A column of lists of numbers.
pub(super) struct Lists<S: Stored> {
    pages: Pages<S>,
    /// The definition level from which on a list has an element.
    element: u8,
    data_type: DataType,
    page: Option<DataPage<S>>,
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
struct Batch<C> {
    /// Where each begins, counted in elements.
    starts: Vec<usize>,
    lists: NullBufferBuilder,
    numbers: Vec<C>,
    elements: NullBufferBuilder,
}

impl<S: Stored> Lists<S> {
    /// The lists in these pages; they have elements from this definition level on.
    pub(super) fn new(pages: Pages<S>, element: u8, data_type: DataType) -> Self {
        Self { pages, element, data_type, page: None, at: 0, row: 0, elements: 0 }
    }

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
    fn take(&mut self, span: &Span, batch: &mut Batch<S::Cell>) -> Checked<()> {
        let page = self.page.as_mut().expect("a span is one of the page");
        let (base, first) = (batch.numbers.len(), span.levels.start);
        let starts = &page.starts[span.rows.clone()];
        let Definitions::Each(levels) = &page.definitions else {
            batch.starts.extend(starts.iter().map(|&start| base + start as usize - first));
            batch.lists.append_n_non_nulls(starts.len());
            batch.elements.append_n_non_nulls(span.levels.len());
            let dictionary = self.pages.dictionary();
            return page.take(span.levels.len(), dictionary, &mut batch.numbers);
        };
        let present = self.pages.present();
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
        page.take(there, self.pages.dictionary(), &mut batch.numbers)?;
        spread(&mut batch.numbers, base, is_there.len(), |i| is_there[i]);
        is_there.iter().for_each(|&is_there| batch.elements.append(is_there));
        Ok(())
    }
}

impl<S: Stored> Column for Lists<S> {
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<ArrayRef> {
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
        let lists = lists_of(&self.data_type, batch)?;
        match chosen {
            None => Ok(lists),
            Some(chosen) => Ok(take(&lists, &UInt32Array::from(chosen.to_vec()), None)?),
        }
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

impl<S: Stored> Lists<S> {
    fn pass(&mut self, span: &Span) -> Checked<()> {
        let present = self.pages.present();
        let page = self.page.as_mut().expect("a span is one of the page");
        let there = match &page.definitions {
            Definitions::All => span.levels.len(),
            Definitions::Each(levels) => {
                levels[span.levels.clone()].iter().filter(|&&level| level == present).count()
            }
        };
        page.skip(there)
    }
}

/// An array of lists; `batch.starts` ends with the number of all elements.
fn lists_of<C: ArrowNativeType>(data_type: &DataType, mut batch: Batch<C>) -> Checked<ArrayRef> {
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
fn of_one_size<C: ArrowNativeType>(
    starts: &[usize],
    numbers: Vec<C>,
    elements: Option<NullBuffer>,
    lists: Option<&NullBuffer>,
    width: usize,
) -> Checked<(Vec<C>, Option<NullBuffer>)> {
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
            padded.resize(padded.len() + width, C::default());
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
