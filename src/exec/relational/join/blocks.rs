//! Joins of parts that cannot be divided: blocks of the build side that fit, each met by all of the probe
//! side.
//!
//! A row of the build side is in one block alone, so what leaves for it leaves with its block. A row of the
//! probe side has met somebody if it has in any block: rows are numbered as they are read, and a bit for
//! each is kept from block to block. What leaves for them leaves in a last pass.
//!
//! Source: Graefe, "Query Evaluation Techniques for Large Databases", ACM Computing Surveys 25 (1993), §5.1.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::UInt64Type;
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::build::next_block;
use super::engine::Engines;
use super::order::numbered;
use super::share::Share;
use super::spec::{Spec, batch};
use crate::exec::relational::feed::Output;
use crate::exec::relational::files::Rows;

/// What is joined, and by whom.
pub(super) struct Blocks<'a> {
    pub(super) spec: &'a Spec,
    pub(super) engines: &'a Engines,
    pub(super) share: &'a Share,
    pub(super) working_bytes: usize,
}

impl Blocks<'_> {
    /// Joins all of two parts; the number of blocks.
    pub(super) async fn join(
        &self,
        build: SendableRecordBatchStream,
        probe: &Rows,
        output: &mut Output,
    ) -> Result<usize> {
        match self.spec.join_type {
            JoinType::Inner
            | JoinType::Left
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark => self.each(build, probe, self.spec, None, output).await,
            JoinType::Right => self.with_bits(JoinType::Inner, build, probe, output).await,
            JoinType::Full => self.with_bits(JoinType::Left, build, probe, output).await,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                self.with_bits(JoinType::RightSemi, build, probe, output).await
            }
        }
    }

    /// Joins block by block as `join_type`, which yields which rows of the probe side have met somebody; then
    /// what leaves for each row of the probe side.
    async fn with_bits(
        &self,
        join_type: JoinType,
        build: SendableRecordBatchStream,
        probe: &Rows,
        output: &mut Output,
    ) -> Result<usize> {
        let (numbered, number) = self.spec.with_numbers(1);
        let mut columns = match join_type {
            JoinType::RightSemi => Vec::new(),
            _ => self.spec.output.clone(),
        };
        columns.push(number);
        let by_block = numbered.with_output(join_type, columns);
        let mut met = BooleanBufferBuilder::new(probe.count);
        met.append_n(probe.count, false);
        let blocks = self.each(build, probe, &by_block, Some(&mut met), output).await?;
        self.last_pass(probe, &BooleanArray::new(met.finish(), None), output).await?;
        Ok(blocks)
    }

    /// Joins block by block.
    async fn each(
        &self,
        mut build: SendableRecordBatchStream,
        probe: &Rows,
        spec: &Spec,
        mut met: Option<&mut BooleanBufferBuilder>,
        output: &mut Output,
    ) -> Result<usize> {
        let bits = met.as_ref().map_or(0, |met| met.len().div_ceil(8));
        self.share.set_base(self.working_bytes + bits);
        let mut ahead = None;
        let mut blocks = 0;
        loop {
            self.share.hold(0);
            let Some(block) = next_block(&mut build, &mut ahead, spec, self.share).await? else {
                return Ok(blocks);
            };
            blocks += 1;
            let engine = self.engines.engine(spec, block, 1, false)?;
            let probe = match met {
                Some(_) => numbered(probe.read()),
                None => probe.read(),
            };
            let mut rows = engine.run(0, probe)?;
            while let Some(batch) = rows.next().await.transpose()? {
                let batch = match &mut met {
                    Some(met) => self.unnumbered(&batch, met)?,
                    None => batch,
                };
                output.send(batch).await?;
            }
        }
    }

    /// Takes note of the numbers of rows, which are the last column; what leaves at once.
    fn unnumbered(
        &self,
        rows: &RecordBatch,
        met: &mut BooleanBufferBuilder,
    ) -> Result<RecordBatch> {
        let last = rows.num_columns() - 1;
        for number in rows.column(last).as_primitive::<UInt64Type>().iter().flatten() {
            met.set_bit(number as usize, true);
        }
        match self.spec.join_type {
            JoinType::Right | JoinType::Full => {
                batch(&self.spec.schema, rows.columns()[..last].to_vec(), rows.num_rows())
            }
            _ => Ok(RecordBatch::new_empty(Arc::clone(&self.spec.schema))),
        }
    }

    async fn last_pass(&self, probe: &Rows, met: &BooleanArray, output: &mut Output) -> Result<()> {
        let mut rows = probe.read();
        let mut before = 0;
        while let Some(batch) = rows.next().await.transpose()? {
            let met = met.slice(before, batch.num_rows());
            before += batch.num_rows();
            let leaving = match self.spec.join_type {
                JoinType::RightMark => self.spec.alone(&batch, Some(&met))?,
                JoinType::RightSemi => {
                    self.spec.alone(&filter_record_batch(&batch, &met)?, None)?
                }
                _ => self.spec.alone(&filter_record_batch(&batch, &not(&met)?)?, None)?,
            };
            output.send(leaving).await?;
        }
        Ok(())
    }
}
