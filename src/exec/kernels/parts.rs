//! Texts that consist of parts, one after another, with anything between them: `LIKE 'a%b%c'`.

use memchr::memmem::Finder;

/// What a text begins with, what follows somewhere in this order, and what it ends with.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    start: Option<Box<[u8]>>,
    between: Vec<Finder<'static>>,
    end: Option<Box<[u8]>>,
}

impl Parts {
    /// Those of a pattern in which `%` stands for anything; nothing where something stands for a single character, or is
    /// meant literally.
    pub(crate) fn of(pattern: &str) -> Option<Self> {
        let is_plain = !pattern.contains(['_', '\\']);
        let (start, rest) = pattern.split_once('%').filter(|_| is_plain)?;
        let (between, end) = rest.rsplit_once('%').unwrap_or(("", rest));
        let between = between.split('%').filter(|part| !part.is_empty());
        // What is empty is nothing and not compared: the bytes of an empty box are nowhere, and `memcmp` of no bytes there
        // is a load under a mask of AVX-512, which takes a Zen 5 as long as the rest of the text.
        let edge = |part: &str| (!part.is_empty()).then(|| part.as_bytes().into());
        Some(Self {
            start: edge(start),
            between: between.map(|part| Finder::new(part.as_bytes()).into_owned()).collect(),
            end: edge(end),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.between.len() + [&self.start, &self.end].into_iter().flatten().count()
    }

    /// Whether a text consists of them. The first place of each is as good as any, for it leaves most to the rest.
    #[inline]
    pub(crate) fn are_of(&self, text: &[u8]) -> bool {
        let rest = self.start.as_ref().map_or(Some(text), |start| text.strip_prefix(&**start));
        let Some(rest) = rest else { return false };
        let rest = self.end.as_ref().map_or(Some(rest), |end| rest.strip_suffix(&**end));
        let Some(mut rest) = rest else { return false };
        self.between.iter().all(|part| match part.find(rest) {
            Some(at) => {
                rest = &rest[at + part.needle().len()..];
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: what `%` stands for is tried at every length.
    fn is_like(text: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'%', rest)) => (0..=text.len()).any(|at| is_like(&text[at..], rest)),
            Some((first, rest)) => text
                .split_first()
                .is_some_and(|(letter, others)| letter == first && is_like(others, rest)),
        }
    }

    #[test]
    fn texts_are_those_of_the_definition() {
        let patterns =
            ["%a%b%", "a%b", "a%a", "%ab%ba%", "ab%a%ab", "%", "a%", "%%b%%", "%aa%aa%", "b%%a%b%"];
        for pattern in patterns {
            let parts = Parts::of(pattern).unwrap();
            for number in 0..1_usize << 9 {
                for length in 0..9 {
                    let letter = |at: usize| b"ab"[number >> at & 1];
                    let text: Vec<u8> = (0..length).map(letter).collect();
                    let expected = is_like(&text, pattern.as_bytes());
                    assert_eq!(parts.are_of(&text), expected, "{pattern} {text:?}");
                }
            }
        }
        assert!(
            ["ab", "a_%b", "a\\%b%", ""].into_iter().all(|pattern| Parts::of(pattern).is_none())
        );
        let count = |pattern| Parts::of(pattern).unwrap().count();
        assert_eq!(["%", "a%", "%b%", "a%b", "%a%b%", "a%b%c"].map(count), [0, 1, 1, 2, 2, 3]);
    }
}
