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

    /// What has been made, for a reader that goes on by any thread.
    ///
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
pub(in crate::exec) async fn joined<T: 'static>(task: SpawnedTask<T>) -> Result<T> {
    let made = task.join_unwind().await;
    Ok(made.map_err(|stopped| Error::from(ErrorKind::Internal(stopped.to_string())))?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::poll;

    use super::*;

    /// Each reader waits on its thread for the other to have gone on, as one that works does: on one thread neither would.
    #[test]
    fn readers_that_have_waited_go_on_at_once() {
        const NEVER: Duration = Duration::from_secs(30);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let (begins, has_begun) = mpsc::channel();
        let (waits, is_waited_for) = mpsc::channel();
        // By the first reader, until the other waits for it.
        let once = OnceForAll::new(2, async move {
            begins.send(()).ok();
            Ok(is_waited_for.recv_timeout(NEVER).is_ok())
        });
        let (own, others) = (mpsc::channel(), mpsc::channel());
        let first = {
            let (once, goes_on, other) = (once.clone(), own.0, others.1);
            async move {
                let is_waited_for = *once.get().await?;
                goes_on.send(()).ok();
                Ok(is_waited_for && other.recv_timeout(NEVER).is_ok())
            }
        };
        let second = {
            let (goes_on, other) = (others.0, own.1);
            async move {
                has_begun.recv_timeout(NEVER).ok();
                let mut get = Box::pin(once.get());
                assert!(poll!(&mut get).is_pending());
                waits.send(()).ok();
                let is_waited_for = *get.await?;
                goes_on.send(()).ok();
                Ok(is_waited_for && other.recv_timeout(NEVER).is_ok())
            }
        };
        let readers: Vec<BoxFuture<'static, Result<bool>>> = vec![first.boxed(), second.boxed()];
        let both = runtime.unwrap().block_on(at_once(readers)).unwrap();
        assert_eq!(both, [true, true]);
    }
}
