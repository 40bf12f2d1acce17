//! Runs matrix programs: [`MatrixExec`] is the one operator that DataFusion sees for a whole graph.
//!
//! Enters: a [`Program`] made by `planner::lower`, and the plans of the relations that it reads. Leaves:
//! batches, or one [`Matrix`]. Not here: what to compute, and in which order (`planner`).
//!
//! ```text
//! batches ─ intake ─ blocks ─ pass ─ parts ─ whole values ─ evaluate ─ … ─ emit ─ batches
//!           entries ────────────────────────┘
//! ```

mod block;
mod bridge;
pub(crate) mod contraction;
pub(crate) mod costs;
pub(crate) mod emit;
pub(crate) mod encoded;
pub(crate) mod entries;
pub(crate) mod evaluate;
pub(crate) mod expected;
pub(crate) mod explain;
pub(crate) mod expressions;
mod footprint;
pub(crate) mod intake;
pub mod kernels;
mod keys;
pub(crate) mod labels;
pub(crate) mod multiply;
pub(crate) mod offload;
pub(crate) mod operation;
mod pass;
pub(crate) mod program;
mod reader;
pub(crate) mod recall;
pub(crate) mod relational;
pub(crate) mod run;
pub(crate) mod stoppable;
pub(crate) mod transform;
pub(crate) mod value;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::stats::Precision;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PlanProperties, StatisticsContext,
};

use crate::config::GpuDevices;
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Cells, Labels, Matrix};
use crate::memory::{Pool, Refused};

pub(crate) use self::bridge::blocking;
use self::bridge::{Batches, Reserved, Sender, computing, streamed};
use self::costs::Runs;
use self::emit::Reading;
use self::offload::Failures;
use self::program::{Program, Slot};
use self::recall::Fingerprint;
pub(crate) use self::run::Cancel;
use self::run::{Inputs, Measured, Rows, Surroundings};

/// What every matrix operator of a database shares; kept in the session's configuration.
pub(crate) struct Engine {
    /// The threads that blocks and kernels run on.
    pub(crate) pool: rayon::ThreadPool,
    /// The memory of what they compute.
    pub(crate) blocks: Arc<Pool>,
    /// What runs show about the costs they were planned by.
    pub(crate) runs: Runs,
    /// What devices failed at.
    pub(crate) failures: Failures,
}

impl Engine {
    /// That of a session.
    fn of(context: &TaskContext) -> Result<Arc<Self>> {
        context.session_config().get_extension::<Self>().ok_or_else(|| {
            Error::from(ErrorKind::Internal("the session has no matrix engine".into()))
        })
    }
}

/// One input of a matrix operator.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    plan: Arc<dyn ExecutionPlan>,
    /// Whether the optimizer must leave the plan alone, for its rows come in stored order.
    is_fixed: bool,
    is_read: bool,
    ordering: Option<OrderingRequirements>,
}

impl Input {
    /// An input that is read as one stream, in its order where it has one.
    pub(crate) fn plain(plan: Arc<dyn ExecutionPlan>) -> Self {
        let ordering = plan.output_ordering().cloned().map(OrderingRequirements::from);
        Self { plan, is_fixed: false, is_read: true, ordering }
    }

    /// An input whose partitions, one after another, are its rows in an order that means something.
    pub(crate) fn in_stored_order(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan, is_fixed: true, is_read: true, ordering: None }
    }

    /// What stands for an input that nobody reads, for what is made of it is remembered.
    pub(crate) fn unread(&self) -> Self {
        let plan = Arc::new(EmptyExec::new(self.plan.schema()));
        Self { plan, is_fixed: true, is_read: false, ordering: None }
    }
}

/// A graph as an operator: any number of relations in, one partition of rows out.
#[derive(Debug)]
pub(crate) struct MatrixExec {
    program: Arc<Program>,
    inputs: Vec<Input>,
    /// For each relation whether the labels of its rows and columns are inputs too.
    given: Vec<[bool; 2]>,
    reading: Reading,
    properties: Arc<PlanProperties>,
    measured: Arc<Mutex<HashMap<Slot, Measured>>>,
}

impl MatrixExec {
    pub(crate) fn new(
        program: Program,
        inputs: Vec<Input>,
        given: Vec<[bool; 2]>,
        reading: Reading,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&reading.schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            program: Arc::new(program),
            inputs,
            given,
            reading,
            properties: Arc::new(properties),
            measured: Arc::default(),
        }
    }

    /// Runs the program and takes its result as a matrix.
    ///
    /// # Errors
    /// Whatever the program refuses.
    pub(crate) async fn matrix(&self, context: Arc<TaskContext>) -> Result<Matrix> {
        let cancel = Cancel::default();
        let job = self.job(&context, cancel.clone())?;
        let engine = Arc::clone(&job.engine);
        let work = move || job.run(&mut |_, _, _| Ok(()));
        // What reads nothing waits for nobody, and its kernels are where they want to be.
        let result = match self.inputs.is_empty() {
            true => computing(&engine.pool, cancel, work).await?,
            false => blocking(cancel, work).await?,
        };
        result.ok_or_else(|| ErrorKind::Internal("a program left no result".into()).into())
    }

    /// What tells the result from that of any other program; nothing where nobody remembers it.
    pub(crate) fn root_part(&self) -> Option<Fingerprint> {
        self.program.root_part
    }

    fn job(&self, context: &Arc<TaskContext>, cancel: Cancel) -> Result<Job> {
        let engine = Engine::of(context)?;
        let settings = context.session_config().get_extension::<crate::config::Settings>();
        let mut plans = self.inputs.iter().map(|input| &input.plan);
        let mut next = || {
            let missing = || ErrorKind::Internal("a relation has no input plan".into());
            plans.next().ok_or_else(|| Error::from(missing()))
        };
        let parts = |plan: &Arc<dyn ExecutionPlan>, coded: usize| -> Vec<Box<dyn Rows>> {
            let parts = 0..plan.output_partitioning().partition_count();
            parts
                .map(|part| Box::new(Batches::new(plan, part, context).coded(coded)) as _)
                .collect()
        };
        let mut inputs = Vec::with_capacity(self.given.len());
        for (&[rows_given, columns_given], intake) in self.given.iter().zip(&self.program.intakes) {
            let plan = next()?;
            let mut given =
                |is_given: bool| is_given.then(|| next().map(|plan| parts(plan, 0))).transpose();
            let given = [given(rows_given)?, given(columns_given)?];
            let rows = parts(plan, intake.coded_keys());
            inputs.push(Inputs { rows, count: certain_rows(plan)?, given });
        }
        Ok(Job {
            program: Arc::clone(&self.program),
            inputs,
            budget: Reserved::new(context, &engine.blocks),
            engine,
            cancel,
            tile_rows: settings.as_ref().and_then(|settings| settings.tile_rows()),
            gpu_devices: settings
                .as_ref()
                .map_or_else(Arc::default, |of| Arc::clone(&of.gpu_devices)),
            gpu_must_not_fail: settings.is_some_and(|settings| settings.gpu_must_not_fail),
            measured: Arc::clone(&self.measured),
        })
    }
}

/// How many rows a plan has, where that is certain.
fn certain_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &Default::default())?;
    Ok(match statistics.num_rows {
        Precision::Exact(rows) => Some(rows),
        _ => None,
    })
}

/// The scans below a plan, those that matrix operators keep to themselves among them.
pub(crate) fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let inputs: Vec<&Arc<dyn ExecutionPlan>> = match (plan.as_ref() as &dyn Any)
        .downcast_ref::<MatrixExec>()
    {
        Some(matrix) => {
            matrix.inputs.iter().filter(|input| input.is_read).map(|input| &input.plan).collect()
        }
        None if plan.children().is_empty() => return vec![Arc::clone(plan)],
        None => plan.children(),
    };
    inputs.into_iter().flat_map(scans).collect()
}

/// A program with everything it needs, on its way to a thread that may block.
struct Job {
    program: Arc<Program>,
    inputs: Vec<Inputs>,
    engine: Arc<Engine>,
    cancel: Cancel,
    budget: Reserved,
    tile_rows: Option<usize>,
    gpu_devices: Arc<GpuDevices>,
    gpu_must_not_fail: bool,
    measured: Arc<Mutex<HashMap<Slot, Measured>>>,
}

impl Job {
    fn run(
        mut self,
        emit: &mut (dyn FnMut(&Cells, Option<&Labels>, usize) -> Result<()> + Send),
    ) -> Result<Option<Matrix>> {
        let measured = |slot: Slot, measured: Measured| {
            let mut all = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = &measured.by_host {
                self.engine.failures.note(why);
            }
            let known = all.entry(slot).or_default();
            let by_host = measured.by_host.clone().or_else(|| known.by_host.take());
            let on_device = measured.on_device.or(known.on_device);
            *known = Measured { by_host, on_device, ..measured };
        };
        let around = Surroundings {
            pool: &self.engine.pool,
            cancel: &self.cancel,
            budget: &mut self.budget,
            emit,
            tile_rows: self.tile_rows,
            gpu_devices: &self.gpu_devices,
            gpu_must_not_fail: self.gpu_must_not_fail,
            measured: &measured,
        };
        let (program, inputs) = (&self.program, self.inputs);
        // A block that nobody has room for unwinds.
        let result = catch_unwind(AssertUnwindSafe(|| run::run(program, inputs, around)));
        let result = match result.map_err(|payload| payload.downcast::<Refused>()) {
            Ok(result) => result?,
            Err(Ok(refused)) => return Err(self.budget.refused(&self.program.text, &refused)),
            Err(Err(panic)) => resume_unwind(panic),
        };
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.runs.add(&self.program, &measured);
        Ok(result)
    }
}

impl ExecutionPlan for MatrixExec {
    fn name(&self) -> &str {
        "MatrixExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![
            Distribution::SinglePartition;
            self.children().len()
        ])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let free = self.inputs.iter().filter(|input| !input.is_fixed);
        free.map(|input| input.ordering.clone()).collect()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().filter(|input| !input.is_fixed).map(|input| &input.plan).collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let mut inputs = self.inputs.clone();
        let free = inputs.iter_mut().filter(|input| !input.is_fixed);
        for (input, child) in free.zip(children) {
            input.plan = child;
        }
        Ok(Arc::new(Self {
            program: Arc::clone(&self.program),
            inputs,
            given: self.given.clone(),
            reading: self.reading.clone(),
            properties: Arc::clone(&self.properties),
            measured: Arc::default(),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(
            &Arc<dyn PhysicalExpr>,
        ) -> datafusion::error::Result<
            datafusion::common::tree_node::TreeNodeRecursion,
        >,
    ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> datafusion::error::Result<SendableRecordBatchStream> {
        let cancel = Cancel::default();
        let job = self.job(&context, cancel.clone())?;
        let reading = self.reading.clone();
        let program = Arc::clone(&self.program);
        Ok(streamed(Arc::clone(&self.reading.schema), cancel, move |sender| {
            let columns = match &program.root_labels[1] {
                labels::AxisLabels::Known(labels) => Some(Labels::clone(labels)),
                _ => None,
            };
            let is_sparse = program.root_is_sparse;
            let engine = Arc::clone(&job.engine);
            let send = |cells: &Cells, rows: Option<&Labels>, columns: Option<&Labels>, first| {
                let mut batches = emit::batches(&reading, is_sparse, cells, rows, columns, first);
                while let Some(batch) = engine.pool.install(|| batches.next()).transpose()? {
                    sender.batch(batch)?;
                }
                Ok::<_, Error>(())
            };
            let result =
                job.run(&mut |cells, rows, first| send(cells, rows, columns.as_ref(), first))?;
            if let Some(matrix) = result {
                send(matrix.cells(), matrix.row_labels(), matrix.column_labels(), 0)?;
            }
            Ok(())
        }))
    }
}

impl DisplayAs for MatrixExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
                write!(f, "MatrixExec: ")?;
                if let Some(best) = &self.reading.best {
                    write!(f, "{best} ")?;
                }
                write!(f, "{}", self.program.text)?;
                explain::steps(&self.program, &measured, f)?;
                for input in self.inputs.iter().filter(|input| input.is_fixed && input.is_read) {
                    let plan = datafusion::physical_plan::displayable(input.plan.as_ref());
                    for line in plan.indent(false).to_string().lines() {
                        write!(f, "\n    | {line}")?;
                    }
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => write!(f, "expression={}", self.program.text),
        }
    }
}
