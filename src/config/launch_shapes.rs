//! How many threads a block has of those kernels of a GPU that compute the same in any: by a file that a user names, for devices on which
//! another number than ours is faster.
//!
//! ```text
//! # kernel     threads
//! loop         512
//! product_f64  128
//! ```

use std::collections::BTreeMap;
use std::fs;

/// The kernels whose threads may be chosen. Of all others they decide in which order numbers are added up.
pub(crate) const FREE: [&str; 15] = [
    "loop",
    "transpose_f64",
    "transpose_f32",
    "copy_f64",
    "copy_f32",
    "lower_f64",
    "lower_f32",
    "upper_f64",
    "upper_f32",
    "halve_f64",
    "halve_f32",
    "product_f64",
    "product_f32",
    "expand_f64",
    "expand_f32",
];

/// Threads that a block may have: lanes of whole warps, and as many as any device allows.
const THREADS: [u32; 6] = [32, 64, 128, 256, 512, 1024];

/// What a file says, and which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LaunchShapes {
    file: String,
    threads: BTreeMap<String, u32>,
}

impl LaunchShapes {
    /// # Errors
    /// Names the file, and the line that is not a kernel and its threads.
    pub(super) fn read(file: &str) -> Result<Self, String> {
        if file.is_empty() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let threads = parse(&text).map_err(|(line, why)| format!("{file}, line {line}: {why}"))?;
        Ok(Self { file: file.to_owned(), threads })
    }

    /// Empty where there is none.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The threads of a block of a kernel, where they were chosen.
    pub(crate) fn threads(&self, kernel: &str) -> Option<u32> {
        self.threads.get(kernel).copied()
    }

    /// All that were chosen.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, u32)> {
        self.threads.iter().map(|(kernel, threads)| (kernel.as_str(), *threads))
    }
}

/// The threads of each kernel, or a line, counted from 1, and what is wrong with it.
fn parse(text: &str) -> Result<BTreeMap<String, u32>, (usize, String)> {
    let mut all = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kernel, threads) = match words[..] {
            [] => continue,
            [kernel, threads] => (kernel, threads),
            _ => return Err((line, format!("'{}' is not a kernel and its threads", text.trim()))),
        };
        if !FREE.contains(&kernel) {
            let free = FREE.join(", ");
            return Err((
                line,
                format!("the threads of '{kernel}' cannot be chosen, only of {free}"),
            ));
        }
        let chosen = threads.parse().ok().filter(|threads| THREADS.contains(threads));
        let Some(chosen) = chosen else {
            let allowed = THREADS.map(|threads| threads.to_string()).join(", ");
            return Err((
                line,
                format!("a block has no '{threads}' threads, but one of {allowed}"),
            ));
        };
        if all.insert(kernel.to_owned(), chosen).is_some() {
            return Err((line, format!("'{kernel}' has its threads already")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_kernel_and_its_threads() {
        let all = parse("# mine\n\nloop 512  # wide\n\ttranspose_f64\t64\n").unwrap();
        assert_eq!(all, BTreeMap::from([("loop".into(), 512), ("transpose_f64".into(), 64)]));
        assert_eq!(parse(""), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let allowed = "threads, but one of 32, 64, 128, 256, 512, 1024";
        for (text, line, expected) in [
            ("loop", 1, "'loop' is not a kernel and its threads".to_owned()),
            ("\nloop 64 64", 2, "'loop 64 64' is not a kernel and its threads".to_owned()),
            ("loop 0", 1, format!("a block has no '0' {allowed}")),
            ("loop 48", 1, format!("a block has no '48' {allowed}")),
            ("loop 96", 1, format!("a block has no '96' {allowed}")),
            ("loop 2048", 1, format!("a block has no '2048' {allowed}")),
            ("loop many", 1, format!("a block has no 'many' {allowed}")),
            ("loop 64\nloop 64", 2, "'loop' has its threads already".to_owned()),
        ] {
            assert_eq!(parse(text), Err((line, expected)), "{text}");
        }
        let (line, why) = parse("loop 64\nfinish 64").unwrap_err();
        assert!(line == 2 && why.starts_with("the threads of 'finish' cannot be chosen"), "{why}");
        let absent = LaunchShapes::read("no/such/file").unwrap_err();
        assert!(absent.starts_with("no/such/file: "), "{absent}");
    }
}
