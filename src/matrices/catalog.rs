//! Matrices and matrix views by name: those of a database, and the temporary ones of a session above them.
//!
//! Stored matrices are counted against the memory limit for as long as they have a name. Two names of one
//! matrix count its cells twice, which errs on the safe side.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool};
use sqlparser::ast::{Expr, Ident};

use crate::catalog::{IfTaken, exists};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::Matrix;
use crate::memory::{Eviction, Grant, Pool};
use crate::sql::{self, MatrixOptions, Named};

use super::held::Held;

/// Views may stand for views, to this depth: each is resolved by recursion.
const VIEW_DEPTH_MAX: usize = 50;

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Matrix(Held),
    View(View),
}

/// An expression, kept as its text, and how its value is to be.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) text: String,
    pub(super) options: MatrixOptions,
}

/// An entry, and where it was found.
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) temporary: bool,
}

/// The matrices of a database, or those of a session with the database's behind them.
#[derive(Debug)]
pub(crate) struct Matrices {
    entries: RwLock<BTreeMap<String, Entry>>,
    /// Where a name is looked up that is not here.
    database: Option<Arc<Matrices>>,
    pool: Arc<dyn MemoryPool>,
    blocks: Arc<Pool>,
    eviction: Arc<Eviction>,
}

impl Matrices {
    /// Those of an empty database, counted in this pool, their cells in these blocks until they move.
    pub(crate) fn new(
        pool: Arc<dyn MemoryPool>,
        blocks: Arc<Pool>,
        eviction: Arc<Eviction>,
    ) -> Self {
        Self { entries: RwLock::default(), database: None, pool, blocks, eviction }
    }

    /// Those of a new session of a database.
    pub(crate) fn of_session(database: Arc<Matrices>) -> Self {
        let (pool, blocks) = (Arc::clone(&database.pool), Arc::clone(&database.blocks));
        let eviction = Arc::clone(&database.eviction);
        Self { entries: RwLock::default(), database: Some(database), pool, blocks, eviction }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a new name goes.
    pub(super) fn owner(&self, temporary: bool) -> &Matrices {
        match &self.database {
            Some(database) if !temporary => database,
            _ => self,
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Found> {
        let own = self.read().get(name).cloned();
        match (own, &self.database) {
            (Some(entry), database) => Some(Found { entry, temporary: database.is_some() }),
            (None, Some(database)) => database.find(name),
            (None, None) => None,
        }
    }

    /// Whether a name stands for the matrix of this number.
    pub(crate) fn is(&self, name: &str, id: u64) -> bool {
        let found = self.find(name).map(|found| found.entry);
        matches!(found, Some(Entry::Matrix(held)) if held.id() == id)
    }

    /// A stored matrix, to be worked on.
    ///
    /// # Errors
    /// [`ErrorKind::MemorySpent`] where it is compressed, and neither memory nor the disk has room for the whole of it.
    pub(super) fn used(&self, name: &str, held: &Held) -> Result<Arc<Matrix>> {
        held.used().ok_or_else(|| {
            let (needed_bytes, disk_bytes) = held.wanted_bytes();
            self.spent(name, needed_bytes, disk_bytes)
        })
    }

    /// Whether something may now get this name; an error where it is taken.
    pub(super) fn admits(&self, name: &str, if_taken: IfTaken) -> Result<bool> {
        match (self.read().contains_key(name), if_taken) {
            (true, IfTaken::Fail) => Err(exists("matrix", name)),
            (true, IfTaken::Keep) => Ok(false),
            (true, IfTaken::Replace) | (false, _) => Ok(true),
        }
    }

    /// Stores a matrix under a name. Where memory has no room for it, others that were not used lately move to files;
    /// where that is not enough, it does.
    ///
    /// # Errors
    /// A name that is taken; [`ErrorKind::MemorySpent`] where the disk has no room either.
    pub(crate) fn add(&self, name: String, matrix: Arc<Matrix>, if_taken: IfTaken) -> Result<()> {
        let bytes = MemoryConsumer::new(format!("matrix {name}")).register(&self.pool);
        let mut grant = Grant::new(&self.blocks);
        self.eviction.make_room(matrix.memory_bytes());
        let grows = |matrix: &Matrix| bytes.try_grow(matrix.memory_bytes()).is_ok();
        let matrix = match grows(&matrix) {
            true => matrix,
            false => {
                let on_disk = matrix.on_disk().filter(grows);
                let spent = || self.spent(&name, matrix.size_bytes(), grant.disk_bytes());
                Arc::new(on_disk.ok_or_else(spent)?)
            }
        };
        grant.grow(bytes.size());
        self.insert(name, Entry::Matrix(Held::new(matrix, bytes, grant, &self.eviction)), if_taken)
    }

    fn spent(&self, name: &str, needed_bytes: usize, disk_bytes: usize) -> Error {
        let free_bytes = match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(self.pool.reserved()),
            MemoryLimit::Infinite | MemoryLimit::Unknown => 0,
        };
        let (what, disk_bytes) = (format!("matrix {name}"), Some(disk_bytes));
        ErrorKind::MemorySpent { what, needed_bytes, free_bytes, disk_bytes }.into()
    }

    /// Stores a view under a name.
    ///
    /// # Errors
    /// A name that is taken.
    pub(super) fn add_view(&self, name: String, view: View, if_taken: IfTaken) -> Result<()> {
        self.insert(name, Entry::View(view), if_taken)
    }

    fn insert(&self, name: String, entry: Entry, if_taken: IfTaken) -> Result<()> {
        let mut entries = self.write();
        match (entries.contains_key(&name), if_taken) {
            (true, IfTaken::Fail) => return Err(exists("matrix", &name)),
            (true, IfTaken::Keep) => {}
            (true, IfTaken::Replace) | (false, _) => {
                entries.insert(name, entry);
            }
        }
        Ok(())
    }

    /// Forgets a name; whether there was one.
    pub(super) fn remove(&self, name: &str) -> bool {
        let own = self.write().remove(name).is_some();
        own || self.database.as_ref().is_some_and(|database| database.remove(name))
    }

    /// Every name with what it stands for here, in order.
    pub(super) fn all(&self) -> BTreeMap<String, Found> {
        let mut all = self.database.as_ref().map(|database| database.all()).unwrap_or_default();
        let temporary = self.database.is_some();
        for (name, entry) in self.read().iter() {
            all.insert(name.clone(), Found { entry: entry.clone(), temporary });
        }
        all
    }

    pub(super) fn unknown(&self, name: &str) -> Error {
        let names: Vec<String> = self.all().into_keys().collect();
        let hint = match names.as_slice() {
            [] => "; CREATE MATRIX makes one".to_owned(),
            names => format!("; there are {}", names.join(", ")),
        };
        ErrorKind::Unknown { what: "matrix", name: name.to_owned(), hint }.into()
    }

    /// What a name in an expression stands for, views with their own names resolved. `within` are the views
    /// in which the name stands, the outermost first.
    pub(super) fn named(&self, name: &Ident, within: &[String]) -> Result<Option<Named>> {
        let key = sql::normalized(name);
        let refused = |message: &str| Error::argument(format!("matrix view '{key}'"), message);
        if within.contains(&key) {
            return Err(refused("stands for itself"));
        }
        match self.find(&key).map(|found| found.entry) {
            None => Ok(None),
            Some(Entry::Matrix(_)) => Ok(Some(Named::Matrix)),
            Some(Entry::View(_)) if within.len() == VIEW_DEPTH_MAX => {
                Err(refused(&format!("is within more than {VIEW_DEPTH_MAX} others")))
            }
            Some(Entry::View(view)) => {
                let expr = self.resolved(&view.text, name, within)?;
                Ok(Some(Named::View(view.options.around(expr))))
            }
        }
    }

    /// The text of a view, which is to be read where `name` stands.
    fn resolved(&self, text: &str, name: &Ident, within: &[String]) -> Result<Expr> {
        let within = [within, &[sql::normalized(name)]].concat();
        let mut expr = sql::parse_view(text, name.span)?;
        sql::resolve_expression(&mut expr, &|name| self.named(name, &within))?;
        Ok(expr)
    }

    /// # Errors
    /// Where a view of this name would stand for itself.
    pub(super) fn refuse_itself(&self, name: &Ident, text: &str) -> Result<()> {
        let resolved = self.resolved(text, name, &[]).map(|_| ());
        resolved.map_err(|error| error.at(sql::place_of_name(name)))
    }
}
