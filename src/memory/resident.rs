//! What the process holds in memory, as the operating system sees it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Bytes of the process in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Resident {
    /// Those that a program wrote, and that have no file behind them.
    pub(crate) private_bytes: usize,
    /// Pages of files: code, and what is mapped.
    pub(crate) file_bytes: usize,
}

impl Resident {
    /// As the system sees it now; `None` where it does not say.
    pub(crate) fn now() -> Option<Self> {
        static PAGES: OnceLock<Option<(File, usize)>> = OnceLock::new();
        let open = || Some((File::open("/proc/self/statm").ok()?, page_bytes().unwrap_or(4096)));
        let (pages, page_bytes) = PAGES.get_or_init(open).as_ref()?;
        let mut text = [0; 128];
        let length = pages.read_at(&mut text, 0).ok()?;
        Self::read(str::from_utf8(&text[..length]).ok()?, *page_bytes)
    }

    fn read(pages: &str, page_bytes: usize) -> Option<Self> {
        let mut pages = pages.split(' ').skip(1).map(|pages| pages.trim().parse::<usize>().ok());
        let (all, of_files) = (pages.next()??, pages.next()??);
        let (private, of_files) = (all.saturating_sub(of_files), of_files);
        Some(Self { private_bytes: private * page_bytes, file_bytes: of_files * page_bytes })
    }

    pub(crate) fn bytes(self) -> usize {
        self.private_bytes + self.file_bytes
    }
}

/// The size of a page, by what the system tells every process when it begins.
fn page_bytes() -> Option<usize> {
    /// `AT_PAGESZ`
    const PAGE_SIZE: usize = 6;
    let told = std::fs::read("/proc/self/auxv").ok()?;
    let number = |bytes: &[u8]| bytes.try_into().map(usize::from_ne_bytes).ok();
    told.chunks_exact(2 * size_of::<usize>()).find_map(|pair| {
        let (key, value) = pair.split_at(size_of::<usize>());
        (number(key)? == PAGE_SIZE).then(|| number(value)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_system_are_read() {
        let expected = Resident { private_bytes: 7 << 12, file_bytes: 3 << 12 };
        assert_eq!(Resident::read("99 10 3 5 0 6 0\n", 1 << 12), Some(expected));
        assert_eq!(expected.bytes(), 10 << 12);
        assert_eq!(Resident::read("99 10", 1 << 12), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_touched_is_seen() {
        let before = Resident::now().unwrap().private_bytes;
        let memory = std::hint::black_box(vec![1_u8; 256 << 20]);
        assert!(Resident::now().unwrap().private_bytes >= before + memory.len() / 2);
    }
}
