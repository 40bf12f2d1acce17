//! What a connection knows, and what becomes of a statement.
//!
//! [`new_state`] lists everything that Relatrix adds to DataFusion; [`Session::start`] is the way of a
//! statement from syntax to rows.

mod analyze;
mod calibrate;
mod copy;
mod defaults;
mod define;
mod explain;
mod gpu;
mod groups;
mod memory;
mod parameters;
mod plans;
mod prepare;
mod recall;
mod recent;
mod remember;
mod settings;
mod strategies;
mod templates;
mod within;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch, UInt64Array};
use arrow::datatypes::{Schema, UInt64Type};
use async_trait::async_trait;
use datafusion::catalog::Session as PlanningSession;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::spill_file::TempFileFactory;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Analyze, Explain, LogicalPlan, Statement as PlannedStatement};
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as SqlStatement;
use futures::FutureExt;

use crate::cache::{Cache, Question};
use crate::catalog::{CATALOG, Catalog, LocalFiles, SCHEMA, Scope};
use crate::config::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::costs::Runs;
use crate::exec::expressions::with_ours;
use crate::exec::offload::Failures;
use crate::exec::{self, Engine};
use crate::functions;
use crate::matrices::{self, Matrices};
use crate::matrix::Matrix;
use crate::memory::{Budget, Disk, Eviction, Kept, Pool, Spills, Turns, task};
use crate::pages::{KeptColumns, ParquetByPages, Shared};
use crate::planner::computed::ComputedExpressions;
use crate::planner::cooperative::{self, CooperativeJoins};
use crate::planner::encoded::EncodedScans;
use crate::planner::in_order::{self, RowsInOrder};
use crate::planner::modify::{self, ModifyPlanner};
use crate::planner::offloaded::OffloadedOperators;
use crate::planner::ordered_aggregates::OrderedAggregates;
use crate::planner::remembered::WatchedPlanner;
use crate::planner::shared::{RunOnce, SharedPlanner};
use crate::planner::spilling::{SpillingAggregates, SpillingSorts};
use crate::planner::transform::TransformFilter;
use crate::planner::{
    Calibration, Choices, ContractionPlanner, Evidence, FirstParts, FirstRowsPlanner,
    MatrixPlanner, NearestRows, Statistics, ordered, partitions, relational,
};
use crate::query::{Outcome, ResultSet, ResultStream, Running, Statements};
use crate::sql::{self, DisplayNames, Statement, StatementKind};
use crate::value::Parameters;

use self::explain::Explained;
use self::plans::Planning;
use self::recent::Recent;
use self::remember::Asked;
use self::strategies::{Again, Strategies};
use self::templates::Choice;

/// DataFusion's defaults and all our additions to them: what a new connection starts from.
pub(crate) fn new_state(settings: &Settings, resources: &Resources) -> Result<SessionState> {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_extension(Arc::new(settings.clone()))
        .with_extension(Arc::clone(&resources.engine))
        .with_extension(Arc::clone(&resources.calibration));
    settings.apply(config.options_mut());
    // The rows of a matrix have an order: an ORDER BY in a sub-query means something there. Where it
    // does not, the physical planner drops the sort all the same.
    config.options_mut().sql_parser.enable_subquery_sort_elimination = false;
    // A CASE that cannot be NULL by its conditions is known to be so in logical plans alone.
    config.options_mut().execution.skip_physical_aggregate_schema_check = true;
    let evidence = Evidence::new(&resources.statistics, &resources.calibration);
    let by_pages = Shared {
        kept: Arc::clone(&resources.columns),
        footers: resources.environment.cache_manager.get_file_metadata_cache(),
        computed: with_ours,
    };
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::clone(&resources.environment))
        .with_expr_planners(relational::expr_planners())
        .with_default_features()
        .with_type_planner(Arc::new(relational::TypeNames))
        .with_analyzer_rules(relational::analyzer_rules())
        .with_optimizer_rules(relational::optimizer_rules(&evidence))
        .with_physical_optimizer_rules(relational::physical_optimizer_rules(&evidence))
        .with_physical_optimizer_rule(Arc::new(ParquetByPages(by_pages)))
        .with_physical_optimizer_rule(Arc::new(NearestRows))
        .with_physical_optimizer_rule(Arc::new(OffloadedOperators::new(evidence.clone())))
        .with_physical_optimizer_rule(Arc::new(TransformFilter))
        .with_physical_optimizer_rule(Arc::new(OrderedAggregates))
        .with_physical_optimizer_rule(Arc::new(ComputedExpressions))
        .with_physical_optimizer_rule(Arc::new(SpillingSorts))
        .with_physical_optimizer_rule(Arc::new(FirstParts))
        .with_physical_optimizer_rule(Arc::new(SpillingAggregates))
        .with_physical_optimizer_rule(Arc::new(CooperativeJoins))
        .with_physical_optimizer_rule(Arc::new(RowsInOrder))
        .with_physical_optimizer_rule(Arc::new(RunOnce))
        .with_physical_optimizer_rule(Arc::new(EncodedScans))
        .with_query_planner(Arc::new(Planner))
        .build();
    functions::register(&mut state)?;
    Ok(state)
}

/// DataFusion's physical planner with those of our nodes.
#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn PlanningSession,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let nodes = vec![
            Arc::new(ModifyPlanner) as _,
            Arc::new(MatrixPlanner) as _,
            Arc::new(ContractionPlanner) as _,
            Arc::new(FirstRowsPlanner) as _,
            Arc::new(SharedPlanner) as _,
            Arc::new(WatchedPlanner) as _,
        ];
        DefaultPhysicalPlanner::with_extension_planners(nodes)
            .create_physical_plan(plan, session)
            .await
    }
}

/// What the connections of a database share.
#[derive(Clone)]
pub(crate) struct Resources {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) matrices: Arc<Matrices>,
    /// The memory of matrices.
    pub(crate) blocks: Arc<Pool>,
    /// The memory of all.
    pub(crate) budget: Arc<Budget>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) eviction: Arc<Eviction>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) cache: Arc<Cache>,
    /// Columns of Parquet files.
    pub(crate) columns: Arc<KeptColumns>,
    environment: Arc<RuntimeEnv>,
    files: Arc<LocalFiles>,
    statistics: Arc<Statistics>,
    strategies: Arc<Strategies>,
    calibration: Arc<Calibration>,
    engine: Arc<Engine>,
}

impl Resources {
    /// Those of an empty database.
    ///
    /// # Errors
    /// Where the operating system refuses threads or the temporary directory.
    pub(crate) fn new(settings: &Settings, reclaim: Option<fn()>) -> Result<Self> {
        let disk = Disk::new(settings.temp_directories.clone());
        disk.set_threshold(settings.disk_threshold_percent);
        disk.set_rate(settings.io_bytes_per_second);
        disk.set_ahead(settings.ahead_bytes_max(), settings.ahead_pages);
        let blocks = Pool::on(Arc::clone(&disk), settings.pool_limits());
        let served = Arc::clone(&blocks);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.threads)
            .start_handler(move |_thread| served.serve_this_thread())
            .build()
            .map_err(|error| ErrorKind::Internal(error.to_string()))?;
        let budget = Budget::new(settings.memory_limits(), Arc::clone(&blocks), reclaim);
        let files = Arc::new(LocalFiles::default());
        let environment = environment(&budget, &disk, &files)?;
        let footers = environment.cache_manager.get_file_metadata_cache();
        let eviction = Eviction::new(&environment.memory_pool, settings.thresholds());
        budget.evict_from(&eviction);
        let limits = settings.result_cache_limits();
        let cache = Cache::new(&environment.memory_pool, &blocks, &eviction, limits);
        cache.set_directory(settings.result_cache_directory());
        Ok(Self {
            catalog: Arc::default(),
            matrices: Arc::new(Matrices::new(
                Arc::clone(&environment.memory_pool),
                Arc::clone(&blocks),
                Arc::clone(&eviction),
            )),
            budget,
            disk,
            turns: Turns::new(settings.memory_limit_bytes),
            cache,
            columns: KeptColumns::new(
                &environment.memory_pool,
                &eviction,
                settings.parquet_cache_limits(),
            ),
            eviction,
            environment,
            files,
            statistics: Arc::new(Statistics::new(footers)),
            strategies: Arc::default(),
            calibration: Arc::new(Calibration::of_user()),
            engine: Arc::new(Engine {
                pool,
                blocks: Arc::clone(&blocks),
                runs: Runs::on(settings.threads),
                failures: Failures::default(),
            }),
            blocks,
        })
    }
}

/// Memory and temporary files for statements.
///
/// # Errors
/// None but DataFusion's.
fn environment(
    budget: &Arc<Budget>,
    disk: &Arc<Disk>,
    files: &Arc<LocalFiles>,
) -> Result<Arc<RuntimeEnv>> {
    let spills: Arc<dyn TempFileFactory> = Arc::new(Spills::new(Arc::clone(disk)));
    let builder = RuntimeEnvBuilder::new()
        .with_memory_pool(budget.share())
        .with_disk_manager_builder(DiskManagerBuilder::default().with_temp_file_factory(spills))
        // A list of files is not kept: a file written a moment ago must be found.
        .with_object_list_cache_limit(0);
    let environment = builder.build_arc()?;
    let here = ObjectStoreUrl::local_filesystem();
    environment.register_object_store(here.as_ref(), Arc::clone(files) as _);
    Ok(environment)
}

/// A connection's settings, prepared statements, temporary names, and the database's catalog.
pub(crate) struct Session {
    pub(crate) shared: Resources,
    /// The database's matrices, and above them those of this session alone.
    matrices: Arc<Matrices>,
    temporary: Arc<Catalog>,
    /// DataFusion's settings and functions; its catalog is made anew for each statement.
    context: SessionContext,
    /// What the context holds, until it is changed: to copy it takes longer than to plan a small statement.
    state: Mutex<Option<Arc<SessionState>>>,
    /// The settings under which questions are asked, until one is changed.
    asked_under: Mutex<Option<Arc<str>>>,
    settings: Mutex<Settings>,
    /// Functions that this session has no more.
    dropped_functions: Mutex<BTreeSet<String>>,
    /// What RESET goes back to.
    defaults: Settings,
    prepared: Mutex<HashMap<String, prepare::Prepared>>,
    plans: Mutex<Recent<plans::Known>>,
    templates: Mutex<Recent<templates::Known>>,
    /// Queries of which a plan was known.
    plan_hits: AtomicU64,
    pub(crate) statements: Arc<Statements>,
    planning_time: Mutex<Duration>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What a statement became, before anybody decides to wait for it or not.
pub(crate) enum Started {
    Rows(ResultStream),
    Count(u64),
    Done,
}

impl Started {
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Started::Rows(stream) => Outcome::Rows(ResultSet::new(stream)),
            Started::Count(count) => Outcome::Count(count),
            Started::Done => Outcome::Done,
        }
    }

    /// The rows, or one row with the count, or no row of no column.
    pub(crate) fn rows(self) -> Result<ResultStream> {
        match self {
            Started::Rows(stream) => Ok(stream),
            Started::Count(count) => {
                let counts = Arc::new(UInt64Array::from(vec![count]));
                let batch = RecordBatch::try_from_iter([("count", counts as _)])?;
                Ok(ResultStream::of(batch.schema(), vec![batch]))
            }
            Started::Done => Ok(ResultStream::of(Arc::new(Schema::empty()), Vec::new())),
        }
    }
}

/// The value behind a lock whose holders never leave it half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(shared: Resources, defaults: Settings, state: SessionState) -> Self {
        Self {
            context: SessionContext::new_with_state(state),
            state: Mutex::default(),
            asked_under: Mutex::default(),
            matrices: Arc::new(Matrices::of_session(Arc::clone(&shared.matrices))),
            shared,
            temporary: Arc::default(),
            settings: Mutex::new(defaults.clone()),
            dropped_functions: Mutex::default(),
            defaults,
            prepared: Mutex::default(),
            plans: Mutex::default(),
            templates: Mutex::default(),
            plan_hits: AtomicU64::new(0),
            statements: Arc::default(),
            planning_time: Mutex::default(),
        }
    }

    pub(crate) fn time_limit(&self) -> Option<Duration> {
        locked(&self.settings).time_limit()
    }

    pub(crate) fn set_time_limit(&self, limit: Option<Duration>) {
        let milliseconds = limit.map_or(0, |limit| limit.as_millis().max(1) as u64);
        locked(&self.settings).statement_timeout_ms = milliseconds;
    }

    pub(crate) fn planning_time(&self) -> Duration {
        *locked(&self.planning_time)
    }

    /// The way of a statement, once it is its turn.
    pub(crate) async fn start(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        running: &Arc<Running>,
    ) -> Result<Started> {
        running.take(self.shared.turns.turn().await);
        self.shared.eviction.make_room(0);
        let started = self.started(statement, parameters, running).await;
        if !matches!(started, Ok(Started::Rows(_))) {
            running.end_turn();
        }
        started
    }

    /// The way of a statement: names in matrix expressions are resolved, then it is SQL to be planned and
    /// run, or one of the statements about matrices.
    ///
    /// What few statements do is boxed: all that a future may do without has its place in one frame on the stack, and a page of
    /// that which nobody needs takes a microsecond of each statement.
    async fn started(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        running: &Arc<Running>,
    ) -> Result<Started> {
        *locked(&self.planning_time) = Duration::ZERO;
        let scope = self.scope();
        let matrices = self.matrices(&scope, parameters.clone(), running);
        let rows =
            |batch: RecordBatch| Started::Rows(ResultStream::of(batch.schema(), vec![batch]));
        match matrices.resolved(statement)? {
            StatementKind::Sql(syntax) => {
                self.sql(*syntax, statement.text(), parameters, running).await
            }
            StatementKind::CreateMatrix(create) => {
                matrices.create(*create).boxed().await.map(|_plan| Started::Done)
            }
            StatementKind::DropMatrix { name, if_exists } => {
                matrices.drop(&name, if_exists).map(|()| Started::Done)
            }
            StatementKind::ShowMatrices => matrices.show().map(rows),
            StatementKind::Calibrate => self.calibrate().boxed().await.map(rows),
            StatementKind::ShowCosts => self.show_costs().map(rows),
            StatementKind::ShowCache => self.show_cache().map(rows),
            StatementKind::ShowStrategies => self.show_strategies().map(rows),
            StatementKind::DescribeMatrix { name } => {
                matrices.describe(&name).boxed().await.map(rows)
            }
            StatementKind::CopyMatrix(copy) => {
                matrices.copy(copy).boxed().await.map(Started::Count)
            }
            StatementKind::Explain(explain) => {
                let began = Instant::now();
                let choices = explain.format.is_none().then(Choices::default);
                match explain::explain(&matrices, explain).boxed().await? {
                    Explained::Analyzed(batch) => Ok(rows(batch)),
                    Explained::Plan(plan) => {
                        let plan = self.optimized(&scope, &plan, choices)?;
                        let names = DisplayNames::default();
                        let way = Way { scope: &scope, names: &names, began, running };
                        self.run(&way, plan, None, None, None).boxed().await
                    }
                }
            }
            StatementKind::Transaction(_) => {
                Err(Error::unsupported("transactions come with durable storage"))
            }
            StatementKind::Analyze { table } => {
                self.analyze(table.as_ref()).boxed().await.map(|()| Started::Done)
            }
        }
    }

    /// The matrix of a name or an expression.
    pub(crate) async fn matrix(
        &self,
        text: &str,
        parameters: Parameters,
        running: &Arc<Running>,
    ) -> Result<Matrix> {
        running.take(self.shared.turns.turn().await);
        self.matrices(&self.scope(), parameters, running).matrix(text).await
    }

    fn matrices(
        &self,
        scope: &Arc<Scope>,
        parameters: Parameters,
        running: &Arc<Running>,
    ) -> matrices::Statements {
        let (matrices, scope) = (Arc::clone(&self.matrices), Arc::clone(scope));
        let (running, recall) = (Arc::clone(running), self.recall(false));
        matrices::Statements { matrices, scope, parameters, running, recall }
    }

    /// The way of a statement that is SQL, written as `text`: an answer at once, or a plan, then rows.
    async fn sql(
        &self,
        mut syntax: SqlStatement,
        text: &str,
        parameters: &Parameters,
        running: &Arc<Running>,
    ) -> Result<Started> {
        let began = Instant::now();
        parameters::number_question_marks(&mut syntax);
        copy::rewrite(&mut syntax)?;
        settings::rewrite(&mut syntax);
        let mut names = DisplayNames::written(&syntax);
        functions::expand(&mut syntax);
        let known = self.scope().columns(sql::merged_tables(&syntax)).await;
        sql::distinguish(&mut syntax, &mut names, &known)?;
        if let Some(answer) = self.answer(&syntax, running).boxed().await? {
            return Ok(answer);
        }
        if let Some((syntax, parameters)) = self.prepared(&syntax).boxed().await? {
            return Box::pin(self.sql(syntax, text, &parameters, running)).await;
        }
        let scope = self.scope();
        if let Some(shown) = self.analyzed(&syntax, text, parameters, &scope)? {
            return Ok(Started::Rows(ResultStream::of(shown.schema(), vec![shown])));
        }
        let asked = self.asked(&syntax, text, parameters, &scope);
        if let Some(rows) = asked.as_ref().and_then(Asked::answer) {
            return Ok(self.answered(rows, &names, began, running));
        }
        let way = Way { scope: &scope, names: &names, began, running };
        if let Some(operators) = self.operators_for_any(&syntax, parameters, &scope).boxed().await?
        {
            return self.rows(&way, scope.session(), operators, asked, None);
        }
        let (choice, again) = self.choice(&syntax, parameters, &scope, running)?;
        match choice {
            Choice::Made(operators) if !again.as_ref().is_some_and(Again::tries) => {
                self.rows(&way, scope.session(), operators, asked, again)
            }
            choice => self.planned(&way, syntax, parameters, asked, choice, again).boxed().await,
        }
    }

    /// The way of a statement without operators, or with others to be tried: a plan, then rows.
    async fn planned(
        &self,
        way: &Way<'_>,
        mut syntax: SqlStatement,
        parameters: &Parameters,
        asked: Option<Asked>,
        choice: Choice,
        mut again: Option<Again>,
    ) -> Result<Started> {
        let &Way { scope, running, .. } = way;
        if matches!(choice, Choice::Made(_) | Choice::Planned(_))
            && let Some(again) = again.as_mut().filter(|again| again.tries())
        {
            let plan = self.plan(scope, syntax.clone(), parameters, running).await?;
            self.prepare(again, &plan, scope).await?;
        }
        let keep = match choice {
            Choice::Made(operators) => {
                return self.rows(way, scope.session(), operators, asked, again);
            }
            Choice::Planned(plan) => {
                let plan = Optimized { state: Arc::clone(scope.session()), plan };
                return self.run(way, self.partitioned(plan)?, asked, None, again).await;
            }
            Choice::Keep(question) => Some(question),
            Choice::Choose => None,
        };
        // Whoever is to know what was chosen, or to choose otherwise, plans for these values.
        let planning = match again.as_ref().is_some_and(Again::notes) {
            true => Planning::Made,
            false => self.planning(&syntax, parameters, scope)?,
        };
        let learnt = match planning {
            Planning::Known(plan) => {
                // Names are not looked up any more.
                let plan = Optimized { state: Arc::clone(scope.session()), plan };
                return self.run(way, self.partitioned(plan)?, asked, keep, None).await;
            }
            Planning::Learnt(question, syntax) => Some((question, syntax)),
            Planning::Made => None,
        };
        // Whoever writes to a table reads the version that it will change: its turn comes first.
        let table = modify::written_table(&syntax).map(|name| scope.memory_table(&name));
        let _turn = match table {
            Some(Ok(table)) => {
                defaults::fill(&mut syntax, &table)?;
                Some(table.turn().await)
            }
            Some(Err(_)) | None => None,
        };
        let temporary = define::take_temporary(&mut syntax);
        let choices = self.explained_choices(&syntax, parameters);
        match self.plan(scope, syntax, parameters, running).await? {
            LogicalPlan::Ddl(definition) => self.define(scope, definition, temporary).await,
            LogicalPlan::Statement(
                statement @ (PlannedStatement::SetVariable(_) | PlannedStatement::ResetVariable(_)),
            ) => {
                self.context.execute_logical_plan(LogicalPlan::Statement(statement)).await?;
                self.forget_state();
                Ok(Started::Done)
            }
            LogicalPlan::Explain(Explain { plan, .. })
            | LogicalPlan::Analyze(Analyze { input: plan, .. })
                if matches!(*plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) =>
            {
                let message = "EXPLAIN explains queries and what writes rows, not what defines a table \
                               or changes a setting; explain the query alone";
                Err(Error::unsupported(message))
            }
            plan => {
                if let Some(again) = &mut again {
                    self.prepare(again, &plan, scope).await?;
                }
                let (plan, is_whole) = self.reusing_groups(plan, asked.as_ref(), scope)?;
                let again = again.filter(|_| is_whole);
                let choices = choices.or_else(|| again.as_ref().and_then(Again::choices));
                let plan = self.optimized(scope, &plan, choices)?;
                if let Some((question, syntax)) = learnt {
                    self.learn(question, syntax, parameters, &plan, scope, running).await;
                }
                let (plan, is_whole) = self.reusing_plans(plan, asked.as_ref(), scope)?;
                let again = again.filter(|_| is_whole);
                if let Some(again) = &again {
                    again.consider(&plan.state);
                }
                self.run(way, plan, asked, keep, again).await
            }
        }
    }

    /// What a statement does that needs no plan of its own; `None` where it needs one.
    async fn answer(
        &self,
        syntax: &SqlStatement,
        running: &Arc<Running>,
    ) -> Result<Option<Started>> {
        match syntax {
            SqlStatement::Reset(reset) => self.reset(reset),
            SqlStatement::Statement(statement) => {
                if let Some(done) = self.setting(statement).await? {
                    return Ok(Some(done));
                }
                if let Some(done) = self.keep_prepared(statement)? {
                    return Ok(Some(done));
                }
                self.define_by_syntax(statement, running).await
            }
            _ => Ok(None),
        }
    }

    /// A new scope: the names and the versions that one statement sees.
    pub(crate) fn scope(&self) -> Arc<Scope> {
        let (catalog, temporary) = (Arc::clone(&self.shared.catalog), Arc::clone(&self.temporary));
        Scope::new(catalog, temporary, self.state())
    }

    /// DataFusion's state as it is now: settings and functions.
    fn state(&self) -> Arc<SessionState> {
        let mut state = locked(&self.state);
        Arc::clone(state.get_or_insert_with(|| Arc::new(self.context.state())))
    }

    /// To be called by whoever has changed a setting or a function.
    fn forget_state(&self) {
        *locked(&self.state) = None;
        *locked(&self.asked_under) = None;
    }

    /// Syntax to logical plan, with values for the parameters.
    async fn plan(
        &self,
        scope: &Arc<Scope>,
        mut syntax: SqlStatement,
        parameters: &Parameters,
        running: &Arc<Running>,
    ) -> Result<LogicalPlan> {
        let modification = modify::rewrite(&mut syntax)?;
        let plan = self.matrices(scope, parameters.clone(), running).plan(syntax).await?;
        match modification {
            Some(modification) => modification.plan(scope, plan),
            None => Ok(plan),
        }
    }

    /// Logical plan to one whose order, joins and conditions are chosen, which is noted where somebody wants to see it.
    fn optimized(
        &self,
        scope: &Arc<Scope>,
        plan: &LogicalPlan,
        choices: Option<Choices>,
    ) -> Result<Optimized> {
        let mut state = scope.state()?;
        if let Some(choices) = choices {
            state.config_mut().options_mut().extensions.insert(choices);
        }
        let plan = state.optimize(plan)?;
        self.partitioned(Optimized { state: Arc::new(state), plan })
    }

    /// The same plan, in one partition where that is expected to take least.
    fn partitioned(&self, mut optimized: Optimized) -> Result<Optimized> {
        let evidence = Evidence::new(&self.shared.statistics, &self.shared.calibration);
        let options = optimized.state.config_options();
        if partitions::is_one(&optimized.plan, options, &evidence)? {
            ordered::make_serial(Arc::make_mut(&mut optimized.state));
        }
        Ok(optimized)
    }

    /// Logical plan to rows, or to the count of those written.
    async fn run(
        &self,
        way: &Way<'_>,
        optimized: Optimized,
        asked: Option<Asked>,
        keep: Option<Question>,
        again: Option<Again>,
    ) -> Result<Started> {
        let optimized = self.recalling(optimized, way.scope);
        let operators = self.operators(&optimized, keep, way.scope, way.running).await?;
        let Optimized { state, plan } = optimized;
        let writes = match &plan {
            LogicalPlan::Dml(_) | LogicalPlan::Copy(_) => true,
            LogicalPlan::Extension(extension) => modify::is_modification(extension),
            LogicalPlan::Analyze(analyze) => {
                let (operators, context) = (way.stoppable(self, operators)?, task(&state));
                let rows = self.beside_estimates(analyze, operators, Arc::clone(&context))?;
                return Ok(way.started(rows, &context));
            }
            LogicalPlan::Explain(explain) => {
                let (operators, context) = (way.stoppable(self, operators)?, task(&state));
                let rows = execute_stream(operators, Arc::clone(&context))?;
                let rows =
                    explain::with_choices(rows, "choices", &explain.explain_format, &context);
                return Ok(way.started(rows, &context));
            }
            _ => false,
        };
        if writes {
            let operators = way.stoppable(self, operators)?;
            let files = &self.shared.files;
            let places = copy::places(&operators, files)?;
            let counts = collect(operators, task(&state)).await;
            let counts = counts.map_err(|error| copy::of_file(error, &places, files))?;
            return Ok(Started::Count(written(&counts)));
        }
        self.rows(way, &state, operators, asked, again)
    }

    /// Operators to rows, measured where the question was asked before, remembered or compared with what is.
    fn rows(
        &self,
        way: &Way<'_>,
        state: &SessionState,
        operators: Arc<dyn ExecutionPlan>,
        asked: Option<Asked>,
        again: Option<Again>,
    ) -> Result<Started> {
        let asked = asked.map(|asked| asked.compared_if(|| !in_order::takes_any(&operators)));
        let operators = in_order::answer(operators, state.config().target_partitions())?;
        let (operators, context) = (way.stoppable(self, operators)?, task(state));
        let rows = match again {
            Some(again) => again.stoppable(way, self)?.rows(operators, &context)?,
            None => execute_stream(operators, Arc::clone(&context))?,
        };
        Ok(way.started(self.watched(asked, rows, way.scope, way.began), &context))
    }
}

/// A statement that is on its way to its rows.
struct Way<'s> {
    scope: &'s Arc<Scope>,
    names: &'s DisplayNames,
    began: Instant,
    running: &'s Arc<Running>,
}

impl Way<'_> {
    /// The operators that are run: planning has ended.
    fn stoppable(
        &self,
        session: &Session,
        operators: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let operators = cooperative::stoppable(operators, self.running.stop_check())?;
        *locked(&session.planning_time) = self.began.elapsed();
        self.running.watch(exec::scans(&operators));
        Ok(operators)
    }

    fn started(&self, rows: SendableRecordBatchStream, context: &TaskContext) -> Started {
        let kept = Kept::new("answer", context.memory_pool());
        let rows = self.names.renamed(rows);
        Started::Rows(ResultStream::start(rows, Arc::clone(self.running), kept))
    }
}

/// A plan whose order, joins and conditions are chosen, and what its operators are chosen by.
struct Optimized {
    state: Arc<SessionState>,
    plan: LogicalPlan,
}

/// The count that a plan which writes yields.
fn written(counts: &[RecordBatch]) -> u64 {
    let counts =
        counts.iter().flat_map(|batch| batch.column(0).as_primitive::<UInt64Type>().iter());
    counts.flatten().sum()
}
