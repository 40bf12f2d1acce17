//! The cheapest way to compute a class, where what is used twice is paid for once.
//!
//! Of each class the cheapest term is kept with all the classes that it needs, themselves by their cheapest
//! terms; its cost is the sum over that set. Terms are tried again until no class gets cheaper. That is a
//! heuristic: the best choice over shared parts is NP-hard (Stepp, *Equality Saturation: Engineering
//! Challenges and Applications*, 2011, §4.4). What it cannot see is that a part is there anyway, for
//! another reader; so single choices are then exchanged for as long as the whole gets cheaper.

use std::collections::BTreeMap;

use egg::Id;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Classes;
use super::term::Term;

/// What a term must gain over another, by share: sums of the same costs in another order are as good.
const GAIN_MIN: f64 = 1e-9;

/// Share by which the next best form must be slower to be another one.
const DIFFERENCE_MIN: f64 = 0.01;

/// Candidates for the root of the next best form that are tried.
const OTHERS_MAX: usize = 16;

/// Single choices that are exchanged at most.
const IMPROVEMENTS_MAX: usize = 8;

/// Rounds of the iterations, by the numbers of their variables.
pub(super) type Rounds = BTreeMap<u32, f64>;

/// A term of a class, both by their places, with the seconds that it takes itself.
struct Candidate {
    class: usize,
    term: Term,
    inputs: Vec<usize>,
    seconds: f64,
}

/// The chosen candidate of a class.
struct Choice {
    candidate: usize,
    /// Of the class with all that it needs.
    seconds: f64,
    needs: ClassSet,
}

/// A set of classes: a bit for each.
#[derive(Clone)]
struct ClassSet(Vec<u64>);

impl ClassSet {
    fn empty(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    /// Makes it a set of this class alone.
    fn reset(&mut self, class: usize) {
        self.0.fill(0);
        self.0[class / 64] |= 1 << (class % 64);
    }

    fn has(&self, class: usize) -> bool {
        self.0[class / 64] >> (class % 64) & 1 == 1
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    fn for_each(&self, mut act: impl FnMut(usize)) {
        for (at, &word) in self.0.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                act(at * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }
}

/// Terms of all classes that a root needs, inputs before users, and the seconds that they take together.
pub(super) struct Form {
    pub(super) terms: Vec<(Id, Term)>,
    pub(super) seconds: f64,
}

/// The cheapest form of `root`, and the next best that makes its root in another way. Of terms that are equally good
/// one of those that were `written` is chosen. None where the choices need one another, which the
/// heuristic does not rule out.
pub(super) fn cheapest(
    known: &mut Classes<'_>,
    root: Id,
    written: &[(Id, Term)],
    rounds: &Rounds,
) -> Option<(Form, Option<Form>)> {
    let root = known.find(root);
    let classes = reachable(known, root);
    let places: FxHashMap<Id, usize> =
        classes.iter().enumerate().map(|(place, &class)| (class, place)).collect();
    let candidates = candidates(known, &classes, &places, written, rounds);
    let choices = choose(&candidates, classes.len());
    let chosen = choices.iter().map(|choice| choice.as_ref().map(|choice| choice.candidate));
    let mut plan = Plan { candidates: &candidates, chosen: chosen.collect(), root: places[&root] };
    plan.improve();
    let form = |plan: &Plan<'_>| {
        let ordered = plan.ordered()?;
        let seconds = plan.seconds(&ordered);
        let terms = ordered.into_iter().map(|candidate| {
            let Candidate { class, term, .. } = &candidates[candidate];
            (classes[*class], term.clone())
        });
        Some(Form { terms: terms.collect(), seconds })
    };
    let cheapest = form(&plan)?;
    let others = others(&candidates, &choices, plan.root);
    Some((cheapest, plan.runner_up(&others).and_then(|plan| form(&plan))))
}

/// The classes that any term below `root` reads, in the order of their numbers.
fn reachable(known: &Classes<'_>, root: Id) -> Vec<Id> {
    let mut reached = FxHashSet::from_iter([root]);
    let mut open = vec![root];
    while let Some(class) = open.pop() {
        for input in known[class].nodes.iter().flat_map(|term| &term.inputs) {
            let input = known.find(*input);
            if reached.insert(input) {
                open.push(input);
            }
        }
    }
    let mut classes: Vec<Id> = reached.into_iter().collect();
    classes.sort_unstable();
    classes
}

/// All terms of these classes that can be computed, those that were written first.
fn candidates(
    known: &mut Classes<'_>,
    classes: &[Id],
    places: &FxHashMap<Id, usize>,
    written: &[(Id, Term)],
    rounds: &Rounds,
) -> Vec<Candidate> {
    let canonical = |known: &Classes<'_>, term: &Term| {
        let inputs: Vec<Id> = term.inputs.iter().map(|&input| known.find(input)).collect();
        Term::new(term.operation.clone(), inputs)
    };
    let written: FxHashSet<Term> = written.iter().map(|(_, term)| canonical(known, term)).collect();
    let mut candidates = Vec::new();
    for (place, &class) in classes.iter().enumerate() {
        let mut terms: Vec<Term> =
            known[class].nodes.iter().map(|term| canonical(known, term)).collect();
        terms.sort_by_cached_key(|term| !written.contains(term));
        for term in terms {
            let Some(seconds) = price(known, class, &term, rounds) else { continue };
            let inputs = term.inputs.iter().map(|input| places[input]).collect();
            candidates.push(Candidate { class: place, term, inputs, seconds });
        }
    }
    candidates
}

/// The seconds of a term itself, in all rounds; none where it cannot be computed.
fn price(known: &mut Classes<'_>, class: Id, term: &Term, rounds: &Rounds) -> Option<f64> {
    let nodes: Option<Vec<_>> =
        term.inputs.iter().map(|&input| Some(known[input].data.as_ref()?.node)).collect();
    let node = known.analysis.node(&term.operation, nodes?)?;
    let facts = known[class].data.as_ref()?;
    let times: f64 = facts.changes_in().filter_map(|number| rounds.get(&number)).product();
    Some(known.analysis.estimate(node).seconds * times)
}

/// The choice of each class, by places.
fn choose(candidates: &[Candidate], count: usize) -> Vec<Option<Choice>> {
    let mut choices: Vec<Option<Choice>> = (0..count).map(|_| None).collect();
    // What the choice of each class takes itself.
    let mut own = vec![0.0; count];
    let mut needed = ClassSet::empty(count);
    // The classes whose choice is new to those who read them, first all.
    let mut news = vec![true; count];
    while news.contains(&true) {
        let old = std::mem::replace(&mut news, vec![false; count]);
        for (at, candidate) in candidates.iter().enumerate() {
            let class = candidate.class;
            let is_first = candidate.inputs.is_empty() && choices[class].is_none();
            let is_new = |input: &usize| old[*input] || news[*input];
            if !is_first && !candidate.inputs.iter().any(is_new) {
                continue;
            }
            if !collect_needs(candidate, &choices, &mut needed) {
                continue;
            }
            let mut others = 0.0;
            needed.for_each(|other| others += if other == class { 0.0 } else { own[other] });
            let seconds = candidate.seconds + others;
            let known = &mut choices[class];
            if known.as_ref().is_none_or(|known| seconds < known.seconds * (1.0 - GAIN_MIN)) {
                *known = Some(Choice { candidate: at, seconds, needs: needed.clone() });
                own[class] = candidate.seconds;
                news[class] = true;
            }
        }
    }
    choices
}

/// Collects what a candidate needs; not while an input has no choice yet, or itself needs the candidate's class.
fn collect_needs(candidate: &Candidate, choices: &[Option<Choice>], needed: &mut ClassSet) -> bool {
    needed.reset(candidate.class);
    candidate.inputs.iter().all(|&input| match &choices[input] {
        Some(input) if !input.needs.has(candidate.class) => {
            needed.add_all(&input.needs);
            true
        }
        _ => false,
    })
}

/// The candidates of a class that look best: none is cheaper than itself with the dearest of its inputs.
fn others(candidates: &[Candidate], choices: &[Option<Choice>], class: usize) -> Vec<usize> {
    let least = |candidate: &Candidate| {
        let inputs = candidate.inputs.iter().map(|&input| Some(choices[input].as_ref()?.seconds));
        let dearest = inputs.collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
        Some(candidate.seconds + dearest)
    };
    let of_class = candidates.iter().enumerate().filter(|(_, candidate)| candidate.class == class);
    let mut others: Vec<(usize, f64)> =
        of_class.filter_map(|(at, candidate)| Some((at, least(candidate)?))).collect();
    others.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    others.into_iter().map(|(at, _)| at).take(OTHERS_MAX).collect()
}

/// A candidate for each class that has one.
struct Plan<'a> {
    candidates: &'a [Candidate],
    chosen: Vec<Option<usize>>,
    root: usize,
}

impl Plan<'_> {
    /// Exchanges single choices for as long as the whole gets cheaper. Each was the cheapest by itself; beside
    /// the others, one that reads what they need anyway may be cheaper.
    fn improve(&mut self) {
        for _ in 0..IMPROVEMENTS_MAX {
            let Some(better) = self.improvement() else { return };
            let class = self.candidates[better].class;
            self.chosen[class] = Some(better);
        }
    }

    /// The first other choice for a class in use that makes the whole cheaper.
    fn improvement(&self) -> Option<usize> {
        let now = self.ordered()?;
        let seconds = self.seconds(&now);
        let mut is_used = vec![false; self.chosen.len()];
        now.iter().for_each(|&candidate| is_used[self.candidates[candidate].class] = true);
        let mut exchange = Exchange::new(self.chosen.len());
        let others = self.candidates.iter().enumerate().filter(|(at, candidate)| {
            is_used[candidate.class] && self.chosen[candidate.class] != Some(*at)
        });
        let mut others = others.filter_map(|(at, candidate)| {
            exchange.begin(self, &now, candidate.class);
            // Rounded in another order: what is about to be as cheap is looked at as a whole.
            let about = exchange.seconds(self, candidate)?;
            (about < seconds * (1.0 - GAIN_MIN / 2.0)).then_some(at)
        });
        others.find(|&other| {
            let mut chosen = self.chosen.clone();
            chosen[self.candidates[other].class] = Some(other);
            let plan = Plan { chosen, ..*self };
            let after = plan.ordered().map(|ordered| plan.seconds(&ordered));
            after.is_some_and(|after| after < seconds * (1.0 - GAIN_MIN))
        })
    }

    /// The same with the best other choice for the root, of those that differ: sums the other way round do not.
    fn runner_up(mut self, others: &[usize]) -> Option<Self> {
        let chosen = self.chosen[self.root]?;
        let least = self.seconds(&self.ordered()?) * (1.0 + DIFFERENCE_MIN);
        let seconds = others.iter().filter(|&&other| other != chosen).filter_map(|&other| {
            self.chosen[self.root] = Some(other);
            Some((other, self.seconds(&self.ordered()?))).filter(|(_, seconds)| *seconds > least)
        });
        let (best, _) = seconds.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        self.chosen[self.root] = Some(best);
        Some(self)
    }

    fn seconds(&self, ordered: &[usize]) -> f64 {
        ordered.iter().map(|&candidate| self.candidates[candidate].seconds).sum()
    }

    /// The chosen candidates that the root needs, inputs before users; none where they need one another.
    fn ordered(&self) -> Option<Vec<usize>> {
        let mut states = vec![State::New; self.chosen.len()];
        let mut ordered = Vec::new();
        self.visit(self.root, &mut states, &mut ordered)?;
        Some(ordered)
    }

    fn visit(&self, class: usize, states: &mut [State], ordered: &mut Vec<usize>) -> Option<()> {
        match states[class] {
            State::Done => return Some(()),
            State::Begun => return None,
            State::New => states[class] = State::Begun,
        }
        let candidate = self.chosen[class]?;
        for &input in &self.candidates[candidate].inputs {
            self.visit(input, states, ordered)?;
        }
        states[class] = State::Done;
        ordered.push(candidate);
        Some(())
    }
}

/// What a plan takes when another candidate computes one of its classes. Most of the plan stays as it is, and is added up once
/// for all candidates of the class.
struct Exchange {
    class: Option<usize>,
    /// Whether a class is needed by others than the exchanged one.
    is_kept: Vec<bool>,
    /// Whether a class is the exchanged one, or needs it.
    is_above: Vec<bool>,
    kept_seconds: f64,
    /// The candidate by whose turn each class was last reached, counted from 1.
    reached: Vec<usize>,
    turn: usize,
    open: Vec<usize>,
}

impl Exchange {
    fn new(count: usize) -> Self {
        Self {
            class: None,
            is_kept: vec![false; count],
            is_above: vec![false; count],
            kept_seconds: 0.0,
            reached: vec![0; count],
            turn: 0,
            open: Vec::new(),
        }
    }

    /// Looks at what stays of a plan, of which these candidates are needed, without a class.
    fn begin(&mut self, plan: &Plan<'_>, needed: &[usize], class: usize) {
        if self.class.replace(class) == Some(class) {
            return;
        }
        self.is_above.fill(false);
        self.is_above[class] = true;
        for &candidate in needed {
            let Candidate { class, inputs, .. } = &plan.candidates[candidate];
            self.is_above[*class] |= inputs.iter().any(|&input| self.is_above[input]);
        }
        self.is_kept.fill(false);
        self.is_kept[plan.root] = true;
        self.kept_seconds = 0.0;
        for &candidate in needed.iter().rev() {
            let candidate = &plan.candidates[candidate];
            if self.is_kept[candidate.class] && candidate.class != class {
                self.kept_seconds += candidate.seconds;
                candidate.inputs.iter().for_each(|&input| self.is_kept[input] = true);
            }
        }
    }

    /// About the seconds of the plan with this candidate for its class; none where that needs itself.
    fn seconds(&mut self, plan: &Plan<'_>, candidate: &Candidate) -> Option<f64> {
        self.turn += 1;
        let mut seconds = self.kept_seconds + candidate.seconds;
        self.open.clear();
        self.open.extend(&candidate.inputs);
        while let Some(class) = self.open.pop() {
            if self.is_above[class] {
                return None;
            }
            let is_there = self.is_kept[class] || self.reached[class] == self.turn;
            if !is_there {
                self.reached[class] = self.turn;
                let candidate = &plan.candidates[plan.chosen[class]?];
                seconds += candidate.seconds;
                self.open.extend(&candidate.inputs);
            }
        }
        Some(seconds)
    }
}

#[derive(Clone, Copy)]
enum State {
    New,
    Begun,
    Done,
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::exec::operation::Operation as Op;

    /// Candidates of classes that mostly read classes before them.
    fn random_candidates(count: usize, random: &mut SmallRng) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for class in 0..count {
            for _ in 0..random.random_range(1..5) {
                let input = |random: &mut SmallRng| {
                    let end = if random.random_bool(0.9) { class } else { count };
                    random.random_range(0..end)
                };
                let reads = if class < 3 { 0 } else { random.random_range(1..4) };
                let inputs = (0..reads).map(|_| input(random)).collect();
                let term = Term::new(Op::Transpose, []);
                let seconds = random.random_range(0.1..1.0);
                candidates.push(Candidate { class, term, inputs, seconds });
            }
        }
        candidates
    }

    /// The improvement that is found by adding up the whole plan with each other choice.
    fn first_improvement(plan: &Plan<'_>) -> Option<usize> {
        let now = plan.ordered()?;
        let least = plan.seconds(&now) * (1.0 - GAIN_MIN);
        let is_used =
            |class| now.iter().any(|&candidate| plan.candidates[candidate].class == class);
        (0..plan.candidates.len()).find(|&at| {
            let class = plan.candidates[at].class;
            let mut chosen = plan.chosen.clone();
            let before = chosen[class].replace(at);
            let other = Plan { chosen, ..*plan };
            let seconds = || Some(other.seconds(&other.ordered()?));
            is_used(class) && before != Some(at) && seconds().is_some_and(|after| after < least)
        })
    }

    #[test]
    fn exchanges_are_those_that_the_whole_plan_gains_by() {
        let mut improved = 0;
        for seed in 0..500 {
            let mut random = SmallRng::seed_from_u64(seed);
            let count = random.random_range(5..40);
            let candidates = random_candidates(count, &mut random);
            let choices = choose(&candidates, count);
            let chosen =
                choices.iter().map(|choice| choice.as_ref().map(|choice| choice.candidate));
            let mut plan =
                Plan { candidates: &candidates, chosen: chosen.collect(), root: count - 1 };
            for _ in 0..IMPROVEMENTS_MAX {
                let better = plan.improvement();
                assert_eq!(better, first_improvement(&plan), "seed {seed}");
                let Some(better) = better else { break };
                plan.chosen[candidates[better].class] = Some(better);
                improved += 1;
            }
        }
        assert!(improved > 100, "only {improved} are exchanged");
    }
}
