//! CALIBRATE and SHOW COSTS: the constants that plans are chosen by, as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};

use super::Session;
use crate::error::Result;
use crate::exec::{Cancel, blocking};
use crate::planner::CalibrationLine;

impl Session {
    /// CALIBRATE: measures anew, corrected by what runs showed, which then begins anew too.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) async fn calibrate(&self) -> Result<RecordBatch> {
        let calibration = Arc::clone(&self.shared.calibration);
        let shown = self.shared.engine.runs.take();
        let measure = move || Ok(calibration.renew(shown));
        batch(&blocking(Cancel::default(), measure).await?)
    }

    /// SHOW COSTS: what is known, without measuring.
    ///
    /// # Errors
    /// None that a user could cause.
    pub(super) fn show_costs(&self) -> Result<RecordBatch> {
        batch(&self.shared.calibration.lines(self.shared.engine.runs.ratios()))
    }
}

fn batch(lines: &[CalibrationLine]) -> Result<RecordBatch> {
    let text = |of: fn(&CalibrationLine) -> &str| {
        Arc::new(StringArray::from_iter_values(lines.iter().map(of))) as ArrayRef
    };
    let number = |of: fn(&CalibrationLine) -> Option<f64>| {
        Arc::new(Float64Array::from_iter(lines.iter().map(of))) as ArrayRef
    };
    let runs = UInt64Array::from_iter_values(lines.iter().map(|line| line.shown.runs));
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("constant", text(|line| line.constant.name()), false),
        ("unit", text(|line| line.constant.unit()), false),
        ("built_in", number(|line| Some(line.built_in)), false),
        ("measured", number(|line| line.measured), true),
        ("runs", Arc::new(runs) as ArrayRef, false),
        ("ratio", number(|line| (line.shown.runs > 0).then(|| line.shown.value())), true),
    ])?)
}
