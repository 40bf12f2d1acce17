//! Who asks for memory: for finding out what holds it that should not.

use std::backtrace::Backtrace;

/// Functions that are named, the innermost first.
const NAMED: usize = 4;

/// The functions of ours and of DataFusion's that are under way on this thread, without those of the memory itself.
///
/// Takes some milliseconds the first time, and less than one after that.
pub(super) fn asked_by() -> String {
    named(&Backtrace::force_capture().to_string())
}

fn named(backtrace: &str) -> String {
    let functions = backtrace.lines().filter_map(|line| {
        let (number, name) = line.trim().split_once(": ")?;
        number.parse::<usize>().ok()?;
        Some(name.trim_start_matches('<'))
    });
    let of_interest = |name: &&str| {
        let within = |path: &str| name.starts_with(path);
        (within("relatrix::") || within("datafusion"))
            && !within("relatrix::memory::")
            && !within("relatrix::matrix::buffer::")
            && !name.contains("memory_pool::")
    };
    let named: Vec<&str> = functions.filter(of_interest).take(NAMED).collect();
    match named.is_empty() {
        true => "a place without a name".to_owned(),
        false => named.join(" < "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_functions_of_interest_are_named() {
        let backtrace = "   0: std::backtrace::Backtrace::create\n\
                         \x20  1: relatrix::memory::place::asked_by\n\
                         \x20  2: <datafusion_execution::memory_pool::MemoryConsumer>::register\n\
                         \x20  3: <datafusion_physical_plan::sorts::sort::ExternalSorter>::new\n\
                         \x20            at /somewhere/sort.rs:1: here\n\
                         \x20  4: relatrix::exec::pass::run\n\
                         \x20  5: tokio::runtime::task::poll\n";
        let expected = "datafusion_physical_plan::sorts::sort::ExternalSorter>::new < relatrix::exec::pass::run";
        assert_eq!(named(backtrace), expected);
        assert_eq!(named("   0: main\n"), "a place without a name");
    }

    #[test]
    fn this_test_is_not_of_the_memory_and_so_has_a_caller() {
        assert!(!asked_by().contains("relatrix::memory::place"), "{}", asked_by());
    }
}
