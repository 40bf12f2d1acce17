//! Kernels that the device can run, and how they are launched.
//!
//! Enters: a [`Source`]. Leaves: a [`Kernel`], compiled once for a user and loaded once in a process; its launches in a
//! [`Stream`]. Not here: how a text is compiled.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{result, sys};

use super::buffer::Buffer;
use super::compiler::{self, Source, compile};
use super::device::{Device, Handle};
use super::fault::Fault;
use super::stream::Stream;

/// What images take together in the user's folder.
const IMAGES_BYTES_MAX: u64 = 64 << 20;

/// Parameters that a kernel may have.
pub(crate) const ARGUMENTS_MAX: usize = 64;

/// Dynamic shared memory that a block gets without asking.
const SHARED_BYTES_FREE: u32 = 48 << 10;

/// How many threads work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// At most so many: the kernel goes on in steps of as many as there are, for there are no more blocks than the
    /// device runs at once. None is no launch.
    Threads(u64),
    /// Exactly so many blocks, so that what a block computes does not depend on the device.
    Blocks(u32),
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) work: Work,
    /// Threads of a block; by occupancy where it is not given.
    pub(crate) block: Option<u32>,
    /// Dynamic shared memory of a block.
    pub(crate) shared_bytes: u32,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument<'a> {
    Buffer(&'a Buffer),
    /// A buffer from this byte on.
    From(&'a Buffer, usize),
    F64(f64),
    U64(u64),
    U32(u32),
}

impl Argument<'_> {
    /// As a kernel reads it: from the first bytes.
    fn word(self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.address(),
            Self::From(buffer, first) => buffer.address() + first as u64,
            Self::F64(value) => value.to_bits(),
            Self::U64(value) => value,
            Self::U32(value) => {
                let [a, b, c, d] = value.to_ne_bytes();
                u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
            }
        }
    }
}

/// A function that the device can run.
#[derive(Clone)]
pub(crate) struct Kernel(Arc<Loaded>);

struct Loaded {
    entry: String,
    function: Handle<sys::CUfunc_st>,
    shapes: Mutex<Shapes>,
}

#[derive(Default)]
struct Shapes {
    /// By the block that was asked for, and its shared memory.
    known: HashMap<(Option<u32>, u32), Shape>,
    /// The most dynamic shared memory that the driver was told of.
    shared_bytes_max: u32,
}

/// How many threads a block has, and how many such blocks the device runs at once.
#[derive(Debug, Clone, Copy)]
struct Shape {
    block: u32,
    blocks_max: u32,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.0.entry).finish()
    }
}

/// The place of a text: empty until it is loaded first, then what it is or why it is not. Who asks meanwhile waits.
pub(super) type Slot = Mutex<Option<Result<Module, Fault>>>;

/// A text that is loaded, for as long as the process lives.
pub(super) struct Module {
    module: Handle<sys::CUmod_st>,
    kernels: HashMap<String, Kernel>,
}

impl Device {
    /// Whether a kernel was asked for before, so that it is there at once.
    pub(crate) fn has_kernel(&self, source: &Source) -> bool {
        let known = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains_key(source)
    }

    /// The kernel of a text, compiled where nobody has yet; that takes some 0.1 s. A text that does not compile
    /// is not tried again.
    pub(crate) fn kernel(&self, source: &Source) -> Result<Kernel, Fault> {
        self.enter()?;
        let known = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known().get(source) {
            return Ok(kernel.clone());
        }
        let kernel = self.loaded(source)?;
        known().insert(source.clone(), kernel.clone());
        Ok(kernel)
    }

    fn loaded(&self, source: &Source) -> Result<Kernel, Fault> {
        let version = self.facts().libraries.nvrtc.clone()?;
        let architecture = compiler::architecture(self.facts().capability);
        let key = source.key(&architecture, version);
        let slot = Arc::clone(self.slots().entry(key).or_default());
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match &mut *slot {
            Some(module) => module,
            None => match self.module(source, key, &architecture) {
                // Memory may come back.
                Err(fault @ (Fault::Memory { .. } | Fault::Lost { .. })) => return Err(fault),
                other => slot.insert(other),
            },
        };
        match module {
            Ok(module) => module.kernel(self, &source.entry),
            Err(fault) => Err(fault.clone()),
        }
    }

    /// From the user's folder, else compiled. An image that the driver refuses is removed and made anew once.
    fn module(&self, source: &Source, key: u128, architecture: &str) -> Result<Module, Fault> {
        if let Some(image) = self.cache.get(key) {
            match self.load(&image, &source.entry) {
                Err(Fault::Image { .. }) => self.cache.remove(key),
                loaded => {
                    self.counts.cache_hits.fetch_add(1, Ordering::Relaxed);
                    return loaded;
                }
            }
        }
        let (image, _) = compile(None, source, architecture)?;
        self.counts.compiled.fetch_add(1, Ordering::Relaxed);
        let module = self.load(&image, &source.entry)?;
        self.cache.put(key, &image, IMAGES_BYTES_MAX);
        Ok(module)
    }

    fn load(&self, image: &[u8], entry: &str) -> Result<Module, Fault> {
        let load = || {
            self.call("cuModuleLoadData", || {
                // SAFETY: a cubin says how long it is, and PTX of NVRTC ends with a zero; both are as they left the
                // compiler, by their check sum.
                unsafe { result::module::load_data(image.as_ptr().cast()) }
            })
        };
        let loaded = self.with_room(load);
        match loaded {
            Ok(module) => Ok(Module { module: Handle(module), kernels: HashMap::new() }),
            Err(Fault::Image { code, .. }) => Err(Fault::Image { entry: entry.to_owned(), code }),
            Err(other) => Err(other),
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u128, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    fn kernel(&mut self, device: &Device, entry: &str) -> Result<Kernel, Fault> {
        if let Some(kernel) = self.kernels.get(entry) {
            return Ok(kernel.clone());
        }
        let misuse = Fault::Misuse { call: "cuModuleGetFunction", code: 500 };
        let name = CString::new(entry).map_err(|_| misuse)?;
        let function = device.call("cuModuleGetFunction", || {
            // SAFETY: the module is never unloaded.
            unsafe { result::module::get_function(self.module.0, name) }
        })?;
        let loaded = Loaded {
            entry: entry.to_owned(),
            function: Handle(function),
            shapes: Mutex::default(),
        };
        let kernel = Kernel(Arc::new(loaded));
        self.kernels.insert(entry.to_owned(), kernel.clone());
        Ok(kernel)
    }
}

impl Kernel {
    /// What a block is like, asked of the driver once.
    fn shape(
        &self,
        device: &Device,
        block: Option<u32>,
        shared_bytes: u32,
    ) -> Result<Shape, Fault> {
        let key = (block, shared_bytes);
        let mut shapes = self.0.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = shapes.known.get(&key) {
            return Ok(*shape);
        }
        let function = self.0.function.0;
        if shared_bytes > SHARED_BYTES_FREE.max(shapes.shared_bytes_max) {
            let which =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            device.call("cuFuncSetAttribute", || {
                // SAFETY: the function's module is never unloaded.
                unsafe {
                    result::function::set_function_attribute(function, which, shared_bytes as i32)
                }
            })?;
            shapes.shared_bytes_max = shared_bytes;
        }
        let shared = shared_bytes as usize;
        let (block, blocks_max) = match block {
            None => {
                let (mut blocks, mut block) = (0, 0);
                device.call("cuOccupancyMaxPotentialBlockSize", || {
                    // SAFETY: writes two numbers; without a function, shared memory is the same for every block.
                    unsafe {
                        let (blocks, block) = (&raw mut blocks, &raw mut block);
                        sys::cuOccupancyMaxPotentialBlockSize(
                            blocks, block, function, None, shared, 0,
                        )
                    }
                    .result()
                })?;
                (block.unsigned_abs(), blocks.unsigned_abs())
            }
            Some(block) => {
                let blocks = device.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", || {
                    // SAFETY: the function's module is never unloaded.
                    unsafe {
                        result::occupancy::max_active_block_per_multiprocessor(
                            function,
                            block as i32,
                            shared,
                        )
                    }
                })?;
                (block, blocks.unsigned_abs() * device.facts().multiprocessors)
            }
        };
        if block == 0 || blocks_max == 0 {
            return Err(Fault::Misuse { call: "occupancy", code: 701 });
        }
        let shape = Shape { block, blocks_max };
        shapes.known.insert(key, shape);
        Ok(shape)
    }
}

impl Stream {
    /// Runs a kernel. Its author answers for that it keeps to its buffers, and its caller for that the arguments are
    /// those of the text, in their order.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        launch: Launch,
        arguments: &[Argument<'_>],
    ) -> Result<(), Fault> {
        let device = self.device();
        device.enter()?;
        if matches!(launch.work, Work::Threads(0) | Work::Blocks(0)) {
            return Ok(());
        }
        if arguments.len() > ARGUMENTS_MAX {
            return Err(Fault::Misuse { call: "cuLaunchKernel", code: 1 });
        }
        let shape = kernel.shape(device, launch.block, launch.shared_bytes)?;
        let blocks = match launch.work {
            Work::Blocks(blocks) => blocks,
            Work::Threads(threads) => {
                let needed = threads.div_ceil(u64::from(shape.block));
                u32::try_from(needed).map_or(shape.blocks_max, |n| n.min(shape.blocks_max))
            }
        };
        // The driver reads as many as the kernel has parameters, whatever was passed: the rest are zeros.
        let mut words = [0; ARGUMENTS_MAX];
        let mut buffers = Vec::with_capacity(arguments.len());
        for (word, argument) in words.iter_mut().zip(arguments) {
            *word = argument.word();
            if let Argument::Buffer(buffer) | Argument::From(buffer, _) = argument {
                buffer.before(self.lane())?;
                buffers.push(*buffer);
            }
        }
        let mut pointers = words.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let (grid, block) = ((blocks, 1, 1), (shape.block, 1, 1));
        let (function, lane) = (kernel.0.function.0, self.lane().target());
        device.call("cuLaunchKernel", || {
            // SAFETY: the function's module is never unloaded, and the driver copies arguments of 8 bytes at most
            // each before it returns; the buffers are freed after what is queued here.
            unsafe {
                result::launch_kernel(
                    function,
                    grid,
                    block,
                    launch.shared_bytes,
                    lane,
                    &mut pointers,
                )
            }
        })?;
        self.queued(&buffers);
        self.count(&device.counts.launches);
        Ok(())
    }
}
