//! The file in which constants are kept: a line each, below those that say which machine they are of. A build for
//! debugging, which runs many times slower, has a file of its own.
//!
//! ```text
//! relatrix costs 5
//! processor AMD EPYC 9354
//! threads 2
//! products_float64 1.93e11 flop/s
//! …
//! ```

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Constants;
use crate::anew;
use crate::exec::costs::{Constant, machine_threads};
use crate::planner::cost::CostModel;

/// First line; another version is another file.
pub(super) const VERSION: &str = "relatrix costs 5";

/// Its name in the user's folder.
const NAME: &str = if cfg!(debug_assertions) { "costs-debug.txt" } else { "costs.txt" };

/// A constant that differs from the built-in one by more is not believed.
const FACTOR_MAX: f64 = 1e4;

/// Where it is kept: in the user's folder for what can be made anew, if there is one.
pub(super) fn user_file() -> Option<PathBuf> {
    Some(anew::user_folder()?.join(NAME))
}

/// The constants in a file, if all are there and of this machine.
pub(super) fn read(file: &Path) -> Option<Constants> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.strip_prefix(&header())?;
    let mut constants = [None; Constant::COUNT];
    for line in rest.lines() {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next()?, words.next()?.parse::<f64>().ok()?);
        let constant = Constant::ALL.into_iter().find(|constant| constant.name() == name)?;
        let factor = value / CostModel::default().constant(constant);
        constants[constant.index()] =
            (1.0 / FACTOR_MAX..FACTOR_MAX).contains(&factor).then_some(value);
    }
    let known: Option<Vec<f64>> = constants.into_iter().collect();
    known?.try_into().ok()
}

/// Writes a file as a whole: who reads it meanwhile finds the old one.
pub(super) fn write(file: &Path, constants: &Constants) -> io::Result<()> {
    let line = |constant: Constant| {
        let value = constants[constant.index()];
        format!("{} {value:e} {}\n", constant.name(), constant.unit())
    };
    anew::write(file, (header() + &Constant::ALL.map(line).concat()).as_bytes())
}

/// The lines by which a machine is known.
fn header() -> String {
    format!("{VERSION}\nprocessor {}\nthreads {}\n", processor(), machine_threads())
}

/// The model of the processor; its architecture where the system does not say.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constants() -> Constants {
        Constant::ALL.map(|constant| CostModel::default().constant(constant) * 1.5)
    }

    #[test]
    fn a_file_holds_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("below").join("costs.txt");
        assert_eq!(read(&file), None);
        write(&file, &constants()).unwrap();
        assert_eq!(read(&file), Some(constants()));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_file_of_another_machine_or_version_or_with_a_flaw_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.txt");
        write(&file, &constants()).unwrap();
        let good = fs::read_to_string(&file).unwrap();
        let last = good.lines().last().unwrap();
        for bad in [
            good.replace("threads ", "threads 9"),
            good.replace("processor ", "processor not "),
            good.replace(VERSION, "relatrix costs 2"),
            good.replace(last, ""),
            good.replace(last, "steps NaN s"),
            good.replace(last, "steps -1e-6 s"),
            good.replace(last, "steps 1e-60 s"),
            good.replace(last, "\u{fffd}"),
            String::new(),
        ] {
            fs::write(&file, &bad).unwrap();
            assert_eq!(read(&file), None, "{bad}");
        }
        fs::write(&file, [0xff, 0x00]).unwrap();
        assert_eq!(read(&file), None);
    }
}
