//! Groups by number: each row's keys become the number of their group, in the order in which groups come.
//!
//! Keys of few values are numbered by the places of their codes, those that fit into a word by a table of ours; all others,
//! and texts once one is too long for that, by DataFusion's. Keys may be encoded.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{ArrowNativeType, FieldRef, SchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use crate::encoding::decoded;
use crate::exec::kernels::numbering::Numbering;
use crate::exec::kernels::word::Word;
use crate::exec::relational::codes::Codes;
use crate::exec::relational::packed::Layout;

/// The groups that were met.
pub(super) struct Groups {
    keys: SchemaRef,
    ways: Ways,
}

enum Ways {
    /// Without keys there is one group, of no rows, too.
    One,
    Coded(Codes),
    Narrow(Words<u64>),
    Wide(Words<u128>),
    Any(Box<dyn GroupValues>),
}

struct Words<W> {
    layout: Layout,
    numbering: Numbering<W>,
    /// The words of a batch.
    words: Vec<W>,
}

impl<W: Word + ArrowNativeType> Words<W> {
    fn new(layout: Layout) -> Self {
        Self { layout, numbering: Numbering::default(), words: Vec::new() }
    }

    /// The numbers of these keys; false where they do not fit.
    fn number(&mut self, keys: &[ArrayRef], numbers: &mut Vec<usize>) -> bool {
        let as_they_are = self.layout.as_they_are(keys);
        let words = match &as_they_are {
            Some(words) => words.as_ref(),
            None if self.layout.pack(keys, &mut self.words) => self.words.as_slice(),
            None => return false,
        };
        match keys[0].nulls().filter(|nulls| self.layout.is_alone() && nulls.null_count() > 0) {
            None => self.numbering.number(words, numbers),
            Some(nulls) => {
                let is_valid = |at| nulls.is_valid(at);
                self.numbering.number_with_nulls(words, is_valid, numbers);
            }
        }
        true
    }

    fn take(&mut self) -> Result<Vec<ArrayRef>> {
        let (words, null) = self.numbering.take();
        self.layout.unpack(words, null)
    }
}

impl Groups {
    /// # Errors
    /// Where such keys cannot be compared.
    pub(super) fn new(keys: &SchemaRef) -> Result<Self> {
        let ways = match Codes::new(keys) {
            _ if keys.fields().is_empty() => Ways::One,
            Some(codes) => Ways::Coded(codes),
            None => Ways::of_words(keys)?,
        };
        Ok(Self { keys: SchemaRef::clone(keys), ways })
    }

    /// The numbers of the groups of so many rows.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn number(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        numbers: &mut Vec<usize>,
    ) -> Result<()> {
        numbers.clear();
        if let Ways::Coded(codes) = &mut self.ways {
            if codes.number(keys, numbers) {
                return Ok(());
            }
            self.go_on(Ways::of_words(&self.keys)?, numbers)?;
        }
        let decoded_key = |(key, field): (&ArrayRef, &FieldRef)| decoded(key, field.data_type());
        let keys = keys.iter().zip(self.keys.fields()).map(decoded_key);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if !self.ways.number(&keys, rows, numbers)? {
            self.go_on(Ways::Any(any(&self.keys)?), numbers)?;
            self.ways.number(&keys, rows, numbers)?;
        }
        Ok(())
    }

    /// Numbers the groups that are known in other ways: they keep their numbers, for they come in the order of those.
    fn go_on(&mut self, mut ways: Ways, numbers: &mut Vec<usize>) -> Result<()> {
        let known = self.take()?;
        let rows = known.first().map_or(0, |key| key.len());
        if rows > 0 && !ways.number(&known, rows, numbers)? {
            ways = Ways::Any(any(&self.keys)?);
            ways.number(&known, rows, numbers)?;
        }
        numbers.clear();
        self.ways = ways;
        Ok(())
    }

    /// Whether the numbers of groups are read at the places of codes.
    pub(super) fn are_coded(&self) -> bool {
        matches!(self.ways, Ways::Coded(_))
    }

    pub(super) fn len(&self) -> usize {
        match &self.ways {
            Ways::One => 1,
            Ways::Coded(codes) => codes.count(),
            Ways::Narrow(words) => words.numbering.count(),
            Ways::Wide(words) => words.numbering.count(),
            Ways::Any(groups) => groups.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.ways {
            Ways::One => 0,
            Ways::Coded(codes) => codes.bytes(),
            Ways::Narrow(words) => words.numbering.bytes(),
            Ways::Wide(words) => words.numbering.bytes(),
            Ways::Any(groups) => groups.size(),
        }
    }

    /// Bytes that so many more groups may take beside, as far as that can be told.
    pub(super) fn growth_bytes(&self, more: usize) -> usize {
        match &self.ways {
            Ways::Coded(codes) => codes.growth_bytes(more),
            Ways::Narrow(words) => words.numbering.growth_bytes(more),
            Ways::Wide(words) => words.numbering.growth_bytes(more),
            Ways::One | Ways::Any(_) => 0,
        }
    }

    /// The keys of all groups by number; none is known any more, and there is room for as many others.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>> {
        match &mut self.ways {
            Ways::One => Ok(Vec::new()),
            Ways::Coded(codes) => codes.take(),
            Ways::Narrow(words) => words.take(),
            Ways::Wide(words) => words.take(),
            Ways::Any(groups) => {
                let rows = groups.len();
                let keys = groups.emit(EmitTo::All)?;
                groups.clear_shrink(rows);
                Ok(keys)
            }
        }
    }

    /// Gives the memory of an empty table back.
    ///
    /// # Errors
    /// None, for such keys were compared before.
    pub(super) fn release(&mut self) -> Result<()> {
        match &mut self.ways {
            Ways::One => {}
            Ways::Coded(_) | Ways::Narrow(_) | Ways::Wide(_) => *self = Self::new(&self.keys)?,
            Ways::Any(groups) => groups.clear_shrink(0),
        }
        Ok(())
    }
}

impl Ways {
    /// Those that have no codes.
    fn of_words(keys: &SchemaRef) -> Result<Self> {
        Ok(match Layout::of(keys) {
            Some(layout) if layout.bits <= u64::BITS => Self::Narrow(Words::new(layout)),
            Some(layout) => Self::Wide(Words::new(layout)),
            None => Self::Any(any(keys)?),
        })
    }

    /// The numbers of the groups of so many rows, after those that are there; false where they do not fit.
    fn number(&mut self, keys: &[ArrayRef], rows: usize, numbers: &mut Vec<usize>) -> Result<bool> {
        match self {
            Self::One => {
                numbers.resize(rows, 0);
                Ok(true)
            }
            Self::Coded(codes) => Ok(codes.number(keys, numbers)),
            Self::Narrow(words) => Ok(words.number(keys, numbers)),
            Self::Wide(words) => Ok(words.number(keys, numbers)),
            Self::Any(groups) => groups.intern(keys, numbers).map(|()| true),
        }
    }
}

fn any(keys: &SchemaRef) -> Result<Box<dyn GroupValues>> {
    new_group_values(SchemaRef::clone(keys), &GroupOrdering::None)
}
