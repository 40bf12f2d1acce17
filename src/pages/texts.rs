//! The rows of a column of texts, as views of the pages that they are in, or as codes: their places in a dictionary.
//!
//! The views were checked when they were made, once for each page: Arrow would do so again for each batch.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, DictionaryArray, StringViewArray, UInt8Array,
    UInt32Array,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::concat;
use arrow::datatypes::{DataType, UInt32Type};

use super::column::{Column, Rows, Window};
use super::flaw::{Checked, Flaw};
use super::values::{Stored, in_buffer, is_long};
use crate::steps::decoded;

/// Values that codes of a byte tell apart.
pub(super) const CODES_MAX: usize = 1 << u8::BITS;

/// A column of texts, or of other bytes.
pub(super) struct Texts<S: Stored> {
    rows: Rows<S>,
    data_type: DataType,
}

impl<S: Stored<Cell = u128>> Texts<S> {
    pub(super) fn new(rows: Rows<S>, data_type: DataType) -> Self {
        Self { rows, data_type }
    }
}

impl<S: Stored<Cell = u128>> Column for Texts<S> {
    fn read(&mut self, rows: usize, chosen: Option<&[u32]>) -> Checked<ArrayRef> {
        let mut window = Window::new(rows, chosen);
        let mut buffers: Vec<Buffer> = Vec::new();
        while !window.is_done() {
            let first = window.cells.len();
            self.rows.step(&mut window)?;
            let views = &mut window.cells[first..];
            // Short texts are within their views, and need no page.
            if !views.iter().any(|&view| is_long(view)) {
                continue;
            }
            let texts = self.rows.texts().unwrap_or_default();
            let is_known = |known: &Buffer| known.as_ptr() == texts.as_ptr();
            let buffer = buffers.iter().position(is_known).unwrap_or_else(|| {
                buffers.push(texts.clone());
                buffers.len() - 1
            });
            let buffer = u32::try_from(buffer).map_err(Flaw::new)?;
            if buffer > 0 {
                views.iter_mut().for_each(|view| *view = in_buffer(*view, buffer));
            }
        }
        let (views, nulls) = window.finish();
        let texts = array(&self.data_type, views, buffers, nulls);
        Ok(if chosen.is_some() { compact(&texts) } else { texts })
    }

    fn read_codes(
        &mut self,
        rows: usize,
        chosen: Option<&[u32]>,
        most: usize,
    ) -> Checked<ArrayRef> {
        let mut window = Window::new(rows, chosen);
        let mut values: Option<ArrayRef> = None;
        while !window.is_done()
            && let Some(dictionary) = self.rows.dictionary(most)?
        {
            let of_page = dictionary.array(|views, bytes| {
                let buffers =
                    if views.iter().any(|&view| is_long(view)) { vec![bytes] } else { vec![] };
                array(&self.data_type, views.to_vec(), buffers, None)
            });
            if !Arc::ptr_eq(values.get_or_insert_with(|| Arc::clone(of_page)), of_page) {
                break;
            }
            self.rows.step_codes(&mut window)?;
        }
        let Some(values) = values else { return self.read(rows, chosen) };
        let (left, chosen_of_left) = window.left();
        let (codes, nulls) = window.finish();
        let codes = UInt32Array::new(codes.into(), nulls);
        // SAFETY: `page` takes no index that is beyond its dictionary, and NULL is none.
        let codes = unsafe { DictionaryArray::new_unchecked(codes, values) };
        if left == 0 {
            return Ok(Arc::new(codes));
        }
        // The writer has given its dictionary up within these rows.
        let others = self.read(left, chosen_of_left.as_deref())?;
        Ok(concat(&[&*decoded(&codes)?, &*others])?)
    }

    fn skip(&mut self, rows: usize) -> Checked<()> {
        self.rows.skip(rows)
    }
}

/// The same codes in a byte each, of no more values than that holds.
pub(super) fn short_codes(codes: &DictionaryArray<UInt32Type>) -> Checked<ArrayRef> {
    if codes.values().len() > CODES_MAX {
        return Err(Flaw::new("more values than there are codes"));
    }
    let keys = codes.keys();
    let short = keys.values().iter().map(|&code| code as u8).collect();
    let short = UInt8Array::new(short, keys.nulls().cloned());
    // SAFETY: they are the codes of the same values, all of which a byte holds; NULL is none.
    Ok(Arc::new(unsafe { DictionaryArray::new_unchecked(short, Arc::clone(codes.values())) }))
}

/// The same texts, which hold no others.
pub(super) fn compact(texts: &ArrayRef) -> ArrayRef {
    match texts.as_string_view_opt() {
        Some(texts) => Arc::new(texts.gc()),
        None => Arc::new(texts.as_binary_view().gc()),
    }
}

/// Views that `values` made, of texts in these buffers.
fn array(
    data_type: &DataType,
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let views = ScalarBuffer::from(views);
    match data_type {
        DataType::Utf8View => {
            // SAFETY: `values` makes views of texts alone that are UTF-8, and within the page that is their buffer.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
        }
        _ => {
            // SAFETY: `values` makes views of bytes alone that are within the page that is their buffer.
            Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
        }
    }
}
