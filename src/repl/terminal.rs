//! What is known of the terminal: its size, whether it shows colours, how wide a text is on it.

use std::env;

use console::Term;

/// Where answers are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Characters in a line; `None` where the output is no terminal and lines may be of any length.
    pub(crate) columns: Option<usize>,
    /// Lines.
    pub(crate) lines: usize,
    /// Whether colours and dimmed text are shown.
    pub(crate) colour: bool,
}

impl Screen {
    /// Standard output as it is now; a terminal may be resized between two statements.
    pub(crate) fn standard_output() -> Self {
        let terminal = Term::stdout();
        if !terminal.is_term() {
            return Self { columns: None, lines: 24, colour: false };
        }
        let (lines, columns) = terminal.size();
        Self {
            columns: Some(usize::from(columns.max(1))),
            lines: usize::from(lines.max(1)),
            colour: console::colors_enabled() && env::var_os("NO_COLOR").is_none(),
        }
    }
}

/// Columns that a text takes: two for each wide character, none for a combining one.
pub(crate) fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// A text on one line: what would move the cursor or recolour the terminal is spelled out.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push('↵'),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// The text cut to so many columns, with an ellipsis where something was cut off.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    console::truncate_str(text, columns, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_counts_columns_of_the_terminal() {
        assert_eq!(width("née"), 3);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
    }

    #[test]
    fn cutting_never_splits_a_wide_character() {
        assert_eq!(shortened("日本語", 4), "日…");
        assert_eq!(shortened("日本語", 6), "日本語");
        assert_eq!(shortened("abc", 1), "…");
    }

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("a\nb\u{1b}[31mc\t"), "a↵b\\u{1b}[31mc\\t");
    }
}
