//! Ctrl-C: stops the running statement and keeps the session.
//!
//! One thread waits for the signal for as long as the process lives. A statement that is running is
//! cancelled; should it not stop, the process leaves without it: where there is no prompt to return to
//! after a moment, at a prompt with the third press.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use relatrix::CancelHandle;

use crate::report;

/// How long a statement of a file or pipe may take to clean up before the process leaves without it.
const GRACE: Duration = Duration::from_millis(150);
/// At a prompt the session is worth waiting for, unless the person insists.
const PRESSES_TO_LEAVE: u32 = 3;

/// What shells expect of a command that Ctrl-C ended: 128 plus the signal's number.
pub(crate) const EXIT_STATUS: u8 = 130;

/// What Ctrl-C stops now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    running: Mutex<Option<CancelHandle>>,
    presses: AtomicU32,
    leaves_when_idle: AtomicBool,
}

/// As long as this lives, Ctrl-C stops the statement it was made for.
pub(crate) struct Guard<'a>(&'a State);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Interrupt {
    /// For a prompt: nothing happens where nothing runs.
    pub(crate) fn stay() -> Self {
        Self::listening(false)
    }

    /// For files and pipes: the process ends where nothing runs.
    pub(crate) fn leave_when_idle() -> Self {
        Self::listening(true)
    }

    fn listening(leaves_when_idle: bool) -> Self {
        let interrupt = Self::default();
        interrupt.0.leaves_when_idle.store(leaves_when_idle, Ordering::Relaxed);
        let state = Arc::clone(&interrupt.0);
        // Without the listener Ctrl-C ends the process, which is no reason to refuse to work.
        let _listener =
            thread::Builder::new().name("ctrl-c".to_owned()).spawn(move || listen(&state));
        interrupt
    }

    /// From now on Ctrl-C stops what this handle stops.
    pub(crate) fn watch(&self, handle: CancelHandle) -> Guard<'_> {
        self.0.presses.store(0, Ordering::Relaxed);
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Guard(&self.0)
    }

    /// Whether Ctrl-C was pressed since the last [`Interrupt::watch`].
    pub(crate) fn pressed(&self) -> bool {
        self.0.presses.load(Ordering::Relaxed) > 0
    }
}

fn listen(state: &State) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let running = || state.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
    runtime.block_on(async {
        while tokio::signal::ctrl_c().await.is_ok() {
            let presses = state.presses.fetch_add(1, Ordering::Relaxed) + 1;
            let leaves = state.leaves_when_idle.load(Ordering::Relaxed);
            match running() {
                Some(handle) => handle.cancel(),
                None if leaves => process::exit(i32::from(EXIT_STATUS)),
                None => continue,
            }
            if leaves {
                tokio::time::sleep(GRACE).await;
            }
            if running().is_some() && (leaves || presses >= PRESSES_TO_LEAVE) {
                report::message("cancelled");
                process::exit(i32::from(EXIT_STATUS));
            }
        }
    });
}
