//! What stands before each page: its kind, its sizes, how it is encoded (Parquet format, `PageHeader`, in Thrift's compact
//! protocol).
//!
//! Of its fields those that reading needs are read; all others, such as statistics, are passed over.

use parquet::basic::Encoding;

use super::flaw::{Checked, Flaw};

/// How deep structures may lie in one another, of which none here does by more than three.
const DEPTH_MAX: usize = 8;

/// A page's header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Bytes of the page, as they follow and once decompressed.
    pub(super) stored_bytes: usize,
    pub(super) bytes: usize,
    /// Bytes of the header itself.
    pub(super) header_bytes: usize,
    /// Of kept pages: what the indices are above, where they are of no dictionary (`offsets`).
    pub(super) least: Option<i64>,
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Dictionary,
    Data {
        levels: usize,
        encoding: Encoding,
    },
    /// The second version: levels lie before what is compressed.
    DataV2 {
        levels: usize,
        rows: usize,
        encoding: Encoding,
        definitions_bytes: usize,
        repetitions_bytes: usize,
        is_compressed: bool,
    },
    /// To be passed over.
    Other,
}

impl Header {
    /// The header that these bytes begin with; `None` where they end before it does.
    ///
    /// # Errors
    /// Where they are none.
    pub(super) fn parse(bytes: &[u8]) -> Checked<Option<Self>> {
        let mut fields = Fields { bytes, at: 0 };
        match fields.header() {
            Ok(header) => Ok(Some(header)),
            Err(Stop::End) => Ok(None),
            Err(Stop::Wrong(what)) => Err(Flaw::new(format!("the header of a page has {what}"))),
        }
    }

    /// How the values of a data page are written.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self.kind {
            Kind::Data { encoding, .. } | Kind::DataV2 { encoding, .. } => Some(encoding),
            Kind::Dictionary | Kind::Other => None,
        }
    }

    /// That of the same data page, of so many bytes, with values that are indices above a number.
    pub(super) fn of_offsets(mut self, least: i64, bytes: usize) -> Self {
        if let Kind::Data { encoding, .. } | Kind::DataV2 { encoding, .. } = &mut self.kind {
            *encoding = Encoding::RLE_DICTIONARY;
        }
        Self { bytes, least: Some(least), ..self }
    }
}

/// Why a header is not read to its end.
enum Stop {
    End,
    Wrong(&'static str),
}

type Parsed<T> = std::result::Result<T, Stop>;

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The types of fields that are told apart here.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

impl Fields<'_> {
    fn header(&mut self) -> Parsed<Header> {
        let (mut kind, mut bytes, mut stored, mut of_kind) = (None, None, None, None);
        let mut last = 0;
        while let Some((id, of)) = self.field(&mut last)? {
            match id {
                1 if of == I32 => kind = Some(self.number()?),
                2 if of == I32 => bytes = Some(self.size()?),
                3 if of == I32 => stored = Some(self.size()?),
                5 if of == STRUCT => of_kind = Some(self.data()?),
                7 if of == STRUCT => {
                    self.skip(of, 0)?;
                    of_kind = Some(Kind::Dictionary);
                }
                8 if of == STRUCT => of_kind = Some(self.data_v2()?),
                _ => self.skip(of, 0)?,
            }
        }
        let (Some(kind), Some(bytes), Some(stored_bytes)) = (kind, bytes, stored) else {
            return Err(Stop::Wrong("no kind or size"));
        };
        let kind = match (kind, of_kind) {
            (0, Some(kind @ Kind::Data { .. }))
            | (2, Some(kind @ Kind::Dictionary))
            | (3, Some(kind @ Kind::DataV2 { .. })) => kind,
            (0 | 2 | 3, _) => return Err(Stop::Wrong("another kind than it says")),
            _ => Kind::Other,
        };
        Ok(Header { kind, stored_bytes, bytes, header_bytes: self.at, least: None })
    }

    fn data(&mut self) -> Parsed<Kind> {
        let (mut levels, mut encoding) = (None, None);
        let (mut of_definitions, mut of_repetitions) = (Encoding::RLE, Encoding::RLE);
        let mut last = 0;
        while let Some((id, of)) = self.field(&mut last)? {
            match id {
                1 if of == I32 => levels = Some(self.size()?),
                2 if of == I32 => encoding = Some(self.encoding()?),
                3 if of == I32 => of_definitions = self.encoding()?,
                4 if of == I32 => of_repetitions = self.encoding()?,
                _ => self.skip(of, 0)?,
            }
        }
        let (Some(levels), Some(encoding)) = (levels, encoding) else {
            return Err(Stop::Wrong("no number of values"));
        };
        #[allow(deprecated, reason = "older writers name it for levels that a column lacks")]
        let is_known = |of: Encoding| matches!(of, Encoding::RLE | Encoding::BIT_PACKED);
        match is_known(of_definitions) && is_known(of_repetitions) {
            true => Ok(Kind::Data { levels, encoding }),
            false => Err(Stop::Wrong("levels in an encoding that is none of theirs")),
        }
    }

    fn data_v2(&mut self) -> Parsed<Kind> {
        let (mut levels, mut rows, mut encoding) = (None, None, None);
        let (mut definitions, mut repetitions, mut is_compressed) = (None, None, true);
        let mut last = 0;
        while let Some((id, of)) = self.field(&mut last)? {
            match id {
                1 if of == I32 => levels = Some(self.size()?),
                3 if of == I32 => rows = Some(self.size()?),
                4 if of == I32 => encoding = Some(self.encoding()?),
                5 if of == I32 => definitions = Some(self.size()?),
                6 if of == I32 => repetitions = Some(self.size()?),
                7 => is_compressed = of == TRUE,
                _ => self.skip(of, 0)?,
            }
        }
        match (levels, rows, encoding, definitions, repetitions) {
            (
                Some(levels),
                Some(rows),
                Some(encoding),
                Some(definitions_bytes),
                Some(repetitions_bytes),
            ) => Ok(Kind::DataV2 {
                levels,
                rows,
                encoding,
                definitions_bytes,
                repetitions_bytes,
                is_compressed,
            }),
            _ => Err(Stop::Wrong("no number of values or rows")),
        }
    }

    /// The number and type of the next field; `None` after the last.
    fn field(&mut self, last: &mut i64) -> Parsed<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => self.number()?,
            more => *last + i64::from(more),
        };
        *last = id;
        Ok(Some((id, head & 0xf)))
    }

    fn byte(&mut self) -> Parsed<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    /// Seven bits to a byte, the lowest first.
    fn unsigned(&mut self) -> Parsed<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Stop::Wrong("a number of more than 64 bits"))
    }

    /// The sign is the lowest bit.
    fn number(&mut self) -> Parsed<i64> {
        let zigzag = self.unsigned()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    fn size(&mut self) -> Parsed<usize> {
        let size = i32::try_from(self.number()?).ok().and_then(|size| usize::try_from(size).ok());
        size.ok_or(Stop::Wrong("a size that is none"))
    }

    fn encoding(&mut self) -> Parsed<Encoding> {
        #[allow(deprecated, reason = "older writers name it for levels that a column lacks")]
        let encoding = match self.number()? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            4 => Encoding::BIT_PACKED,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return Err(Stop::Wrong("an encoding that is not known")),
        };
        Ok(encoding)
    }

    fn take(&mut self, count: usize) -> Parsed<()> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        self.at = end.ok_or(Stop::End)?;
        Ok(())
    }

    /// Passes over a value of this type.
    fn skip(&mut self, of: u8, depth: usize) -> Parsed<()> {
        if depth > DEPTH_MAX {
            return Err(Stop::Wrong("structures that lie too deep"));
        }
        match of {
            TRUE | FALSE => Ok(()),
            3 => self.take(1),
            4..=6 => self.unsigned().map(|_| ()),
            7 => self.take(8),
            8 => {
                let count = self.unsigned()?;
                self.take(usize::try_from(count).map_err(|_| Stop::End)?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.unsigned()?,
                    count => u64::from(count),
                };
                // Truths in a list have a byte each.
                let of = if head & 0xf <= FALSE { 3 } else { head & 0xf };
                (0..count).try_for_each(|_| self.skip(of, depth + 1))
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, of)) = self.field(&mut last)? {
                    self.skip(of, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(Stop::Wrong("a field of a type that is not known")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of 100 values in 300 bytes, 200 of them stored, with statistics and a field of an unknown number.
    const DATA: &[u8] = &[
        0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0x90, 0x03, 0x2c, 0x15, 0xc8, 0x01, 0x15, 0x10, 0x15,
        0x06, 0x15, 0x06, 0x1c, 0x18, 0x02, b'a', b'b', 0x00, 0x00, 0x59, 0x25, 0x02, 0x04, 0x00,
    ];

    #[test]
    fn what_is_not_needed_is_passed_over() {
        let header = Header::parse(DATA).unwrap().unwrap();
        let kind = Kind::Data { levels: 100, encoding: Encoding::RLE_DICTIONARY };
        let (stored_bytes, bytes, header_bytes) = (200, 300, DATA.len());
        let expected = Header { kind, stored_bytes, bytes, header_bytes, least: None };
        assert_eq!(header, expected);
    }

    #[test]
    fn a_header_that_is_cut_is_none_yet_and_a_wrong_one_an_error() {
        for count in 0..DATA.len() {
            assert!(Header::parse(&DATA[..count]).unwrap().is_none(), "{count}");
        }
        for wrong in [&[0x15, 4, 0x15, 8, 0x15, 8, 0][..], &[0x1d], &[0]] {
            assert!(Header::parse(wrong).is_err(), "{wrong:?}");
        }
        // Whatever a byte is, it is read or refused.
        for at in 0..DATA.len() {
            for byte in 0..=255 {
                let mut wrong = DATA.to_vec();
                wrong[at] = byte;
                let _read_or_refused = Header::parse(&wrong);
            }
        }
    }
}
