//! What numbers look like in prose and in tables.

use arrow::datatypes::DataType;

/// A count with commas between thousands.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whether values of this type line up at their right end.
pub(super) fn is_right_aligned(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_right_aligned(value),
        other => other.is_numeric(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
