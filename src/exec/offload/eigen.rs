//! Eigenvalues of any square matrix on a device, and their vectors.
//!
//! ```text
//! symmetric    as by eigh                            rows of vectors stay there
//! else         the library ─ checked ─ download ─ put in order by the host's own code: n² cells, beside 25 n³ flop
//! ```

use super::decompose::{UNITS, columns, epsilon, refused, square};
use super::matrix::Matrix;
use super::{Failed, Found, Queue};
use crate::exec::kernels::Real;
use crate::exec::kernels::decompose::{Eig, arranged};
use crate::exec::operation::Operation;
use crate::matrix::{Cells, Dense, Shape, Storage};

impl Queue<'_> {
    /// Real and imaginary parts of the values, and of the vectors.
    pub(super) fn eigen_of_any(&self, a: &Matrix) -> Result<[Found; 4], Failed> {
        square(a)?;
        self.norm_1(a)?;
        let (side, element) = (a.shape.rows, a.element);
        let turned = self.own_transpose(a)?;
        if self.distance(a, Some(&turned))? == 0.0 {
            let [values, vectors] = self.eigen(a, None)?;
            let zeros = |of: &Matrix| -> Result<Matrix, Failed> {
                let zeros = self.empty(of.shape, element)?;
                self.stream.clear(&zeros.buffer)?;
                Ok(zeros)
            };
            let (values_im, vectors_im) = (zeros(&values)?, zeros(&vectors)?);
            return Ok([values, values_im, vectors, vectors_im].map(Found::Here));
        }
        // Column after column, the matrix itself; its vectors are rows here.
        let vectors = self.empty(a.shape, element)?;
        let values = self.empty(Shape::new(2, side), element)?;
        let (of, to) = (columns(&turned), columns(&vectors));
        let missing = self.with_room(0, || self.stream.eigen_of_any(of, &values.buffer, to))?;
        if missing != 0 {
            return Err(refused("a matrix whose eigenvalues do not converge"));
        }
        let both = self.read(&values)?;
        let (re, im) = both.split_at(side);
        self.check_eigen(a, &vectors, re, im)?;
        let parts = match self.download(&vectors)? {
            Cells::F64(Storage::Dense(vectors)) => told(re, im, &vectors),
            Cells::F32(Storage::Dense(vectors)) => told(re, im, &vectors),
            _ => None,
        };
        let parts = parts.ok_or_else(|| refused("eigenvalues that are not to be trusted"))?;
        Ok(parts.map(Found::Host))
    }

    /// Refuses rows that are not `a`'s vectors: `t(v)·t(a)` has to be `b·t(v)`, where `b` has the real parts along its diagonal, and the
    /// imaginary ones of a pair beside it.
    fn check_eigen(
        &self,
        a: &Matrix,
        vectors: &Matrix,
        re: &[f64],
        im: &[f64],
    ) -> Result<(), Failed> {
        let side = re.len();
        let mut cells = vec![0.0; side * side];
        for at in 0..side {
            cells[at * side + at] = re[at];
            match im[at] {
                im if im > 0.0 && at + 1 < side => cells[at * side + at + 1] = -im,
                im if im < 0.0 && at > 0 => cells[at * side + at - 1] = -im,
                _ => {}
            }
        }
        let b = self.numbers(cells, a.shape, a.element)?;
        let left = self.evaluate(&Operation::Outer, &[vectors.clone(), a.clone()], None)?;
        let right = self.evaluate(&Operation::Product, &[b, vectors.clone()], None)?;
        let apart = self.distance(&left, Some(&right))?;
        let bound = UNITS * epsilon(a.element) * (side as f64).sqrt() * self.distance(a, None)?;
        match bound.is_finite() && apart <= bound {
            true => Ok(()),
            false => Err(refused("eigenvalues that are not to be trusted")),
        }
    }
}

/// Eigenvalues and vectors in the host's order, and of its length.
fn told<T: Real>(re: &[f64], im: &[f64], vectors: &Dense<T>) -> Option<[Cells; 4]>
where
    Cells: From<Dense<T>>,
{
    let Eig { values_re, values_im, vectors_re, vectors_im } = arranged(re, im, vectors)?;
    Some([values_re, values_im, vectors_re, vectors_im].map(Cells::from))
}
