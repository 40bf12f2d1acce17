//! Work that several threads do at once.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};

use crate::error::{Error, ErrorKind};

/// What futures yield that run at once, in their order.
///
/// # Errors
/// That of the first that fails, and where one panics.
pub(super) async fn at_once<T: Send + 'static>(
    mut futures: Vec<impl Future<Output = Result<T>> + Send + 'static>,
) -> Result<Vec<T>> {
    if futures.len() == 1
        && let Some(only) = futures.pop()
    {
        return Ok(vec![only.await?]);
    }
    let tasks: Vec<_> = futures.into_iter().map(SpawnedTask::spawn).collect();
    let mut made = Vec::with_capacity(tasks.len());
    for task in tasks {
        made.push(joined(task).await??);
    }
    Ok(made)
}

/// What one of several readers makes for all of them: whoever asks first.
pub(super) struct OnceForAll<T> {
    making: Shared<BoxFuture<'static, std::result::Result<Arc<T>, Arc<DataFusionError>>>>,
    /// Whether there are others.
    is_shared: bool,
}

impl<T: Send + Sync + 'static> OnceForAll<T> {
    pub(super) fn new(
        readers: usize,
        making: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        let making = making.map_ok(Arc::new).map_err(Arc::new).boxed().shared();
        Self { making, is_shared: readers > 1 }
    }

    /// # Errors
    /// That of the one that was to make it, to each reader.
    pub(super) async fn get(self) -> Result<Arc<T>> {
        let made = self.making.await.map_err(|error| DataFusionError::from(&error))?;
        if self.is_shared {
            // Whoever has made it has woken the others, who would wait on its thread until it is done with its own part.
            by_any_thread().await;
        }
        Ok(made)
    }
}

impl<T> Clone for OnceForAll<T> {
    fn clone(&self) -> Self {
        Self { making: self.making.clone(), is_shared: self.is_shared }
    }
}

/// Lets any thread go on with a task. Tokio keeps one that has just been woken for the thread that woke it, where no other may take
/// it; and one that yields as Tokio has it waits on its thread until that has nothing else to do.
async fn by_any_thread() {
    let mut is_handed_over = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_handed_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What a task made.
///
/// # Errors
/// Where it panicked.
pub(super) async fn joined<T: 'static>(task: SpawnedTask<T>) -> Result<T> {
    let made = task.join_unwind().await;
    Ok(made.map_err(|stopped| Error::from(ErrorKind::Internal(stopped.to_string())))?)
}
