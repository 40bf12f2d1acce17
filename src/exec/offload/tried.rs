//! Whether a device does some kind of work as it should, found out once by a thread of its own.

use std::sync::Arc;
use std::thread;

use crate::gpu::{Device, Trials, Tried};

/// What `try_out` finds of a device. Who does not wait for that is told so once somebody knows.
pub(super) fn holds(
    device: &Arc<Device>,
    of: fn(&Trials) -> &Tried,
    waits: bool,
    try_out: fn(&Arc<Device>) -> bool,
) -> bool {
    let own = Arc::clone(device);
    let look = move || *of(own.trials()).found.get_or_init(|| try_out(&own));
    if waits {
        return look();
    }
    let tried = of(device.trials());
    if let Some(found) = tried.found.get() {
        return *found;
    }
    tried.looking.get_or_init(|| {
        // Without a thread for it, the next who waits looks.
        let _ = thread::Builder::new().name("relatrix-gpu".into()).spawn(look);
    });
    false
}
