//! The columns of a row group, as they lie in the file.
//!
//! What the system has in memory is copied by whoever asks. What it would have to wait for is read on a thread for work
//! that blocks, as long as others go on.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::flaw::{Checked, Flaw};

/// Bytes that nobody uses and that are kept for who comes next.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// Memory of what was read before: the caches know it, and the system need not hand out more.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    memory: Vec<Vec<u8>>,
    bytes: usize,
}

/// Some bytes in memory that is used again.
#[derive(Debug)]
pub(super) struct Memory {
    memory: Vec<u8>,
    /// The first so many count.
    count: usize,
    /// Where it goes afterwards, if anywhere.
    spare: Option<Arc<Spare>>,
}

impl Memory {
    /// Memory of so many bytes and no more, for those who keep it.
    pub(super) fn of_its_own(count: usize) -> Self {
        Self { memory: vec![0; count], count, spare: None }
    }
}

impl Spare {
    /// Memory of so many bytes, which hold anything.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Memory {
        let fitting = {
            let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |memory: &Vec<u8>| memory.len() >= count && memory.len() / 2 <= count;
            idle.memory.iter().position(fits).map(|at| {
                let memory = idle.memory.swap_remove(at);
                idle.bytes -= memory.len();
                memory
            })
        };
        let memory = fitting.unwrap_or_else(|| vec![0; count.next_multiple_of(4096)]);
        Memory { memory, count, spare: Some(Arc::clone(self)) }
    }

    fn put(&self, memory: Vec<u8>) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + memory.len() <= SPARE_BYTES_MAX {
            idle.bytes += memory.len();
            idle.memory.push(memory);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(spare) = &self.spare {
            spare.put(std::mem::take(&mut self.memory));
        }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.count]
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.count]
    }
}

/// What is done before something is waited for.
pub(super) type BeforeWaiting = Arc<dyn Fn() + Send + Sync>;

/// The bytes of parts of a file.
///
/// # Errors
/// Where it cannot be read, or ends before.
pub(super) async fn fetch(
    file: &Arc<File>,
    parts: &[Range<u64>],
    spare: &Arc<Spare>,
    before_waiting: Option<&BeforeWaiting>,
) -> Checked<Vec<Bytes>> {
    let mut fetched = Vec::with_capacity(parts.len());
    for part in parts {
        let count = usize::try_from(part.end - part.start).map_err(Flaw::new)?;
        let (mut memory, at) = (spare.take(count), part.start);
        let done = read_at_once(file, memory.as_mut(), at);
        if done < count {
            let (file, before_waiting) = (Arc::clone(file), before_waiting.cloned());
            let reading = move || {
                before_waiting.iter().for_each(|ask| ask());
                read(&file, &mut memory.as_mut()[done..], at + done as u64).map(|()| memory)
            };
            memory = tokio::task::spawn_blocking(reading).await.map_err(Flaw::new)??;
        }
        fetched.push(Bytes::from_owner(memory));
    }
    Ok(fetched)
}

/// Fills `bytes` from a place on as far as the system has them in memory; says how many those are.
#[cfg(target_os = "linux")]
fn read_at_once(file: &File, bytes: &mut [u8], at: u64) -> usize {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut [io::IoSliceMut::new(&mut bytes[done..])];
        match preadv2(file, rest, at + done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(_) => break,
            Ok(count) => done += count,
        }
    }
    done
}

#[cfg(not(target_os = "linux"))]
fn read_at_once(_: &File, _: &mut [u8], _: u64) -> usize {
    0
}

/// Fills `bytes` from a place on.
///
/// # Errors
/// Where the file cannot be read, or ends before.
#[cfg(unix)]
pub(super) fn read(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills `bytes` from a place on.
///
/// # Errors
/// Where the file cannot be read, or ends before.
#[cfg(windows)]
pub(super) fn read(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_read(bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => (bytes, at) = (&mut bytes[count..], at + count as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn memory_is_used_again_where_it_fits() {
        let spare = Arc::<Spare>::default();
        let idle = |spare: &Spare| spare.0.lock().unwrap().bytes;
        let first = spare.take(10_000);
        let at = first.as_ref().as_ptr();
        drop(first);
        assert_eq!(idle(&spare), 12288);
        assert_ne!(spare.take(100).as_ref().as_ptr(), at);
        let again = spare.take(9000);
        assert_eq!((again.as_ref().as_ptr(), again.as_ref().len()), (at, 9000));
        drop(again);
        // What nobody uses is bounded.
        let many: Vec<_> = (0..40).map(|_| spare.take(1 << 20)).collect();
        drop(many);
        assert!(idle(&spare) <= SPARE_BYTES_MAX);
    }

    #[tokio::test]
    async fn parts_are_those_of_the_file_and_one_beyond_its_end_is_an_error() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 7 % 251) as u8).collect();
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), &bytes).unwrap();
        let (file, spare) = (Arc::new(File::open(named.path()).unwrap()), Arc::default());
        let parts = [0..10, 5..5, 90..200_001, 299_999..300_000];
        let found = fetch(&file, &parts, &spare, None).await.unwrap();
        for (part, found) in parts.iter().zip(found) {
            assert_eq!(found, &bytes[part.start as usize..part.end as usize]);
        }
        // What is beyond the end is in no memory, and so is asked for.
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let ask: BeforeWaiting = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let beyond = std::slice::from_ref(&(0..300_001));
        assert!(fetch(&file, beyond, &spare, Some(&ask)).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
