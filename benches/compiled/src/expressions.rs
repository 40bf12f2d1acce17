//! The expressions, and their loops in Cranelift's intermediate language.
//!
//! The exponential is that of `src/exec/kernels/math.rs`: the same reduction and the same polynomial, so that both
//! sides do the same arithmetic.

use std::error::Error;
use std::fmt;

use cranelift::codegen::ir::Endianness;
use cranelift::codegen::ir::immediates::Ieee64;
use cranelift::prelude::*;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};

/// Vectors side by side in one turn of a loop, so that one need not wait for another.
const UNROLLED: usize = 8;
/// Cells of a vector.
const LANES: usize = 2;
/// Sums that a block leaves, and a divisor of the length of every block.
pub(crate) const BLOCK_LANES: usize = UNROLLED * LANES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expression {
    ReluFma,
    SumOfSquares,
    Gauss,
}

impl Expression {
    pub(crate) const ALL: [Self; 3] = [Self::ReluFma, Self::SumOfSquares, Self::Gauss];

    pub(crate) fn is_sum(self) -> bool {
        self == Self::SumOfSquares
    }

    /// What one cell is, or adds.
    pub(crate) fn of(self, a: f64, b: f64, c: f64) -> f64 {
        match self {
            Self::ReluFma => (a * b + c).max(0.0),
            Self::SumOfSquares => (a - b) * (a - b),
            Self::Gauss => (-a * a / 2.0).exp(),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReluFma => "relu(a * b + c)",
            Self::SumOfSquares => "sum((a - b) ^ 2)",
            Self::Gauss => "exp(-a * a / 2)",
        })
    }
}

/// A compiled loop over a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel(extern "C" fn(usize, *const f64, *const f64, *const f64, *mut f64));

impl Kernel {
    /// # Panics
    /// Where blocks are not equally long, or not a multiple of [`BLOCK_LANES`].
    pub(crate) fn call(self, [a, b, c]: [&[f64]; 3], out: &mut [f64]) {
        assert!(a.len() == b.len() && a.len() == c.len() && a.len() % BLOCK_LANES == 0);
        assert!(out.len() == a.len() || out.len() == BLOCK_LANES);
        (self.0)(a.len(), a.as_ptr(), b.as_ptr(), c.as_ptr(), out.as_mut_ptr());
    }
}

/// Compiles an expression for this processor; the code lives as long as the process.
pub(crate) fn compile(expression: Expression) -> Result<Kernel, Box<dyn Error>> {
    let mut flags = settings::builder();
    flags.set("opt_level", "speed")?;
    let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags))?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let mut context = module.make_context();
    context.func.signature.params.extend([AbiParam::new(types::I64); 5]);
    let mut frontend = FunctionBuilderContext::new();
    let target = module.target_config();
    write_loop(FunctionBuilder::new(&mut context.func, &mut frontend), expression, target);
    let name = format!("{expression:?}");
    let id = module.declare_function(&name, Linkage::Export, &context.func.signature)?;
    module.define_function(id, &mut context)?;
    module.finalize_definitions()?;
    let code = module.get_finalized_function(id);
    std::mem::forget(module);
    // SAFETY: the code is that of a function of five 64-bit integers, compiled for this processor's way to call
    // one, and is never freed.
    Ok(Kernel(unsafe {
        std::mem::transmute::<
            *const u8,
            extern "C" fn(usize, *const f64, *const f64, *const f64, *mut f64),
        >(code)
    }))
}

/// The loop over all cells, [`BLOCK_LANES`] in a turn.
fn write_loop(
    mut builder: FunctionBuilder<'_>,
    expression: Expression,
    target: codegen::isa::TargetFrontendConfig,
) {
    let [entry, body, end] = [(); 3].map(|()| builder.create_block());
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [cells, a, b, c, out] = builder.block_params(entry)[..] else {
        unreachable!("five parameters")
    };
    let bytes = builder.ins().imul_imm_s(cells, size_of::<f64>() as i64);
    let zero = builder.ins().iconst(types::I64, 0);
    let nothing = splat(&mut builder, 0.0);
    let sums = if expression.is_sum() { UNROLLED } else { 0 };
    let start: Vec<_> =
        [zero].into_iter().chain(std::iter::repeat_n(nothing, sums)).map(Into::into).collect();
    builder.append_block_param(body, types::I64);
    (0..sums).for_each(|_| {
        builder.append_block_param(body, types::F64X2);
    });
    builder.ins().jump(body, &start);

    builder.switch_to_block(body);
    let parameters = builder.block_params(body).to_vec();
    let (at, totals) = (parameters[0], &parameters[1..]);
    let [a, b, c, to] = [a, b, c, out].map(|base| builder.ins().iadd(base, at));
    let flags = MemFlagsData::trusted();
    let mut next = Vec::new();
    for part in 0..UNROLLED {
        let offset = (part * LANES * size_of::<f64>()) as i32;
        let mut load = |base| builder.ins().load(types::F64X2, flags, base, offset);
        let value = match expression {
            Expression::ReluFma => {
                let (a, b, c) = (load(a), load(b), load(c));
                let product = builder.ins().fmul(a, b);
                let sum = builder.ins().fadd(product, c);
                larger(&mut builder, sum, nothing)
            }
            Expression::SumOfSquares => {
                let (a, b) = (load(a), load(b));
                let difference = builder.ins().fsub(a, b);
                let square = builder.ins().fmul(difference, difference);
                next.push(builder.ins().fadd(totals[part], square));
                continue;
            }
            Expression::Gauss => {
                let a = load(a);
                let negative = builder.ins().fneg(a);
                let square = builder.ins().fmul(negative, a);
                let half = splat(&mut builder, 0.5);
                let x = builder.ins().fmul(square, half);
                exponential(&mut builder, x)
            }
        };
        builder.ins().store(flags, value, to, offset);
    }
    let turn = (BLOCK_LANES * size_of::<f64>()) as i64;
    let after = builder.ins().iadd_imm_s(at, turn);
    let more = builder.ins().icmp(IntCC::UnsignedLessThan, after, bytes);
    let again: Vec<_> = [after].into_iter().chain(next.iter().copied()).map(Into::into).collect();
    builder.ins().brif(more, body, &again, end, &[]);

    builder.switch_to_block(end);
    for (part, total) in next.into_iter().enumerate() {
        builder.ins().store(flags, total, out, (part * LANES * size_of::<f64>()) as i32);
    }
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(target);
}

fn splat(builder: &mut FunctionBuilder<'_>, value: f64) -> Value {
    let scalar = builder.ins().f64const(Ieee64::with_float(value));
    builder.ins().splat(types::F64X2, scalar)
}

fn choose(builder: &mut FunctionBuilder<'_>, condition: Value, yes: Value, no: Value) -> Value {
    let condition = builder.ins().bitcast(
        types::F64X2,
        MemFlagsData::new().with_endianness(Endianness::Little),
        condition,
    );
    builder.ins().bitselect(condition, yes, no)
}

/// `x` where it is above `low`, else `low`.
fn larger(builder: &mut FunctionBuilder<'_>, x: Value, low: Value) -> Value {
    let below = builder.ins().fcmp(FloatCC::LessThan, x, low);
    choose(builder, below, low, x)
}

fn smaller(builder: &mut FunctionBuilder<'_>, x: Value, high: Value) -> Value {
    let above = builder.ins().fcmp(FloatCC::GreaterThan, x, high);
    choose(builder, above, high, x)
}

/// eˣ, as `exec::kernels::math` has it.
fn exponential(builder: &mut FunctionBuilder<'_>, x: Value) -> Value {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN2_HIGH: f64 = 6.931_471_803_691_238_164_90e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_700_02e-10;
    const BIAS: i64 = 2048;
    let little = MemFlagsData::new().with_endianness(Endianness::Little);
    let [lowest, highest] = [-746.0, 710.0].map(|bound| splat(builder, bound));
    let x = larger(builder, x, lowest);
    let x = smaller(builder, x, highest);

    let [log2_e, round] = [std::f64::consts::LOG2_E, ROUND].map(|value| splat(builder, value));
    let shifted = builder.ins().fmul(x, log2_e);
    let shifted = builder.ins().fadd(shifted, round);
    let n = builder.ins().fsub(shifted, round);
    let [ln2_high, ln2_low] = [LN2_HIGH, LN2_LOW].map(|value| splat(builder, value));
    let high = builder.ins().fmul(n, ln2_high);
    let high = builder.ins().fsub(x, high);
    let low = builder.ins().fmul(n, ln2_low);
    let r = builder.ins().fsub(high, low);
    let rest = builder.ins().fsub(high, r);
    let rest = builder.ins().fsub(rest, low);

    let r2 = builder.ins().fmul(r, r);
    let r4 = builder.ins().fmul(r2, r2);
    let mut pair = |constant: f64, linear: f64| {
        let (constant, linear) = (splat(builder, constant), splat(builder, linear));
        let product = builder.ins().fmul(linear, r);
        builder.ins().fadd(constant, product)
    };
    let p01 = pair(0.5, 0.166_666_666_666_666_7);
    let p23 = pair(0.041_666_666_666_666_67, 0.008_333_333_333_326_129);
    let p45 = pair(1.388_888_888_888_374_4e-3, 1.984_126_987_484_076_8e-4);
    let p67 = pair(2.480_158_732_556_212_5e-5, 2.755_725_537_465_874_4e-6);
    let p89 = pair(2.755_727_362_486_648e-7, 2.510_522_763_655_176e-8);
    let p10 = splat(builder, 2.091_469_456_035_159_2e-9);
    let mut plus = |a: Value, b: Value, power: Value| {
        let product = builder.ins().fmul(b, power);
        builder.ins().fadd(a, product)
    };
    let p0 = plus(p01, p23, r2);
    let p4 = plus(p45, p67, r2);
    let p8 = plus(p89, p10, r2);
    let p4 = plus(p4, p8, r4);
    let p = plus(p0, p4, r4);
    let tail = plus(rest, p, r2);
    let part = builder.ins().fadd(r, tail);
    let one = splat(builder, 1.0);
    let value = builder.ins().fadd(one, part);

    let bits = builder.ins().bitcast(types::I64X2, little, shifted);
    let integer = |builder: &mut FunctionBuilder<'_>, value: i64| {
        let scalar = builder.ins().iconst(types::I64, value);
        builder.ins().splat(types::I64X2, scalar)
    };
    let [bias, mask, one] = [BIAS, 0xfff, 1].map(|value| integer(builder, value));
    let n = builder.ins().iadd(bits, bias);
    let n = builder.ins().band(n, mask);
    let half = builder.ins().ushr_imm_u(n, 1);
    let other = builder.ins().isub(n, half);
    let mut scaled = value;
    for exponent in [half, other] {
        let exponent = builder.ins().isub(exponent, one);
        let power = builder.ins().ishl_imm_u(exponent, 52);
        let power = builder.ins().bitcast(types::F64X2, little, power);
        scaled = builder.ins().fmul(scaled, power);
    }
    scaled
}
