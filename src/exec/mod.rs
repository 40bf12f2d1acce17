//! Runs what the planner decided; knows nothing of plans or SQL.

pub mod kernels;
