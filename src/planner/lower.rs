//! Graph → [`MatrixExec`]: the last pass, and the only one that knows operators.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;
use rustc_hash::FxHashSet;

use super::algebra::{self, Rewritten};
use super::calibration::Calibration;
use super::cost::CostModel;
use super::estimate::{Estimate, estimate};
use super::graph::{Graph, Node, NodeId};
use super::matrix_node::MatrixNode;
use super::ordered::ordered_input;
use super::patterns::Expected;
use super::place;
use super::remembered::{Recalled, Remembering};
use super::schedule;
use super::written::{Written, texts};
use crate::config::{GpuPrecision, Settings};
use crate::error::{ErrorKind, Result};
use crate::exec::emit::Form;
use crate::exec::emit::Reading;
use crate::exec::labels::{AxisLabels, Recipe};
use crate::exec::offload;
use crate::exec::offload::observed::{self, By};
use crate::exec::operation::{Axis, Operation as Op};
use crate::exec::program::{Note, Program};
use crate::exec::{Input, MatrixExec};
use crate::matrix::Shape;

/// Plans [`MatrixNode`]s.
#[derive(Debug)]
pub(crate) struct MatrixPlanner;

#[async_trait]
impl ExtensionPlanner for MatrixPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> datafusion::error::Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(matrix) = node.as_any().downcast_ref::<MatrixNode>() else { return Ok(None) };
        let mut inputs = Inputs::default();
        let mut at = 0;
        for relation in &matrix.graph.relations {
            let physical = &physical_inputs[at];
            inputs.rows.push(expected_rows(physical)?);
            // Even where no result shows the order of the rows, the last bits of a sum do.
            let sorted = physical.properties().output_ordering().is_some();
            inputs.plans.push(if relation.is_ordered && !sorted {
                Input::in_stored_order(ordered_input(planner, logical_inputs[at], session).await?)
            } else {
                Input::plain(Arc::clone(physical))
            });
            let first = at;
            at += 1;
            for _ in relation.given.iter().flatten() {
                let ordered = ordered_input(planner, logical_inputs[at], session).await?;
                inputs.plans.push(Input::in_stored_order(ordered));
                at += 1;
            }
            inputs.planned.push(logical_inputs[first..at].to_vec());
        }
        let remembering = session.config().get_extension::<Remembering>();
        let exec = lower(matrix, inputs, session.config(), remembering.as_deref())?;
        Ok(Some(Arc::new(exec)))
    }
}

/// The rows that DataFusion expects of a plan, exactly or about.
pub(super) fn expected_rows(
    plan: &Arc<dyn ExecutionPlan>,
) -> datafusion::error::Result<Option<f64>> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &Default::default())?;
    Ok(match statistics.num_rows {
        Precision::Exact(rows) | Precision::Inexact(rows) => Some(rows as f64),
        Precision::Absent => None,
    })
}

/// Seconds, by the built-in constants, from which the measured ones are worth asking for: what takes less is planned
/// alike everywhere, and never waits for a measurement.
const CALIBRATED_SECONDS_MIN: f64 = 0.01;

/// What a graph reads.
#[derive(Default)]
struct Inputs<'a> {
    /// Of each relation its rows, then the labels given for its rows and columns.
    plans: Vec<Input>,
    /// Of each relation how many rows are expected.
    rows: Vec<Option<f64>>,
    /// Of each relation the plans that became those.
    planned: Vec<Vec<&'a LogicalPlan>>,
}

impl Inputs<'_> {
    /// The plans, but for those of relations that nobody reads.
    fn read(self, unread: &FxHashSet<usize>) -> Vec<Input> {
        let relations = self.planned.iter().enumerate();
        let relations = relations.flat_map(|(at, plans)| std::iter::repeat_n(at, plans.len()));
        let read = |(plan, relation): (Input, usize)| match unread.contains(&relation) {
            true => plan.unread(),
            false => plan,
        };
        self.plans.into_iter().zip(relations).map(read).collect()
    }
}

/// Rewrites, estimates, fuses and orders a graph, and makes the operator that runs it.
fn lower(
    matrix: &MatrixNode,
    inputs: Inputs<'_>,
    session: &SessionConfig,
    remembering: Option<&Remembering>,
) -> Result<MatrixExec> {
    let settings = session.get_extension::<Settings>().unwrap_or_default();
    let settings = settings.as_ref();
    let calibration = session.get_extension::<Calibration>();
    let calibration = calibration.filter(|_| settings.measured_costs);
    let relation_rows = &inputs.rows[..];
    let built_in = CostModel::default();
    let written = estimate(&matrix.graph, relation_rows, &built_in);
    let is_worth_it = total(&matrix.graph, matrix.root, &written) >= CALIBRATED_SECONDS_MIN;
    let measured = calibration.filter(|_| is_worth_it).map(|measured| measured.model());
    let is_by_measured_costs = measured.is_some();
    let cost = measured.unwrap_or(built_in).under(settings);
    let rewritten = if settings.rewrites {
        algebra::rewrite(&matrix.graph, matrix.root, relation_rows, &cost)
    } else {
        Rewritten { graph: Graph::clone(&matrix.graph), root: matrix.root, runner_up: None }
    };
    let written = estimate(&matrix.graph, relation_rows, &cost);
    let Rewritten { graph, root, runner_up } = rewritten;
    let estimates = estimate(&graph, relation_rows, &cost);
    let remembering = remembering
        .filter(|remembering| remembering.is_worth_it(&graph, total(&graph, root, &estimates)));
    let recalled = match remembering {
        Some(remembering) => {
            remembering.recalled(graph, root, &inputs.planned, labels_wanted(matrix))
        }
        None => Recalled::nothing(graph, root),
    };
    let (graph, root) = (&recalled.graph, recalled.root);
    let estimates = match recalled.is_known {
        true => estimate(graph, relation_rows, &cost),
        false => estimates,
    };
    let seconds = [total(graph, root, &estimates), total(&matrix.graph, matrix.root, &written)];
    let emit =
        matrix.form != Form::Whole && labels_stream(&matrix.graph, matrix.root, &recalled.unread);
    let options = schedule::Options { fusion: settings.fusion(), emit };
    let expected = Expected { graph, estimates: &estimates, cost: &cost };
    let schedule::Scheduled { mut steps, mut fusions } = schedule::steps(expected, root, options);
    let texts = texts(graph);
    let text = texts[root.index()].clone();
    let (mut arithmetics, mut missed, mut host_seconds) = (HashMap::new(), Vec::new(), None);
    let gpu = settings.gpu_use();
    let fallen = gpu.fallen(|| offload::falls::why(&text));
    let sought = place::devices(&gpu, seconds[0]).filter(|_| fallen.is_none());
    if let Some(sought) = sought {
        let (device, precision) = (&sought.next, settings.gpu_precision);
        let target = place::Target {
            devices: &sought.all,
            rates: *device.rates(),
            memory_bytes: sought.memory_bytes(),
            precision: if place::has(device, precision) { precision } else { GpuPrecision::Off },
            keeps: settings.gpu_keeps,
            graphs: settings.gpu_graphs,
            decomposes: place::decomposes(&steps, device),
            finds_eigenvalues: place::finds_eigenvalues(&steps, device),
            factors: [By::Device, By::Host].map(|by| observed::factor(by, &text)),
        };
        let placed = place::place(steps, root.index(), expected, target, settings.gpu);
        (steps, missed, host_seconds) = (placed.steps, placed.missed, placed.host_seconds);
        arithmetics = place::less_precise(&steps, expected, target.precision);
    }
    let note = |((id, _), text): ((NodeId, _), String)| {
        let fusion = fusions.remove(&id);
        let arithmetic = arithmetics.get(&id.index()).copied();
        Note { fusion, arithmetic, ..note(graph, id, text, &estimates[id.index()]) }
    };
    let notes = graph.nodes().zip(texts).map(note).collect();
    let given: Vec<[bool; 2]> = graph
        .relations
        .iter()
        .map(|relation| relation.given.each_ref().map(Option::is_some))
        .collect();
    let program = Program {
        watch: remembering.and_then(|remembering| recalled.watch(remembering, &steps)),
        steps,
        intakes: graph.relations.iter().map(|relation| relation.intake.clone()).collect(),
        checks: graph.checks.clone(),
        root: root.index(),
        root_labels: matrix.graph.node(matrix.root).labels.clone(),
        root_is_sparse: matrix.is_sparse,
        slots: graph.len(),
        notes,
        text,
        seconds,
        // What is written has a place of its own, and beside what is known nothing else was looked for.
        runner_up: runner_up.filter(|(text, _)| {
            !recalled.is_known && *text != Written(&matrix.graph, matrix.root).to_string()
        }),
        is_by_measured_costs,
        missed,
        host_seconds,
        fallen,
        known_labels: recalled.labels.clone(),
        root_part: recalled.root_part(),
    };
    let schema = Arc::clone(matrix.schema().inner());
    let reading = Reading { form: matrix.form, best: matrix.best, schema };
    let inputs = inputs.read(&recalled.unread);
    Ok(MatrixExec::new(program, inputs, given, reading))
}

/// The labels that a result has, and those that are compared before.
fn labels_wanted(matrix: &MatrixNode) -> impl Iterator<Item = &AxisLabels> {
    let compared = matrix.graph.checks.iter().flat_map(|check| [&check.left, &check.right]);
    let aligned = matrix.graph.alignments.iter().flatten();
    matrix.graph.node(matrix.root).labels.iter().chain(compared).chain(aligned)
}

/// Seconds of all that a root needs; what an iteration repeats is in the iteration's.
fn total(graph: &Graph, root: NodeId, estimates: &[Estimate]) -> f64 {
    let varies = graph.varying();
    let needed = graph.needed(root);
    let once = |id: &NodeId| needed.contains(id) && !varies[id.index()];
    graph.nodes().map(|(id, _)| id).filter(once).map(|id| estimates[id.index()].seconds).sum()
}

/// Whether the labels of a result are there as its rows leave: its row labels are the keys of the one
/// relation that it streams from, which is read, and its column labels are known.
fn labels_stream(graph: &Graph, root: NodeId, unread: &FxHashSet<usize>) -> bool {
    let node = graph.node(root);
    let rows = match &node.labels[0] {
        AxisLabels::None => true,
        AxisLabels::Known(_) => false,
        AxisLabels::Deferred(deferred) => match deferred.recipe {
            Recipe::Relation { relation, axis: Axis::Rows } => {
                // The relation whose rows the result has.
                let is_it = |leaf: &Node| {
                    leaf.operation == Op::Relation(relation) && leaf.rows == node.rows
                };
                !unread.contains(&relation) && graph.nodes().any(|(_, leaf)| is_it(leaf))
            }
            _ => false,
        },
    };
    rows && !matches!(node.labels[1], AxisLabels::Deferred(_)) && graph.checks.is_empty()
}

/// What EXPLAIN says about a node that is written as `text`.
fn note(graph: &Graph, id: NodeId, text: String, estimate: &Estimate) -> Note {
    let node = graph.node(id);
    let guessed = |known: usize, guess: f64| match known {
        Shape::UNKNOWN => format!("~{guess:.0}"),
        known => known.to_string(),
    };
    let shape = node.shape();
    Note {
        text,
        shape: format!(
            "{}x{}",
            guessed(shape.rows, estimate.rows),
            guessed(shape.columns, estimate.columns)
        ),
        element: node.element,
        layout: estimate.layout.to_string(),
        density: estimate.density,
        bytes: estimate.bytes,
        seconds: estimate.seconds,
        bound: estimate.bound,
        is_exact: graph.is_sized(id),
        product: estimate.product,
        other_layout: estimate.other_layout.map(|(layout, bytes)| (layout.to_string(), bytes)),
        place: node.place,
        fusion: None,
        arithmetic: None,
    }
}

/// The operator of a plan made for [`Form::Whole`] that reads no relation: DataFusion has nothing to plan in it.
///
/// # Errors
/// As planning does.
pub(crate) fn lone_exec(
    plan: &LogicalPlan,
    session: &SessionConfig,
    remembering: Option<&Remembering>,
) -> Result<Option<MatrixExec>> {
    match whole_node(plan) {
        Some(matrix) if matrix.inputs.is_empty() => {
            lower(matrix, Inputs::default(), session, remembering).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether a plan has a matrix in it.
pub(crate) fn has_matrix(plan: &LogicalPlan) -> bool {
    let is_one = |plan: &LogicalPlan| match plan {
        LogicalPlan::Extension(extension) => Ok(extension.node.as_any().is::<MatrixNode>()),
        _ => Ok(false),
    };
    plan.exists(is_one).unwrap_or(true)
}

/// The matrix of a plan made for [`Form::Whole`].
pub(crate) fn whole_node(plan: &LogicalPlan) -> Option<&MatrixNode> {
    let mut plan = plan;
    loop {
        if let LogicalPlan::Extension(extension) = plan {
            return extension.node.as_any().downcast_ref();
        }
        let [input] = plan.inputs()[..] else { return None };
        plan = input;
    }
}

/// The matrix operator of a physical plan made for [`Form::Whole`].
///
/// # Errors
/// Where there is none, which would be a mistake of ours.
pub(crate) fn matrix_exec(plan: &Arc<dyn ExecutionPlan>) -> Result<&MatrixExec> {
    let mut plan = plan;
    loop {
        if let Some(exec) = (plan.as_ref() as &dyn std::any::Any).downcast_ref::<MatrixExec>() {
            return Ok(exec);
        }
        let [child] = plan.children()[..] else {
            return Err(
                ErrorKind::Internal("a matrix is computed by a matrix operator".into()).into()
            );
        };
        plan = child;
    }
}
