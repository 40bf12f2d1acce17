//! The command `relatrix`: statements from files, arguments, standard input or a prompt.
//!
//! A client of the public API like any other. A text is cut into statements and dot commands, and each is
//! run by itself, so that what stands before a mistake has taken effect when the mistake is reported.
//!
//! ```text
//! arguments ─► Source ─ input::pieces ─► Session ─► Connection::run ─► format ─► standard output
//! prompt ────►                              └► report ─► standard error
//! ```

mod allocator;
mod arguments;
mod bench;
mod command;
mod format;
mod input;
mod interrupt;
mod plot;
mod progress;
mod prompt;
mod report;
mod session;
mod terminal;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use arguments::{Arguments, Input, Task};
use interrupt::Interrupt;
use session::{Session, Stop};

fn main() -> ExitCode {
    allocator::return_early();
    let Arguments { inputs, task, options } = Arguments::from_command_line();
    if let Task::Bench(bench) = task {
        return bench::run(&bench);
    }
    let mut session = match Session::new(options) {
        Ok(session) => session,
        Err(error) => {
            report::message(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    if inputs.is_empty() && io::stdin().is_terminal() {
        return prompt::run(session);
    }
    let standard_input = [Input::File("-".into())];
    let inputs = if inputs.is_empty() { &standard_input[..] } else { &inputs };
    session.watch_for(Interrupt::leave_when_idle());
    let ran = inputs.iter().try_for_each(|input| match input {
        Input::Text(text) => session.run_text("-c", text),
        Input::File(path) if path.as_os_str() == "-" => {
            session.run_lines("stdin", io::stdin().lock())
        }
        Input::File(path) => session.run_file(path),
    });
    match ran {
        Err(Stop::Interrupted) => ExitCode::from(interrupt::EXIT_STATUS),
        Err(Stop::Failed) => ExitCode::FAILURE,
        Ok(()) | Err(Stop::Quit | Stop::PipeClosed) if session.failures == 0 => ExitCode::SUCCESS,
        Ok(()) | Err(Stop::Quit | Stop::PipeClosed) => ExitCode::FAILURE,
    }
}
