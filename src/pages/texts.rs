//! The rows of a column of texts, as views of the pages that they are in.
//!
//! The views were checked when they were made, once for each page: Arrow would do so again for each batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::column::{Column, Rows, Window};
use super::flaw::{Checked, Flaw};
use super::values::{Stored, in_buffer, is_long};

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
        let views = ScalarBuffer::from(views);
        Ok(match &self.data_type {
            DataType::Utf8View => {
                // SAFETY: `values` makes views of texts alone that are UTF-8, and within the page that is their buffer.
                let texts = unsafe { StringViewArray::new_unchecked(views, buffers, nulls) };
                Arc::new(if chosen.is_some() { texts.gc() } else { texts })
            }
            _ => {
                // SAFETY: `values` makes views of bytes alone that are within the page that is their buffer.
                let bytes = unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) };
                Arc::new(if chosen.is_some() { bytes.gc() } else { bytes })
            }
        })
    }

    fn skip(&mut self, rows: usize) -> Checked<()> {
        self.rows.skip(rows)
    }
}
