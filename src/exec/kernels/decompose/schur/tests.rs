//! What must hold of Schur forms: they multiply back, their orthogonal factor is orthogonal, and the blocks
//! on the diagonal are in standard form, whatever becomes of their order.

use super::super::super::testing::*;
use super::super::super::{Real, Stop, view};
use super::super::tests::{assert_near, assert_orthonormal_columns, norm};
use super::super::{by_columns, by_rows};
use super::window::Window;
use super::*;
use crate::exec::kernels::dense::{product, transpose};
use crate::matrix::Dense;

fn assert_schur<T: Real>(a: &Dense<T>) {
    let schur = Schur::of(by_columns(view(a)), Stop::NEVER).unwrap();
    let (t, z) = (by_rows(schur.t.as_ref()), by_rows(schur.z.as_ref()));
    assert_orthonormal_columns(&z);
    let back = product(&product(&z, &t, Stop::NEVER), &transpose(&z), Stop::NEVER);
    assert_near(&back, a, norm(a));
    assert_standard(schur.t.as_ref());
}

/// Nothing below the blocks, and those of two rows with a conjugate pair and one number on their diagonal.
fn assert_standard<T: Real>(t: faer::MatRef<'_, T>) {
    let starts = blocks(t);
    for block in starts.windows(2) {
        let (start, end) = (block[0], block[1]);
        assert!(end - start <= 2);
        for j in start..end {
            assert!((end..t.nrows()).all(|i| t[(i, j)] == T::ZERO));
        }
        if end - start == 2 {
            let (b, c) = (t[(start, start + 1)], t[(start + 1, start)]);
            assert!(t[(start, start)] == t[(start + 1, start + 1)]);
            assert!((b < T::ZERO) != (c < T::ZERO) && b != T::ZERO);
        }
    }
}

fn schur_forms_multiply_back<T: Real>() {
    let mut rng = rng(1);
    for n in [0, 1, 2, 3, 5, 33, 79, 80, 81, 100, 163, 330] {
        let x = random::<T>(&mut rng, n, n);
        let cell = |i: usize, j: usize| x.row(i)[j];
        assert_schur(&x);
        // Parts that are nothing to each other, and rows that decide nothing.
        let (half, third) = (n / 2, n / 3);
        assert_schur(&build(
            n,
            n,
            |i, j| {
                if (i < half) == (j < half) { cell(i, j) } else { T::ZERO }
            },
        ));
        assert_schur(&build(n, n, |i, j| if i < third { T::ZERO } else { cell(i, j) }));
        assert_schur(&build(n, n, |i, j| if i <= j { cell(i, j) } else { T::ZERO }));
        assert_schur(&build(n, n, |i, j| if (i + 1) % n == j { T::ONE } else { T::ZERO }));
        assert_schur(&build(n, n, |i, j| cell(i, j) - cell(j, i)));
        assert_schur(&build(n, n, |i, j| if i == j { T::ONE } else { cell(i, j) * T::EPSILON }));
        assert_schur(&build(n, n, |_, _| T::ONE));
    }
}

#[test]
fn schur_forms_multiply_back_in_64_bits() {
    schur_forms_multiply_back::<f64>();
}

#[test]
fn schur_forms_multiply_back_in_32_bits() {
    schur_forms_multiply_back::<f32>();
}

#[test]
fn schur_forms_of_many_shifts_multiply_back() {
    assert_schur(&random::<f64>(&mut rng(2), 700, 700));
}

/// Every pair is turned into one of its form, by a rotation, with the values that it had.
#[test]
fn pairs_have_a_standard_form() {
    let mut cells = random::<f64>(&mut rng(3), 2000, 4).cells().to_vec();
    for (k, x) in cells.iter_mut().enumerate() {
        // Some are alike, some zero, some far apart.
        *x = match k % 7 {
            0 => (*x * 2.0).round(),
            1 => *x * 1e-150,
            2 => *x * 1e-9,
            _ => *x,
        };
    }
    for cells in cells.chunks(4) {
        let pair = Pair::new(cells[0], cells[1], cells[2], cells[3]);
        let (found, turn) = pair.standardized();
        let norm = cells.iter().fold(0.0f64, |norm, x| norm.hypot(*x));
        let bound = 20.0 * f64::EPSILON * norm;
        assert!((turn.cos.hypot(turn.sin) - 1.0).abs() <= 8.0 * f64::EPSILON, "{pair:?}");
        assert!(
            found.c == 0.0 || (found.a == found.d && (found.b < 0.0) != (found.c < 0.0)),
            "{pair:?} became {found:?}"
        );
        // r·pair = found·r
        let (cos, sin) = (turn.cos, turn.sin);
        let left = [
            cos * pair.a + sin * pair.c,
            cos * pair.b + sin * pair.d,
            cos * pair.c - sin * pair.a,
            cos * pair.d - sin * pair.b,
        ];
        let right = [
            found.a * cos - found.b * sin,
            found.a * sin + found.b * cos,
            found.c * cos - found.d * sin,
            found.c * sin + found.d * cos,
        ];
        for (left, right) in left.iter().zip(right) {
            assert!((left - right).abs() <= bound, "{pair:?} became {found:?}");
        }
    }
}

#[test]
fn what_needs_more_rounds_than_it_may_have_is_an_error() {
    // In one window, and in several.
    for n in [40, 200] {
        let a = random::<f64>(&mut rng(5), n, n);
        let reduced = Hessenberg::of(by_columns(view(&a)), Stop::NEVER).unwrap().into_matrix();
        let run = |rounds_max| {
            let (mut h, mut z) = (reduced.clone(), Mat::identity(n, n));
            sweep::iterate(h.as_mut(), z.as_mut(), rounds_max, Stop::NEVER)
        };
        assert!(matches!(run(0), Err(Unfinished::NotConverged)), "{n}");
        assert!(run(ROUNDS_MAX).is_ok(), "{n}");
    }
}

#[test]
fn the_last_block_goes_to_the_front() {
    let x = random::<f64>(&mut rng(4), 40, 40);
    let a = build(40, 40, |i, j| match (i, j) {
        (i, j) if i <= j => x.row(i)[j],
        // Every third row begins a pair.
        (i, j) if i == j + 1 && j % 3 == 0 => -3.0 * x.row(j)[i],
        _ => 0.0,
    });
    let mut window = Window::of(view(&a));
    (0..39).step_by(3).for_each(|i| window.standardize(i));
    for _ in 0..40 {
        let last = blocks(window.h());
        let from = last[last.len() - 2];
        let value = window.cell(from, from);
        assert!(window.move_up(from, 0));
        assert!((window.cell(0, 0) - value).abs() <= 1e-11, "{} from {value}", window.cell(0, 0));
    }
    assert_standard(window.h());
    let (t, z) = (by_rows(window.h()), by_rows(window.u()));
    assert_orthonormal_columns(&z);
    let back = product(&product(&z, &t, Stop::NEVER), &transpose(&z), Stop::NEVER);
    assert_near(&back, &a, 40.0 * norm(&a));
}
