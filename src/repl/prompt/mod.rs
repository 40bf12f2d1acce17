//! The prompt: reads statements over several lines, runs them, remembers them.

mod complete;
mod helper;
mod words;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::interrupt::Interrupt;
use crate::report;
use crate::session::{Session, Stop};
use helper::Helper;

const PROMPT: &str = "relatrix> ";
/// Statements remembered between sessions.
const HISTORY_LENGTH: usize = 10_000;

/// Runs what is typed until the person leaves.
pub(crate) fn run(mut session: Session) -> ExitCode {
    session.interactive = true;
    let mut editor = match editor(&session) {
        Ok(editor) => editor,
        Err(error) => {
            report::message(&format!("no prompt on this terminal: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // After the editor, which has a handler of its own and would replace this one.
    session.watch_for(Interrupt::stay());
    let history = history_file();
    if let Some(file) = &history {
        // The first session has none yet.
        let _loaded = editor.load_history(file);
    }
    println!(
        "Relatrix {}, a database in memory; statements end with ;  .help helps",
        env!("CARGO_PKG_VERSION")
    );
    loop {
        match editor.readline(PROMPT) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                remember(&mut editor, &text, history.as_deref());
                match session.run_text("", &text) {
                    Ok(()) | Err(Stop::Failed | Stop::Interrupted) => {}
                    Err(Stop::Quit | Stop::PipeClosed) => return ExitCode::SUCCESS,
                }
                if let Some(helper) = editor.helper_mut() {
                    helper.follow(&session.connection);
                }
            }
            // Ctrl-C clears the line; one meant for a statement that had just ended is no news.
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {}
            Err(ReadlineError::Eof) => return ExitCode::SUCCESS,
            Err(error) => {
                report::message(&error.to_string());
                return ExitCode::FAILURE;
            }
        }
    }
}

fn editor(session: &Session) -> rustyline::Result<Editor<Helper, FileHistory>> {
    let config = Config::builder()
        .max_history_size(HISTORY_LENGTH)?
        .history_ignore_dups(true)?
        .completion_type(CompletionType::List)
        .bracketed_paste(true)
        .tab_stop(4)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Helper::new(&session.connection)));
    Ok(editor)
}

/// Appends at once: a session that dies loses nothing, and sessions beside each other share the file.
fn remember(editor: &mut Editor<Helper, FileHistory>, text: &str, file: Option<&Path>) {
    let added = editor.add_history_entry(text.trim_end());
    if let (Ok(true), Some(file)) = (added, file) {
        // A home that cannot be written to is no reason to complain after every statement.
        let _made = file.parent().map(fs::create_dir_all);
        let _saved = editor.append_history(file);
    }
}

/// Where the history is kept: state, in the words of the XDG base directories.
fn history_file() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("relatrix").join("history"))
}
