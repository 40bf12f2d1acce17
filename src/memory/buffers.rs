//! All buffers of a column, whatever its type.

use arrow::array::ArrayData;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};

/// Visits each buffer, in the order in which [`with_buffers`] replaces them.
pub(super) fn for_each_buffer<'d>(data: &'d ArrayData, visit: &mut impl FnMut(&'d Buffer)) {
    let nulls = data.nulls().map(NullBuffer::buffer);
    data.buffers().iter().chain(nulls).for_each(&mut *visit);
    data.child_data().iter().for_each(|child| for_each_buffer(child, visit));
}

/// The same values with another buffer of the same bytes in the place of each; nothing where there is none for one.
pub(super) fn with_buffers(
    data: &ArrayData,
    same: &mut impl FnMut(&Buffer) -> Option<Buffer>,
) -> Option<ArrayData> {
    let buffers = data.buffers().iter().map(&mut *same).collect::<Option<_>>()?;
    let nulls = match data.nulls() {
        None => None,
        Some(nulls) => {
            let bits = same(nulls.buffer())?;
            Some(NullBuffer::new(BooleanBuffer::new(bits, nulls.offset(), nulls.len())))
        }
    };
    let children = data.child_data().iter().map(|child| with_buffers(child, same));
    let children = children.collect::<Option<_>>()?;
    let builder = data.clone().into_builder().buffers(buffers).child_data(children);
    // SAFETY: each buffer has the bytes of the one in its place, of an array that is valid. To check that would read
    // them all, from a file where they are in one.
    Some(unsafe { builder.nulls(nulls).build_unchecked() })
}
