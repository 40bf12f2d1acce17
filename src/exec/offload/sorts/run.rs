//! Rows sorted on a device: what it needs of columns and ranks, the codes that a kernel makes of them, and the numbers of rows that come back.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::row::{RowConverter, SortField};

use super::order::{self, Codes, Told};
use super::text::Kernel;
use super::{By, Of, Sorting};
use crate::exec::offload::groups::{Asked, Batches, ENTRY, Log, Looked, PACK, Run, brought};
use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::exec::offload::operator::{Around, Missing};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Argument, Device, Launch, Source, Work};

/// What a device found.
pub(super) struct Sorted {
    /// The numbers of the rows in order, the first so many where not all are asked for.
    pub(super) rows: Vec<u32>,
    /// Bytes of the columns that were brought for it, and how they came.
    pub(super) brought_bytes: usize,
    pub(super) log: Log,
}

/// The rows in order.
pub(super) fn run(
    sorting: &Sorting,
    device: &Arc<Device>,
    around: Around<'_>,
) -> Result<Sorted, Missing> {
    let Sorting { asked, by, fetch, .. } = sorting;
    let most = fetch.map_or(asked.rows, |fetch| fetch.min(asked.rows));
    around.bytes.try_grow(most * size_of::<u32>()).map_err(Failed::from)?;
    let queue = Queue::new(device, around.cancel)?;
    let (columns, mut brought_bytes) = brought(&queue, asked, around)?;
    let rows = Batches::new(asked.rows, (columns, &asked.tables), around.keeps);
    brought_bytes += rows.coming_bytes();
    // What is sorted is all rows at once.
    rows.bring(&queue, around.bytes)?;
    let log = rows.log();
    let run = Run { asked, queue, rows, places: Vec::new(), waits: around.waits };
    Ok(Sorted { rows: in_order(&run, by, *fetch)?, brought_bytes, log })
}

/// The numbers of the rows in order, of columns that are there.
pub(super) fn in_order(
    run: &Run<'_>,
    by: &[By],
    fetch: Option<usize>,
) -> Result<Vec<u32>, Missing> {
    let (looked, ranks) = looked(run, by)?;
    let kernel = Kernel::new(run.asked, by, &run.facts(), &ranks);
    // How many texts there are may not have been known before.
    let kernel = kernel.map_err(|why| Failed::Refused(why.into()))?;
    let source = Source {
        text: Cow::Owned(kernel.text.clone()),
        headers: HEADERS,
        entry: Cow::Borrowed(ENTRY),
        contracts: false,
    };
    let sources = vec![source, order::source()];
    if !run.waits && !sources.iter().all(|source| run.queue.device.has_kernel(source)) {
        return Err(run.compile_beside(sources));
    }
    let codes = codes(run, &kernel, &sources[0], &looked)?;
    Ok(run.queue.in_order(&codes, fetch)?)
}

/// What is looked up, and of what is a key how many ranks there are.
fn looked(run: &Run<'_>, by: &[By]) -> Result<(Vec<Looked>, Vec<usize>), Failed> {
    let Asked { look_ups, .. } = run.asked;
    let all = look_ups.iter().enumerate().map(|(at, of)| {
        let key = by.iter().find(|by| matches!(by.of, Of::Looked(own) if own == at));
        let Some(key) = key else { return Ok((run.looked(of, false)?, 0)) };
        let (ranks, count) = ranks(&run.computed(of)?, key.options)?;
        let there = run.upload(bytemuck::cast_slice(&ranks), "ranks of values")?;
        Ok((Looked { there, last: ranks.len() - 1, different: None }, count))
    });
    let all: Vec<(Looked, usize)> = all.collect::<Result<_, Failed>>()?;
    Ok(all.into_iter().unzip())
}

/// Of each value the place that it has among the different ones in their order, and how many of these there are.
pub(super) fn ranks(values: &ArrayRef, options: SortOptions) -> Result<(Vec<u32>, usize), Failed> {
    let field = SortField::new_with_options(values.data_type().clone(), options);
    let rows = RowConverter::new(vec![field])?.convert_columns(&[Arc::clone(values)])?;
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_unstable_by(|one, other| rows.row(*one).cmp(&rows.row(*other)));
    let (mut ranks, mut last) = (vec![0; values.len()], 0);
    for (at, &place) in places.iter().enumerate() {
        if at > 0 && rows.row(place) != rows.row(places[at - 1]) {
            last += 1;
        }
        ranks[place] = last;
    }
    Ok((ranks, last as usize + 1))
}

/// The codes of the rows, and what is known of them.
fn codes(
    run: &Run<'_>,
    kernel: &Kernel,
    source: &Source,
    looked: &[Looked],
) -> Result<Codes, Failed> {
    let Run { asked, queue, .. } = run;
    let (rows, words) = (asked.rows, kernel.words);
    let packs = rows.div_ceil(PACK);
    // A word ends with a whole pack, as a column does.
    let stride = packs * PACK;
    let word_bytes = if kernel.is_wide { size_of::<u64>() } else { size_of::<u32>() };
    let cells = queue.room(stride * words * word_bytes, "codes of rows")?;
    let drops = !asked.conditions.is_empty();
    let kept = if drops { Some(queue.room(packs, "rows that are kept")?) } else { None };
    let mut told = vec![0_u64; 1 + 2 * words];
    let told_to = queue.room(told.len() * size_of::<u64>(), "what is told of codes")?;
    queue.stream.clear(&told_to)?;
    let mut given = vec![
        Argument::Buffer(&cells),
        Argument::U64(stride as u64),
        Argument::U64(rows as u64),
        kept.as_ref().map_or(Argument::U64(0), Argument::Buffer),
        Argument::Buffer(&told_to),
    ];
    let all = run.rows.all();
    given.extend(kernel.parameters.iter().map(|of| run.argument(*of, &all, (looked, &[]))));
    let loaded = queue.device.kernel(source)?;
    let work = Work::Threads(packs as u64);
    let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
    queue.stream.launch(&loaded, launch, &given)?;
    queue.back(&told_to, &mut told)?;
    let bits = told[1..].as_chunks().0.to_vec();
    let told = Told { rows: told[0] as usize, bits };
    Ok(Codes { cells, words, is_wide: kernel.is_wide, rows, stride, kept, told })
}
