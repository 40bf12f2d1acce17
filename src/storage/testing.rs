//! Rows of tests as those of a table.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use super::{Batch, MemoryTable, Snapshot, TableDefinition};
use crate::memory::Kept;

/// A table with these rows, which keeps them as it keeps all.
pub(crate) fn table_of(schema: &SchemaRef, batches: &[RecordBatch]) -> Arc<dyn TableProvider> {
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let batches = batches.iter().map(|rows| Batch::new(rows).unwrap());
    let kept = Kept::new("rows", &pool);
    let table = MemoryTable::new(schema, TableDefinition::default(), batches.collect(), kept);
    Arc::new(Snapshot::new(Arc::new(table.unwrap())))
}

/// Its scan.
pub(crate) fn scan_of(schema: &SchemaRef, batches: &[RecordBatch]) -> Arc<dyn ExecutionPlan> {
    let rows = table_of(schema, batches);
    let state = SessionContext::new().state();
    let scan = async { rows.scan(&state, None, &[], None).await };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(scan).unwrap()
}
