//! Products of matrices, by cuBLAS.
//!
//! Enters: two matrices, row after row. Leaves: their product, row after row. Not here: which products are worth it.
//!
//! cuBLAS has matrices column after column: what it is given is each matrix transposed, so it computes `cᵗ = bᵗ·aᵗ`.

use std::fmt;
use std::ptr;

use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cublasStatus_t, cudaDataType,
};
use cudarc::driver::sys::CUstream;

use super::buffer::Buffer;
use super::device::{Device, Handle};
use super::fault::Fault;
use super::stream::Stream;

/// What products of a graph work in, as cuBLAS recommends it: without memory of its caller's each graph would have some of its own.
const SCRATCH_BYTES: usize = 4 << 20;
const HOPPER_SCRATCH_BYTES: usize = 32 << 20;

/// In what products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    F64,
    F32,
    /// cuBLAS rounds the cells of both factors, of `f32`, to 11 significant bits; a product of two is whole in `f32`.
    Tf32,
    /// Cells of both factors have 8 significant bits.
    Bf16,
}

impl Arithmetic {
    /// Bytes of a factor's cell.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::Tf32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Bytes of a cell of what comes out, which is of `f64` or `f32` as sums are.
    pub(crate) fn sum_bytes(self) -> usize {
        if self == Self::F64 { 8 } else { 4 }
    }

    /// How far a factor's cell is from what is multiplied in its place, as a share of it.
    pub(crate) fn roundoff(self) -> f64 {
        match self {
            Self::F64 => f64::EPSILON / 2.0,
            Self::F32 => f64::from(f32::EPSILON) / 2.0,
            Self::Tf32 => 1.0 / 2048.0,
            Self::Bf16 => 1.0 / 256.0,
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F64 => "float64",
            Self::F32 => "float32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        })
    }
}

/// `c = a·b`: m×k by k×n, row after row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) arithmetic: Arithmetic,
    /// Whether `a` is stored as k×m, `b` as n×k.
    pub(crate) transposed: [bool; 2],
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

/// What cuBLAS needs in a lane; it stays as long as the process.
#[derive(Debug)]
pub(super) struct Products(Handle<sys::cublasContext>);

impl Products {
    fn new(device: &Device, stream: &Stream) -> Result<Self, Fault> {
        let create = || {
            device.enter()?;
            let mut handle = ptr::null_mut();
            // SAFETY: cuBLAS is present, and the device's context is the thread's.
            match unsafe { sys::cublasCreate_v2(&mut handle) } {
                // It says so too where it has no room for what it works in.
                cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED => Err(Fault::Memory { bytes: 0 }),
                status => done(device, status).map(|()| handle),
            }
        };
        let handle = device.with_room(create)?;
        // SAFETY: cudarc has a type of its own for the same streams.
        let set = unsafe { sys::cublasSetStream_v2(handle, stream.lane().stream().cast()) };
        done(device, set).map(|()| Self(Handle(handle)))
    }
}

/// What a status means. Of one that may be the device's, the driver is asked.
fn done(device: &Device, status: cublasStatus_t) -> Result<(), Fault> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => Err(Fault::Memory { bytes: 0 }),
        other => {
            device.settle()?;
            Err(Fault::Library { library: "cuBLAS", code: other as u32 })
        }
    }
}

impl Stream {
    /// Multiplies matrices into `out`, whatever that holds.
    ///
    /// # Errors
    /// [`Fault::Missing`] without cuBLAS; [`Fault::Misuse`] where a buffer is too short.
    pub(crate) fn product(
        &self,
        product: Product,
        a: &Buffer,
        b: &Buffer,
        out: &Buffer,
    ) -> Result<(), Fault> {
        let device = self.device();
        device.facts().libraries.cublas.clone()?;
        device.enter()?;
        let Product { arithmetic, transposed, m, k, n } = product;
        let fits = |buffer: &Buffer, rows: usize, columns: usize, cell_bytes: usize| {
            let bytes = rows.checked_mul(columns).and_then(|n| n.checked_mul(cell_bytes));
            bytes.is_some_and(|bytes| bytes <= buffer.bytes())
        };
        let (cell, sum) = (arithmetic.bytes(), arithmetic.sum_bytes());
        if !(fits(a, m, k, cell) && fits(b, k, n, cell) && fits(out, m, n, sum)) {
            return Err(Fault::Misuse { call: "product", code: 1 });
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return self.clear(out);
        }
        let mut products = self.lane().products();
        let handle = match &*products {
            Some(Products(handle)) => handle.0,
            // What it needs takes memory, and is not for a graph.
            None if self.lane().is_recording() => {
                return Err(Fault::Misuse { call: "cublasCreate", code: 900 });
            }
            None => products.insert(Products::new(device, self)?).0.0,
        };
        for buffer in [a, b, out] {
            buffer.before(self.lane())?;
        }
        let operation = |transposed| match transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        let [of_a, of_b] = transposed.map(operation);
        let a_row = if transposed[0] { m } else { k };
        let b_row = if transposed[1] { k } else { n };
        let [m, k, n, a_row, b_row] = [m, k, n, a_row, b_row].map(|side| side as i64);
        let [at_a, at_b, at_out] = [a, b, out].map(Buffer::address);
        let rounded = |cells, compute| {
            // SAFETY: the buffers hold such matrices and are freed after what is queued here; the scales, of `f32` as the
            // sums are, are read before the call returns.
            unsafe {
                sys::cublasGemmEx_64(
                    handle,
                    of_b,
                    of_a,
                    n,
                    m,
                    k,
                    ptr::from_ref(&1.0_f32).cast(),
                    at_b as *const _,
                    cells,
                    b_row,
                    at_a as *const _,
                    cells,
                    a_row,
                    ptr::from_ref(&0.0_f32).cast(),
                    at_out as *mut _,
                    cudaDataType::CUDA_R_32F,
                    n,
                    compute,
                    cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
                )
            }
        };
        let status = match arithmetic {
            // SAFETY: as above.
            Arithmetic::F64 => unsafe {
                sys::cublasDgemm_v2_64(
                    handle,
                    of_b,
                    of_a,
                    n,
                    m,
                    k,
                    &1.0,
                    at_b as *const f64,
                    b_row,
                    at_a as *const f64,
                    a_row,
                    &0.0,
                    at_out as *mut f64,
                    n,
                )
            },
            // SAFETY: as above.
            Arithmetic::F32 => unsafe {
                sys::cublasSgemm_v2_64(
                    handle,
                    of_b,
                    of_a,
                    n,
                    m,
                    k,
                    &1.0,
                    at_b as *const f32,
                    b_row,
                    at_a as *const f32,
                    a_row,
                    &0.0,
                    at_out as *mut f32,
                    n,
                )
            },
            Arithmetic::Tf32 => {
                rounded(cudaDataType::CUDA_R_32F, cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32)
            }
            // Not of `f32` that it rounds: that is computed in tf32, at half of the rate.
            Arithmetic::Bf16 => {
                rounded(cudaDataType::CUDA_R_16BF, cublasComputeType_t::CUBLAS_COMPUTE_32F)
            }
        };
        done(device, status)?;
        self.queued(&[a, b, out]);
        self.count(&device.counts.products);
        Ok(())
    }

    /// Memory for products of a graph to work in; none where this lane has not multiplied.
    pub(super) fn scratch(&self) -> Result<Option<Buffer>, Fault> {
        let multiplies = self.lane().products().is_some();
        let (major, _) = self.device().facts().capability;
        let bytes = if major < 9 { SCRATCH_BYTES } else { HOPPER_SCRATCH_BYTES };
        multiplies.then(|| self.alloc(bytes, "scratch of products")).transpose()
    }

    /// Queues the products of this lane in a stream from now on, and lets them work in this memory, or in that of cuBLAS.
    pub(super) fn direct_products(
        &self,
        stream: CUstream,
        scratch: Option<&Buffer>,
    ) -> Result<(), Fault> {
        let device = self.device();
        let products = self.lane().products();
        let Some(Products(handle)) = &*products else { return Ok(()) };
        device.enter()?;
        // SAFETY: as where it was made. Its working memory is that of cuBLAS again.
        done(device, unsafe { sys::cublasSetStream_v2(handle.0, stream.cast()) })?;
        let Some(scratch) = scratch else { return Ok(()) };
        let (at, bytes) = (scratch.address() as *mut _, scratch.bytes());
        // SAFETY: the memory is so long, lies at a multiple of 256 bytes as the driver allocates, and lives as long as the graph.
        done(device, unsafe { sys::cublasSetWorkspace_v2(handle.0, at, bytes) })
    }
}
