//! Values from the texts that they are written as.

use std::fmt::Display;
use std::str::FromStr;

pub(super) fn number<N: FromStr<Err: Display>>(value: &str) -> Result<N, String> {
    value.parse().map_err(|error| format!("'{value}' is not a whole number: {error}"))
}

pub(super) fn percent(value: &str) -> Result<usize, String> {
    match number(value)? {
        percent if percent <= 100 => Ok(percent),
        _ => Err(format!("'{value}' is not a share in percent: 0 to 100")),
    }
}

pub(super) fn at_least(least: usize, value: usize) -> Result<usize, String> {
    if value >= least { Ok(value) } else { Err(format!("{value} is less than {least}")) }
}

pub(super) fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("'{value}' is neither true nor false")),
    }
}

pub(super) fn one_of(choices: &[&str], value: &str) -> Result<String, String> {
    let choice = choices.iter().find(|choice| choice.eq_ignore_ascii_case(value));
    choice
        .map(|&choice| choice.to_owned())
        .ok_or_else(|| format!("'{value}' is none of {}", choices.join(", ")))
}

/// Bytes from a number with a unit: `512MB` (or `512 MiB`, `512m`) are 512 · 2²⁰.
///
/// ```
/// assert_eq!(relatrix::parse_bytes("2GB"), Ok(2 << 30));
/// assert_eq!(relatrix::parse_bytes("1.5 kb"), Ok(1536));
/// assert_eq!(relatrix::parse_bytes("1e9"), Ok(1_000_000_000));
/// assert!(relatrix::parse_bytes("much").is_err());
/// ```
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if let Some(bytes) = text.parse::<f64>().ok().filter(|_| is_number) {
        return Ok(bytes as usize);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a size, such as 2GB"))?;
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("'{unit}' is not a unit of bytes: B, KB, MB, GB, TB")),
    };
    Ok((number * (1_u64 << power) as f64) as usize)
}
