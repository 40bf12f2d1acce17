//! Factorizations of matrices, by cuSOLVER.
//!
//! Enters: matrices column after column, as cuSOLVER has them: row after row, the same cells are the transpose. Leaves: their factors in
//! their place, and what it says of them. Not here: signs, transposes, and whether a result means anything (who asks).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use cudarc::cusolver::sys::{
    self, cublasFillMode_t, cublasOperation_t, cudaDataType, cusolverEigMode_t, cusolverStatus_t,
};

use super::buffer::Buffer;
use super::device::{Device, Handle};
use super::fault::Fault;
use super::product::Arithmetic;
use super::stream::Stream;

/// A matrix column after column, of `f64` or `f32` as its arithmetic says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Columns<'_> {
    fn kind(self) -> cudaDataType {
        match self.arithmetic {
            Arithmetic::F64 => cudaDataType::CUDA_R_64F,
            _ => cudaDataType::CUDA_R_32F,
        }
    }

    fn cells(self) -> *mut c_void {
        self.buffer.address() as *mut c_void
    }

    /// Whether its buffer has room for it, and no side is beyond what cuSOLVER counts to in all of its functions.
    fn fits(self) -> bool {
        let bytes = self.rows.checked_mul(self.columns);
        let bytes = bytes.and_then(|cells| cells.checked_mul(self.arithmetic.bytes()));
        let sides = [self.rows, self.columns];
        sides.iter().all(|&side| side > 0 && i32::try_from(side).is_ok())
            && bytes.is_some_and(|bytes| bytes <= self.buffer.bytes())
    }
}

/// What cuSOLVER needs in a lane; it stays as long as the process.
#[derive(Debug)]
pub(super) struct Solver {
    handle: Handle<sys::cusolverDnContext>,
    parameters: Handle<sys::cusolverDnParams>,
}

impl Solver {
    fn new(device: &Device, stream: &Stream) -> Result<Self, Fault> {
        let create = || {
            device.enter()?;
            let (mut handle, mut parameters) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: cuSOLVER is present, and the device's context is the thread's.
            match unsafe { sys::cusolverDnCreate(&mut handle) } {
                // It says so too where it has no room for what it works in.
                cusolverStatus_t::CUSOLVER_STATUS_NOT_INITIALIZED => {
                    return Err(Fault::Memory { bytes: 0 });
                }
                status => done(device, status)?,
            }
            // SAFETY: as above.
            done(device, unsafe { sys::cusolverDnCreateParams(&mut parameters) })?;
            Ok((handle, parameters))
        };
        let (handle, parameters) = device.with_room(create)?;
        // SAFETY: cudarc has a type of its own for the same streams.
        let set = unsafe { sys::cusolverDnSetStream(handle, stream.lane().stream().cast()) };
        done(device, set)?;
        Ok(Self { handle: Handle(handle), parameters: Handle(parameters) })
    }
}

/// What a status means. Of one that may be the device's, the driver is asked.
fn done(device: &Device, status: cusolverStatus_t) -> Result<(), Fault> {
    match status {
        cusolverStatus_t::CUSOLVER_STATUS_SUCCESS => Ok(()),
        cusolverStatus_t::CUSOLVER_STATUS_ALLOC_FAILED => Err(Fault::Memory { bytes: 0 }),
        other => {
            device.settle()?;
            Err(Fault::Library { library: "cuSOLVER", code: other as u32 })
        }
    }
}

/// What a call is given beside its matrices.
struct Call {
    handle: *mut sys::cusolverDnContext,
    parameters: *mut sys::cusolverDnParams,
    /// Working memory of the device and of the host.
    work: *mut c_void,
    work_bytes: usize,
    host: *mut c_void,
    host_bytes: usize,
    /// Where it says what it found.
    info: *mut i32,
}

/// The two calls of a factorization: what it works in, and itself. Both are given the same, but for what stands in brackets.
macro_rules! factorize {
    ($stream:expr, $what:literal, $fits:expr, $buffers:expr,
     $sizes:ident, $call:ident, ($($first:expr),*) [$($only:expr)?] ($($rest:expr),*) [$($last:expr)?]) => {
        $stream.solve(
            $what,
            $fits,
            $buffers,
            // SAFETY: the matrices are of these shapes and types.
            |c, device, host| unsafe {
                sys::$sizes(c.handle, c.parameters, $($first,)* $($rest,)* device, host)
            },
            // SAFETY: as above; there is room for what else comes out, and the working memory that was asked for.
            |c| unsafe {
                sys::$call(
                    c.handle, c.parameters, $($first,)* $($only,)? $($rest,)*
                    c.work, c.work_bytes, c.host, c.host_bytes, c.info $(, $last)?
                )
            },
        )
    };
}

/// A call that has a function for each type.
macro_rules! by_type {
    ($arithmetic:expr, $double:ident, $single:ident, $($argument:expr),*) => {
        match $arithmetic {
            Arithmetic::F64 => sys::$double($($argument),*),
            _ => sys::$single($($argument),*),
        }
    };
}

impl Stream {
    /// `p·a = l·u`, both factors in the place of `a`, the ones of `l` left out; `pivots`, 8 bytes for each column, gets the row
    /// that each was swapped with, counted from 1. Gives the first column without a pivot, counted from 1, else 0.
    ///
    /// # Errors
    /// [`Fault::Missing`] without cuSOLVER; [`Fault::Misuse`] where a buffer is too short.
    pub(crate) fn factor_lu(&self, a: Columns<'_>, pivots: &Buffer) -> Result<i32, Fault> {
        let fits = a.fits() && pivots.bytes() >= 8 * a.rows.min(a.columns);
        let (m, n, kind, cells) = (a.rows as i64, a.columns as i64, a.kind(), a.cells());
        let at = pivots.address() as *mut i64;
        factorize!(
            self, "an LU factorization", fits, &[a.buffer, pivots],
            cusolverDnXgetrf_bufferSize, cusolverDnXgetrf, (m, n, kind, cells, m) [at] (kind) []
        )
    }

    /// `b = a⁻¹·b`, or `t(a)⁻¹·b`, by the factors of `a`.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn solve_lu(
        &self,
        a: Columns<'_>,
        pivots: &Buffer,
        is_transposed: bool,
        b: Columns<'_>,
    ) -> Result<(), Fault> {
        let fits = a.fits() && b.fits() && a.rows == a.columns && b.rows == a.rows;
        let fits = fits && a.arithmetic == b.arithmetic && pivots.bytes() >= 8 * a.rows;
        let (n, sides, kind) = (a.rows as i64, b.columns as i64, a.kind());
        let (factors, right) = (a.cells(), b.cells());
        let at = pivots.address() as *const i64;
        let turned = match is_transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        let info = self.solve(
            "a solution",
            fits,
            &[a.buffer, pivots, b.buffer],
            |_, _, _| cusolverStatus_t::CUSOLVER_STATUS_SUCCESS,
            |c| {
                let Call { handle, parameters, info, .. } = *c;
                // SAFETY: both matrices are of these shapes, and there are as many pivots.
                unsafe {
                    sys::cusolverDnXgetrs(
                        handle, parameters, turned, n, sides, kind, factors, n, at, kind, right, n,
                        info,
                    )
                }
            },
        );
        info.map(drop)
    }

    /// `a = t(u)·u` by the upper triangle of `a`, in whose place `u` is then. Gives the order of the first leading minor that is not
    /// positive, else 0.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn factor_cholesky(&self, a: Columns<'_>) -> Result<i32, Fault> {
        let upper = cublasFillMode_t::CUBLAS_FILL_MODE_UPPER;
        let fits = a.fits() && a.rows == a.columns;
        let (n, kind, cells) = (a.rows as i64, a.kind(), a.cells());
        factorize!(
            self, "a Cholesky factorization", fits, &[a.buffer],
            cusolverDnXpotrf_bufferSize, cusolverDnXpotrf, (upper, n, kind, cells, n, kind) [] () []
        )
    }

    /// `a = q·r`: `r` in the place of the upper triangle, below it the reflections whose product `q` is, and their `scales`, a cell
    /// for each.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn factor_qr(&self, a: Columns<'_>, scales: &Buffer) -> Result<(), Fault> {
        let fits = a.fits() && scales.bytes() >= a.arithmetic.bytes() * a.rows.min(a.columns);
        let (m, n, kind, cells) = (a.rows as i64, a.columns as i64, a.kind(), a.cells());
        let at = scales.address() as *mut c_void;
        let info = factorize!(
            self, "a QR factorization", fits, &[a.buffer, scales],
            cusolverDnXgeqrf_bufferSize, cusolverDnXgeqrf, (m, n, kind, cells, m, kind, at, kind) [] () []
        );
        info.map(drop)
    }

    /// As many columns of `q` as `a` has, in the place of the reflections that [`factor_qr`](Self::factor_qr) left.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn orthogonal(&self, a: Columns<'_>, scales: &Buffer) -> Result<(), Fault> {
        let cell_bytes = a.arithmetic.bytes();
        let fits = a.fits() && a.rows >= a.columns && scales.bytes() >= cell_bytes * a.columns;
        let (m, n) = (a.rows as i32, a.columns as i32);
        let (cells, at) = (a.cells(), scales.address() as *const c_void);
        let info = self.solve(
            "the columns of Q",
            fits,
            &[a.buffer, scales],
            |c, work_bytes, _| {
                let (handle, x, mut count) = (c.handle, cells.cast_const(), 0);
                // SAFETY: the matrix is of this shape and type, and there are as many scales.
                let status = unsafe {
                    by_type!(
                        a.arithmetic,
                        cusolverDnDorgqr_bufferSize,
                        cusolverDnSorgqr_bufferSize,
                        handle,
                        m,
                        n,
                        n,
                        x.cast(),
                        m,
                        at.cast(),
                        &mut count
                    )
                };
                *work_bytes = count.unsigned_abs() as usize * cell_bytes;
                status
            },
            |c| {
                let Call { handle, work, work_bytes, info, .. } = *c;
                let count = (work_bytes / cell_bytes) as i32;
                // SAFETY: as above, with the working memory that was asked for.
                unsafe {
                    by_type!(
                        a.arithmetic,
                        cusolverDnDorgqr,
                        cusolverDnSorgqr,
                        handle,
                        m,
                        n,
                        n,
                        cells.cast(),
                        m,
                        at.cast(),
                        work.cast(),
                        count,
                        info
                    )
                }
            },
        );
        info.map(drop)
    }

    /// `a = v·diag(values)·t(v)` by the upper triangle of a symmetric `a`, in whose place `v` is then; the values ascend. Gives 0, or
    /// how many it did not find.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn eigen(&self, a: Columns<'_>, values: &Buffer) -> Result<i32, Fault> {
        let upper = cublasFillMode_t::CUBLAS_FILL_MODE_UPPER;
        let vectors = cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
        let is_square = a.rows == a.columns;
        let fits = a.fits() && is_square && values.bytes() >= a.arithmetic.bytes() * a.rows;
        let (n, kind, cells) = (a.rows as i64, a.kind(), a.cells());
        let at = values.address() as *mut c_void;
        factorize!(
            self, "eigenvalues", fits, &[a.buffer, values],
            cusolverDnXsyevd_bufferSize, cusolverDnXsyevd,
            (vectors, upper, n, kind, cells, n, kind, at, kind) [] () []
        )
    }

    /// The eigenvalues of any square `a`, which is lost, and their vectors, of length one. `values` gets all real parts and behind them the
    /// imaginary ones. Of a conjugate pair the one whose imaginary part is positive comes first, and both columns are parts of its vector:
    /// the real and the imaginary one. Gives 0, or how many it did not find.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu); [`Fault::Missing`] with a cuSOLVER that only has this for symmetric matrices.
    pub(crate) fn eigen_of_any(
        &self,
        a: Columns<'_>,
        values: &Buffer,
        vectors: Columns<'_>,
    ) -> Result<i32, Fault> {
        self.device().facts().libraries.eigenvalues.clone()?;
        let none = cusolverEigMode_t::CUSOLVER_EIG_MODE_NOVECTOR;
        let all = cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
        let fits = a.fits() && vectors.fits() && a.rows == a.columns;
        let fits = fits && (vectors.rows, vectors.columns) == (a.rows, a.columns);
        let fits = fits && vectors.arithmetic == a.arithmetic;
        let fits = fits && values.bytes() >= 2 * a.arithmetic.bytes() * a.rows;
        let (n, kind, cells, right) = (a.rows as i64, a.kind(), a.cells(), vectors.cells());
        let (at, left) = (values.address() as *mut c_void, ptr::null_mut());
        factorize!(
            self, "eigenvalues of any matrix", fits, &[a.buffer, values, vectors.buffer],
            cusolverDnXgeev_bufferSize, cusolverDnXgeev,
            (none, all, n, kind, cells, n, kind, at, kind, left, n, kind, right, n, kind) [] () []
        )
    }

    /// `a = u·diag(s)·t(v)` for `a` at least as tall as wide, which is lost; the values descend. Gives 0, or that it did not
    /// converge, and by how much it says that values may be off, for it moves those of a singular matrix.
    ///
    /// By a polar decomposition and the eigenvalues of its symmetric factor (Nakatsukasa and Higham, *SIAM J. Sci. Comput.* 35,
    /// 2013), which is nearly all products.
    ///
    /// # Errors
    /// As for [`factor_lu`](Self::factor_lu).
    pub(crate) fn svd(
        &self,
        a: Columns<'_>,
        u: Columns<'_>,
        s: &Buffer,
        v: Columns<'_>,
    ) -> Result<(i32, f64), Fault> {
        let vectors = cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
        let (m, n, kind) = (a.rows as i64, a.columns as i64, a.kind());
        let fits = m >= n && [a, u, v].iter().all(|matrix| matrix.fits());
        let fits = fits && (u.rows, u.columns) == (a.rows, a.columns);
        let fits = fits && (v.rows, v.columns) == (a.columns, a.columns);
        let fits = fits && s.bytes() >= a.arithmetic.bytes() * a.columns;
        let (cells, left, right) = (a.cells(), u.cells(), v.cells());
        let at = s.address() as *mut c_void;
        let mut off = 0.0;
        let info = factorize!(
            self, "singular values", fits, &[a.buffer, u.buffer, s, v.buffer],
            cusolverDnXgesvdp_bufferSize, cusolverDnXgesvdp,
            (vectors, 1, m, n, kind, cells, m, kind, at, kind, left, m, kind, right, n, kind) [] () [&mut off]
        );
        Ok((info?, off))
    }

    /// Calls a function of cuSOLVER with the working memory that it asks for, and waits for what it found. Where there is no room for
    /// that, no matrix was touched.
    fn solve(
        &self,
        what: &'static str,
        fits: bool,
        buffers: &[&Buffer],
        sizes: impl FnOnce(&Call, &mut usize, &mut usize) -> cusolverStatus_t,
        call: impl FnOnce(&Call) -> cusolverStatus_t,
    ) -> Result<i32, Fault> {
        let device = self.device();
        device.facts().libraries.cusolver.clone()?;
        device.enter()?;
        self.is_direct(what)?;
        if !fits {
            return Err(Fault::Misuse { call: what, code: 1 });
        }
        let mut solver = self.lane().solver();
        let Solver { handle, parameters } = match &*solver {
            Some(solver) => solver,
            None => solver.insert(Solver::new(device, self)?),
        };
        for buffer in buffers {
            buffer.before(self.lane())?;
        }
        let mut given = Call {
            handle: handle.0,
            parameters: parameters.0,
            work: ptr::null_mut(),
            work_bytes: 0,
            host: ptr::null_mut(),
            host_bytes: 0,
            info: ptr::null_mut(),
        };
        let (mut work_bytes, mut host_bytes) = (0, 0);
        done(device, sizes(&given, &mut work_bytes, &mut host_bytes))?;
        let work = self.alloc(work_bytes, what)?;
        let info = self.alloc(size_of::<i32>(), what)?;
        let mut host = vec![0_u8; host_bytes];
        (given.work, given.work_bytes) = (work.address() as *mut c_void, work_bytes);
        (given.host, given.host_bytes) = (host.as_mut_ptr().cast(), host_bytes);
        given.info = info.address() as *mut i32;
        let called = done(device, call(&given)).map_err(|fault| match fault {
            // Matrices may be half written: no call for who has more room next.
            Fault::Memory { .. } => Fault::Library {
                library: "cuSOLVER",
                code: cusolverStatus_t::CUSOLVER_STATUS_ALLOC_FAILED as u32,
            },
            other => other,
        });
        self.queued(&[buffers, &[&work, &info]].concat());
        called?;
        device.counts.factorizations.fetch_add(1, Ordering::Relaxed);
        // It may read the host's memory until then.
        let mut code = [0; size_of::<i32>()];
        self.download(&info, &mut code)?;
        Ok(i32::from_ne_bytes(code))
    }
}
