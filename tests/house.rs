//! The house rules that a machine can hold: who may import whom, where DataFusion and unsafe code may
//! be named, how a file opens, what is shown by example, and what a dependency may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who may import whom; everyone may also import `error` and `config`.
///
/// A module that is not here is one whose place has not been thought about.
const IMPORTS: &[(&str, &[&str])] = &[
    ("memory", &[]),
    // Files that outlive a process: what can be made anew.
    ("anew", &[]),
    ("matrix", &["memory"]),
    ("error", &["matrix"]),
    ("config", &["memory"]),
    ("sql", &["matrix"]),
    ("files", &["matrix"]),
    // What scans of files and of tables share.
    ("steps", &["encoding"]),
    // What those who keep rows share with those who compute with them.
    ("encoding", &[]),
    // What they read before all else.
    ("first_by", &[]),
    ("storage", &["memory", "matrix", "encoding", "first_by", "steps"]),
    // `catalog` for what a file looked like.
    ("pages", &["memory", "catalog", "encoding", "first_by", "steps"]),
    ("gpu", &["anew"]),
    // `storage` for scans, which give their rows encoded to who computes with them so.
    ("exec", &["memory", "matrix", "gpu", "encoding", "steps", "storage"]),
    ("functions", &["matrix", "encoding", "exec", "sql"]),
    ("catalog", &["memory", "matrix", "storage"]),
    ("cache", &["anew", "memory", "catalog", "matrix", "value"]),
    (
        "matrices",
        &["memory", "catalog", "exec", "files", "matrix", "planner", "query", "sql", "value"],
    ),
    // `storage` for the nodes of UPDATE and DELETE, `pages` for scans of files that are to give their columns encoded.
    (
        "planner",
        &[
            "anew",
            "memory",
            "sql",
            "catalog",
            "matrix",
            "gpu",
            "exec",
            "functions",
            "files",
            "storage",
            "pages",
            "first_by",
        ],
    ),
    ("value", &["matrix"]),
    ("rows", &["matrix", "value"]),
    ("query", &["memory", "matrix", "rows", "steps", "value"]),
    ("session", EVERYONE_BELOW),
    // A database makes connections, and a connection keeps its database.
    ("database", EVERYONE_BELOW),
    ("connection", EVERYONE_BELOW),
];

/// What the public face puts together.
const EVERYONE_BELOW: &[&str] = &[
    "cache",
    "catalog",
    "connection",
    "database",
    "exec",
    "files",
    "functions",
    "gpu",
    "matrices",
    "matrix",
    "memory",
    "pages",
    "planner",
    "query",
    "rows",
    "session",
    "sql",
    "storage",
    "value",
];

/// DataFusion is not named here: these build and are tested apart from it.
const WITHOUT_DATAFUSION: &[&str] =
    &["src/matrix/", "src/files/", "src/exec/kernels/", "src/gpu/", "src/repl/"];

/// Unsafe code lives here and nowhere else.
const WITH_UNSAFE: &[&str] = &[
    "src/exec/kernels/",
    "src/gpu/",
    "src/memory/buffers.rs",
    "src/memory/mapping.rs",
    "src/pages/texts.rs",
    "src/repl/allocator.rs",
];

/// Files whose `pub` items are the crate's public face.
const PUBLIC: &[&str] = &[
    "src/config.rs",
    "src/config/text.rs",
    "src/connection.rs",
    "src/database.rs",
    "src/error.rs",
    "src/lib.rs",
    "src/matrix/",
    "src/query.rs",
    "src/rows.rs",
    "src/value.rs",
];

/// Lines after which a file probably holds two ideas; a warning, not an error.
const FILE_LINES_MAX: usize = 650;

/// One source file: its path from the root of the repository, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Lines of code before the tests, with numbers from 1 and without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        let code = lines.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        code.map(|(at, line)| (at + 1, line.split(" // ").next().unwrap_or_default()))
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// The module below the crate's root that this file belongs to.
    fn module(&self) -> &str {
        let path = self.path.strip_prefix("src/").expect("a file of the library");
        path.split(['/', '.']).next().unwrap_or_default()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut folders: Vec<PathBuf> = vec![root().join("src")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    sources
}

/// The first names of every path into this crate: `crate::a::b`, `crate::{a::b, c}`. What a macro writes
/// as `$crate::a` is for other crates to name.
fn imported(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::").filter(|&(at, _)| !code[..at].ends_with('$')) {
        let rest = &code[at + "crate::".len()..];
        let name = |text: &str| -> String {
            text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' if depth == 0 => {
                    names.insert(name(&group[start..]));
                    start = at + 1;
                }
                '}' => {
                    names.insert(name(&group[start..]));
                    break;
                }
                _ => {}
            }
        }
    }
    names.remove("");
    names
}

#[test]
fn imports_are_found_in_every_form() {
    let code = "use crate::a::B; x(crate::b::C) use crate::{\n c::{D, E},\n d::F, };\n$crate::e!()";
    let found: Vec<String> = imported(code).into_iter().collect();
    assert_eq!(found, ["a", "b", "c", "d"]);
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let modules: BTreeSet<&str> = IMPORTS.iter().map(|(module, _)| *module).collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let module = source.module();
        if module == "lib" || module == "repl" || source.is_test() {
            continue;
        }
        let Some((_, allowed)) = IMPORTS.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: the module '{module}' is not in the table", source.path));
            continue;
        };
        let code: Vec<&str> = source.code().map(|(_, line)| line).collect();
        for name in imported(&code.join("\n")) {
            let always = [module, "error", "config", "with_storage"];
            if always.contains(&name.as_str()) || allowed.contains(&name.as_str()) {
                continue;
            }
            let hint = if modules.contains(name.as_str()) { "" } else { ", by way of its module" };
            wrong.push(format!("{}: '{module}' may not import '{name}'{hint}", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_cycle() {
    let mut placed = BTreeSet::from(["error", "config", "matrix", "memory"]);
    let mut open: Vec<_> = IMPORTS.iter().filter(|(module, _)| !placed.contains(module)).collect();
    // The public face is one layer: a session and its database know each other.
    let face = ["session", "database", "connection"];
    while let Some(at) = open.iter().position(|(_, allowed)| {
        allowed.iter().all(|name| placed.contains(name) || face.contains(name))
    }) {
        placed.insert(open.remove(at).0);
    }
    assert!(open.is_empty(), "modules that import each other: {open:?}");
}

#[test]
fn datafusion_is_named_only_where_it_is_at_home() {
    let sources = sources();
    let apart = |path: &str| WITHOUT_DATAFUSION.iter().any(|folder| path.starts_with(folder));
    let named = sources.iter().filter(|source| apart(&source.path)).flat_map(|source| {
        let lines = source.code().filter(|(_, line)| line.contains("datafusion::"));
        lines.map(|(line, _)| format!("{}:{line}", source.path))
    });
    let named: Vec<String> = named.collect();
    assert!(named.is_empty(), "DataFusion is named in\n{}", named.join("\n"));
}

#[test]
fn unsafe_code_stays_in_its_fence() {
    let is_unsafe = |line: &str| {
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"]
            .iter()
            .any(|form| line.contains(form))
    };
    let fenced = |path: &str| WITH_UNSAFE.iter().any(|folder| path.starts_with(folder));
    let sources = sources();
    let outside = sources.iter().filter(|source| !fenced(&source.path)).flat_map(|source| {
        let lines = source.code().filter(|(_, line)| is_unsafe(line));
        lines.map(|(line, _)| format!("{}:{line}", source.path))
    });
    let outside: Vec<String> = outside.collect();
    assert!(outside.is_empty(), "unsafe code in\n{}", outside.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let sources = sources();
    let silent = sources.iter().filter(|source| !source.text.starts_with("//! "));
    let silent: Vec<&str> = silent.map(|source| source.path.as_str()).collect();
    assert!(silent.is_empty(), "no header in\n{}", silent.join("\n"));
    for source in &sources {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX && !source.is_test() {
            println!("warning: {} has {lines} lines: is it one idea?", source.path);
        }
    }
}

/// The public items of a file, with their lines, whose doc comments hold no code that rustdoc runs.
///
/// Items are functions, types, traits with their methods, and exported macros. What is hidden from the
/// documentation, sealed in a `mod private` or behind `#[cfg(test)]` has no readers to show anything.
fn without_example(text: &str) -> Vec<String> {
    let mut without = Vec::new();
    let mut doc = Doc::default();
    // What ends at the next brace in the first column.
    let (mut sealed, mut within_trait) = (false, false);
    for (at, line) in text.lines().take_while(|line| line.trim() != "#[cfg(test)]").enumerate() {
        let code = line.split(" // ").next().unwrap_or_default().trim();
        if let Some(comment) = code.strip_prefix("///") {
            doc.read(comment.trim());
            continue;
        }
        if code.starts_with("#[") || doc.within_attribute {
            doc.within_attribute = !code.ends_with(']');
            doc.hidden |= code.contains("doc(hidden)");
            doc.exported |= code.contains("macro_export");
            continue;
        }
        sealed |= line.starts_with("mod private");
        if let Some(name) = item(code, within_trait, doc.exported)
            && !(sealed || doc.hidden || doc.has_example)
        {
            without.push(format!("{}: {name}", at + 1));
        }
        within_trait |= line.starts_with("pub trait ");
        if line.starts_with('}') {
            (sealed, within_trait) = (false, false);
        }
        doc = Doc::default();
    }
    without
}

/// What stands above an item.
#[derive(Default)]
struct Doc {
    within_fence: bool,
    within_attribute: bool,
    has_example: bool,
    hidden: bool,
    exported: bool,
}

impl Doc {
    fn read(&mut self, comment: &str) {
        let Some(language) = comment.strip_prefix("```") else { return };
        let runs = ["", "rust", "should_panic"].contains(&language);
        self.has_example |= runs && !self.within_fence;
        self.within_fence = !self.within_fence;
    }
}

/// The name of the item that a line begins, if the item is public.
fn item(code: &str, within_trait: bool, exported: bool) -> Option<&str> {
    let mut words = code.split([' ', '(', '<', ':', ';', '{']).filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_public = match first {
        "pub" => !code.starts_with("pub("),
        "macro_rules!" => return words.next().filter(|_| exported),
        _ => within_trait,
    };
    let mut words = std::iter::once(first).chain(words);
    let kinds: &[&str] =
        if within_trait { &["fn"] } else { &["fn", "struct", "enum", "trait", "type"] };
    let before = ["pub", "const", "async", "unsafe"];
    let kind = words.find(|word| !before.contains(word))?;
    (is_public && kinds.contains(&kind)).then(|| words.next()).flatten()
}

#[test]
fn items_without_an_example_are_found() {
    let shown = "/// Does.\n///\n/// ```\n/// assert!(true);\n/// ```\n#[inline]\n";
    for item in ["pub fn f() {}", "pub struct S;", "pub const fn f() {}", "pub async fn f() {}"] {
        assert_eq!(without_example(&format!("{shown}{item}")), [""; 0], "{item}");
        assert_eq!(without_example(&format!("/// Does.\n{item}")).len(), 1, "{item}");
        assert_eq!(without_example(&format!("{shown}pub use x;\n{item}")).len(), 1, "{item}");
        let hidden = format!("#[doc(hidden)] // For benchmarks.\n{item}");
        assert_eq!(without_example(&hidden), [""; 0], "{item}");
        let sealed = format!("mod private {{\n    {item}\n}}\n");
        assert_eq!(without_example(&sealed), [""; 0], "{item}");
        let drawn = format!("/// ```text\n/// ──\n/// ```\n{item}");
        assert_eq!(without_example(&drawn).len(), 1, "{item}");
    }
    for private in ["fn f() {}", "pub(crate) fn f() {}", "macro_rules! m {", "const N: u8 = 1;"] {
        assert_eq!(without_example(private), [""; 0], "{private}");
    }
    let text = "pub trait T<X>:\n    A\n{\n    type Y;\n    /// Gives.\n    fn g(&self);\n}\nfn h() {}\n\
                #[macro_export]\nmacro_rules! m {\n}\npub type R<T> = ();\n";
    assert_eq!(without_example(text), ["1: T", "6: g", "10: m", "12: R"]);
}

#[test]
fn every_public_item_has_an_example() {
    let sources = sources();
    let public = |path: &str| PUBLIC.iter().any(|place| path.starts_with(place));
    let without = sources.iter().filter(|source| public(&source.path)).flat_map(|source| {
        let items = without_example(&source.text).into_iter();
        items.map(|item| format!("{}:{item}", source.path))
    });
    let without: Vec<String> = without.collect();
    assert!(
        without.is_empty(),
        "no example that runs in the documentation of\n{}",
        without.join("\n")
    );
}

/// The dependency tree, as Cargo knows it.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The strings of one list in `deny.toml`.
fn allowed(key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, list) = text.split_once(&format!("{key} = [")).expect("the list is there");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether a licence expression can be met: of `OR` one side, of `AND` both.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let inner = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    if let Some(inner) = inner.filter(|inner| !inner.contains(['(', ')'])) {
        return is_met(inner, allowed);
    }
    let split = |separator: &str| {
        let outside = |at: &usize| {
            expression[..*at].matches('(').count() == expression[..*at].matches(')').count()
        };
        let at = expression.match_indices(separator).map(|(at, _)| at).find(outside)?;
        Some((&expression[..at], &expression[at + separator.len()..]))
    };
    if let Some((left, right)) = split(" OR ").or_else(|| split("/")) {
        return is_met(left, allowed) || is_met(right, allowed);
    }
    if let Some((left, right)) = split(" AND ") {
        return is_met(left, allowed) && is_met(right, allowed);
    }
    allowed.contains(expression)
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    for met in
        ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(GPL-3.0 OR MIT) AND Zlib", "MIT AND Zlib"]
    {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", ""] {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn dependencies_have_allowed_licences_and_sources() {
    let licences = allowed("allow");
    let registries = allowed("allow-registry");
    let mut wrong = Vec::new();
    for package in packages() {
        let (name, version) = (&package["name"], &package["version"]);
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_met(licence, &licences) {
            wrong.push(format!("{name} {version}: licence '{licence}'"));
        }
        // Only this package itself has no source.
        let Some(source) = package["source"].as_str() else { continue };
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !registries.contains(registry) {
            wrong.push(format!("{name} {version}: source {source}"));
        }
    }
    assert!(wrong.is_empty(), "not in deny.toml:\n{}", wrong.join("\n"));
}
