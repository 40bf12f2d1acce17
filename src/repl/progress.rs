//! A progress bar for statements that take long: on standard error, and only where that is a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use relatrix::{CancelHandle, Progress};

/// How long a statement may take before anybody wonders.
const PATIENCE: Duration = Duration::from_secs(2);
/// Often enough to look alive, seldom enough to cost nothing.
const STEP: Duration = Duration::from_millis(100);
/// The bar counts in these, because a fraction is what is known.
const STEPS: u64 = 1000;

/// A bar that shows itself after a while, until it is hidden or dropped.
pub(crate) struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Watches what the handle stops.
    pub(crate) fn start(handle: CancelHandle) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let (hide, hidden) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut bar = None;
            let mut pause = PATIENCE;
            while let Err(RecvTimeoutError::Timeout) = hidden.recv_timeout(pause) {
                pause = STEP;
                if let Some(progress) = handle.progress() {
                    draw(bar.get_or_insert_with(new_bar), progress);
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        Self(Some((hide, thread)))
    }

    /// Takes the bar away before something else is printed.
    pub(crate) fn hide(&mut self) {
        if let Some((hide, thread)) = self.0.take() {
            drop(hide);
            // A bar that panicked has nothing left to clear.
            let _ended = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hide();
    }
}

fn new_bar() -> ProgressBar {
    ProgressBar::new(STEPS)
}

fn draw(bar: &ProgressBar, progress: Progress) {
    let known = progress.fraction.is_some();
    let template = if known { "{bar:30.cyan/dim} {msg}" } else { "{spinner} {msg}" };
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    bar.set_style(style.progress_chars("━╸─"));
    bar.set_message(described(progress));
    match progress.fraction {
        Some(fraction) => bar.set_position((fraction * STEPS as f64) as u64),
        None => bar.tick(),
    }
}

fn described(progress: Progress) -> String {
    let seconds = progress.elapsed.as_secs();
    let rows = match progress.rows {
        0 => String::new(),
        rows => format!(", {} rows read", crate::format::grouped(rows)),
    };
    match (progress.fraction, progress.seconds_left()) {
        (Some(fraction), Some(left)) => {
            format!("{:3.0} %, {} left{rows}", fraction * 100.0, duration(left.ceil() as u64))
        }
        _ => format!("{} so far{rows}", duration(seconds)),
    }
}

/// `42 s`, `3 min 20 s`, `2 h 5 min`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let elapsed = Duration::from_secs(30);
        let half = Progress { fraction: Some(0.25), rows: 1_234_567, elapsed };
        assert_eq!(described(half), " 25 %, 1 min 30 s left, 1,234,567 rows read");
        let unknown = Progress { fraction: None, rows: 0, elapsed };
        assert_eq!(described(unknown), "30 s so far");
    }
}
