//! Which Parquet files are read page by page, and how.

/// Of which Parquet files numbers are read page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Where it pays: lists, and groups of rows so large that they are not to be held whole.
    Auto,
    On,
    Off,
}

impl Pages {
    /// What it is called, and the one of that name.
    const NAMES: [(&str, Pages); 3] =
        [("auto", Pages::Auto), ("on", Pages::On), ("off", Pages::Off)];

    pub(crate) fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, pages)| *pages == self);
        named.map_or("", |(name, _)| name)
    }

    /// # Errors
    /// Says what the names are.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, pages)| *pages).ok_or_else(|| format!("'{text}' is none of auto, on, off"))
    }
}

/// How Parquet files are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageReading {
    pub(crate) pages: Pages,
    /// Columns that are read side by side.
    pub(crate) threads: usize,
}
