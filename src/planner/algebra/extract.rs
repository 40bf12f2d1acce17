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
    fn of(class: usize, count: usize) -> Self {
        let mut words = vec![0; count.div_ceil(64)];
        words[class / 64] |= 1 << (class % 64);
        Self(words)
    }

    fn has(&self, class: usize) -> bool {
        self.0[class / 64] >> (class % 64) & 1 == 1
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let next = |rest: &u64| Some(rest & (rest - 1)).filter(|rest| *rest != 0);
            let rests = std::iter::successors(Some(word).filter(|word| *word != 0), next);
            rests.map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
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
        terms.sort_by_key(|term| !written.contains(term));
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
    // The classes whose choice is new to those who read them, first all.
    let mut news = vec![true; count];
    while news.contains(&true) {
        let old = std::mem::replace(&mut news, vec![false; count]);
        for (at, candidate) in candidates.iter().enumerate() {
            let is_first = candidate.inputs.is_empty() && choices[candidate.class].is_none();
            let is_new = |input: &usize| old[*input] || news[*input];
            if !is_first && !candidate.inputs.iter().any(is_new) {
                continue;
            }
            let Some(needs) = needs(candidate, &choices, count) else { continue };
            let others = needs.iter().filter(|&class| class != candidate.class);
            let own_of = |class: usize| {
                choices[class].as_ref().map_or(0.0, |choice| candidates[choice.candidate].seconds)
            };
            let seconds = candidate.seconds + others.map(own_of).sum::<f64>();
            let known = &mut choices[candidate.class];
            if known.as_ref().is_none_or(|known| seconds < known.seconds * (1.0 - GAIN_MIN)) {
                *known = Some(Choice { candidate: at, seconds, needs });
                news[candidate.class] = true;
            }
        }
    }
    choices
}

/// What a candidate needs; none while an input has no choice yet, or itself needs the candidate's class.
fn needs(candidate: &Candidate, choices: &[Option<Choice>], count: usize) -> Option<ClassSet> {
    let mut needs = ClassSet::of(candidate.class, count);
    for &input in &candidate.inputs {
        let input = choices[input].as_ref()?;
        if input.needs.has(candidate.class) {
            return None;
        }
        needs.add_all(&input.needs);
    }
    Some(needs)
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
            let Some(now) = self.ordered() else { return };
            let seconds = self.seconds(&now);
            let used: FxHashSet<usize> =
                now.iter().map(|&candidate| self.candidates[candidate].class).collect();
            let alternatives = self.candidates.iter().enumerate().filter(|(at, candidate)| {
                used.contains(&candidate.class) && self.chosen[candidate.class] != Some(*at)
            });
            let alternatives: Vec<usize> = alternatives.map(|(at, _)| at).collect();
            let is_better = alternatives.into_iter().any(|alternative| {
                let class = self.candidates[alternative].class;
                let before = self.chosen[class].replace(alternative);
                let after = self.ordered().map(|ordered| self.seconds(&ordered));
                let is_better = after.is_some_and(|after| after < seconds * (1.0 - GAIN_MIN));
                if !is_better {
                    self.chosen[class] = before;
                }
                is_better
            });
            if !is_better {
                return;
            }
        }
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

#[derive(Clone, Copy)]
enum State {
    New,
    Begun,
    Done,
}
