//! What a connection knows: its settings, and everything the planner may use.
//!
//! [`new_state`] is the list of all that Relatrix adds to DataFusion. Whoever adds a planner, a rule or a
//! set of functions adds a line there.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;

/// DataFusion's defaults and our additions to them.
pub(crate) fn new_state(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionState {
    SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .build()
}
