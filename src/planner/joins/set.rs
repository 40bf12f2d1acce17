//! Sets of the relations of a query, up to 64 of them, by their places.

/// A set of relations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Set(u64);

impl Set {
    pub(super) const EMPTY: Self = Self(0);

    /// Relations that a set has room for.
    pub(super) const ROOM: usize = 64;

    pub(super) fn one(relation: usize) -> Self {
        Self(1 << relation)
    }

    /// The first relations, so many.
    pub(super) fn first(count: usize) -> Self {
        Self(if count >= Self::ROOM { u64::MAX } else { (1 << count) - 1 })
    }

    /// The set that has this place.
    pub(super) fn at(place: usize) -> Self {
        Self(place as u64)
    }

    /// A place among those of all sets, which are as many as two to the power of the relations.
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first of them.
    pub(super) fn least(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// The set of the first of them alone.
    pub(super) fn only_least(self) -> Self {
        Self(self.0 & self.0.wrapping_neg())
    }

    /// The relations, from the first on.
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        Relations(self)
    }

    /// All subsets but the empty one, each after its own subsets.
    pub(super) fn subsets(self) -> impl Iterator<Item = Self> {
        let next = move |set: &Self| {
            let next = set.0.wrapping_sub(self.0) & self.0;
            (next != 0).then_some(Self(next))
        };
        std::iter::successors(next(&Self::EMPTY), next)
    }
}

/// The relations of a set that are still to come.
struct Relations(Set);

impl Iterator for Relations {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let relation = self.0.least()?;
        self.0 = self.0.without(Set::one(relation));
        Some(relation)
    }
}

impl DoubleEndedIterator for Relations {
    fn next_back(&mut self) -> Option<usize> {
        let relation = self.0.0.checked_ilog2()? as usize;
        self.0 = self.0.without(Set::one(relation));
        Some(relation)
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(relations: I) -> Self {
        relations.into_iter().fold(Self::EMPTY, |set, relation| set.with(Self::one(relation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_come_from_either_end() {
        let set = Set::from_iter([63, 0, 5, 2]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 5, 63]);
        assert_eq!(set.iter().rev().collect::<Vec<_>>(), [63, 5, 2, 0]);
        let mut ends = set.iter();
        let met = [ends.next(), ends.next_back(), ends.next(), ends.next_back(), ends.next()];
        assert_eq!(met, [Some(0), Some(63), Some(2), Some(5), None]);
        assert_eq!(ends.next_back(), None);
    }

    #[test]
    fn subsets_come_after_their_own() {
        let set = Set::from_iter([0, 2, 5]);
        let subsets: Vec<Set> = set.subsets().collect();
        assert_eq!(subsets.len(), 7);
        for (at, subset) in subsets.iter().enumerate() {
            assert!(set.includes(*subset));
            assert!(subsets[..at].iter().all(|before| !before.includes(*subset)));
        }
        assert_eq!(Set::EMPTY.subsets().count(), 0);
        assert_eq!(Set::first(Set::ROOM).count(), Set::ROOM);
    }
}
