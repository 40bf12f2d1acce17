//! The widest vectors of this processor, for loops that the compiler turns into vector code.
//!
//! A loop is an operation of `pulp`'s, which compiles it for the baseline, for AVX2 and for NEON and picks one
//! at run time. Here it is compiled for AVX-512 too: twice the cells in each instruction, and choices
//! without blending. `pulp` has that behind a feature which all who use it would have to share, faer with its
//! decompositions among them. And for SSE4.1, which a processor without AVX2 may have: it blends and rounds.
//!
//! What these loops compute is the same on all of them: whole operations, each rounded, none contracted.

#[cfg(target_arch = "x86_64")]
use pulp::Scalar;
use pulp::WithSimd;

/// An instruction set to run a loop with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arch {
    /// What `pulp` knows.
    Pulp(pulp::Arch),
    /// AVX-512 with doublewords, bytes and shorter vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512(Detected),
    /// SSE4.1 with shuffles of bytes.
    #[cfg(target_arch = "x86_64")]
    Sse41(Detected),
}

/// That the processor has been asked.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(super) struct Detected(());

impl Arch {
    /// The widest that this processor has.
    pub(super) fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            return Arch::Avx512(Detected(()));
        }
        Self::up_to_256_bits()
    }

    /// The widest but AVX-512: for sums in few lanes, whose additions wait for one another. A processor that works at 512
    /// bits in two halves gains nothing there, and adds the lanes of wider vectors up for longer (measured on one).
    pub(super) fn up_to_256_bits() -> Self {
        match pulp::Arch::new() {
            #[cfg(target_arch = "x86_64")]
            pulp::Arch::Scalar => Self::sse41().unwrap_or(Arch::Pulp(pulp::Arch::Scalar)),
            arch => Arch::Pulp(arch),
        }
    }

    /// The narrower vectors, if this processor has them.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn sse41() -> Option<Self> {
        let has_all = is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3");
        has_all.then_some(Arch::Sse41(Detected(())))
    }

    /// Runs an operation that leaves vectors to the compiler: it is told of no instruction set by type.
    ///
    /// A closure is marked `#[inline(always)]`, as all that it calls: what is compiled apart knows of no wide register.
    #[inline]
    pub(super) fn dispatch<O: WithSimd>(self, operation: O) -> O::Output {
        match self {
            Arch::Pulp(arch) => arch.dispatch(operation),
            // SAFETY: a `Detected` here is made in `new` alone, which has asked for each of these features.
            #[cfg(target_arch = "x86_64")]
            Arch::Avx512(Detected(())) => unsafe { with_avx512(operation) },
            // SAFETY: a `Detected` here is made in `sse41` alone, which has asked for both features.
            #[cfg(target_arch = "x86_64")]
            Arch::Sse41(Detected(())) => unsafe { with_sse41(operation) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn with_avx512<O: WithSimd>(operation: O) -> O::Output {
    operation.with_simd(Scalar::new())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1,ssse3")]
fn with_sse41<O: WithSimd>(operation: O) -> O::Output {
    operation.with_simd(Scalar::new())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_widest_vectors_that_this_processor_has_are_taken() {
        let has_512_bits = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let has_256_bits = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let has_128_bits = is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3");
        let bits = |arch: Arch| match arch {
            Arch::Avx512(_) => 512,
            Arch::Pulp(pulp::Arch::V3(_)) => 256,
            Arch::Sse41(_) => 128,
            Arch::Pulp(_) => 0,
        };
        let up_to_256 = if has_256_bits {
            256
        } else if has_128_bits {
            128
        } else {
            0
        };
        assert_eq!(bits(Arch::up_to_256_bits()), up_to_256);
        assert_eq!(bits(Arch::new()), if has_512_bits { 512 } else { up_to_256 });
    }
}
