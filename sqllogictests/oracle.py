"""Writes matrix/oracle.slt: functions of matrices beside NumPy and SciPy.

    python sqllogictests/oracle.py > sqllogictests/matrix/oracle.slt

Each record says whether no cell is further from the oracle's than its bound, and the sizes. What a decomposition leaves
open (signs, order) is fixed on both sides, or a product is compared that does not depend on it.
"""

import numpy as np
import scipy
import scipy.linalg as la
import scipy.special as sp

random = np.random.default_rng(20)


def cells(rows, columns, low=-2.0, high=2.0):
    return np.round(random.uniform(low, high, (rows, columns)), 3)


x, y, p = cells(4, 3), cells(4, 3), cells(4, 3, 0.1, 3.0)
s = cells(3, 3) + 3 * np.eye(3)
d = np.round(s.T @ s + np.eye(3), 3)
b, v, u, r, c = cells(3, 2), cells(3, 1), cells(3, 1), cells(1, 3), cells(4, 1)
z = np.where(random.random((5, 4)) < 0.4, cells(5, 4), 0.0)
w = np.where(random.random((4, 6)) < 0.4, cells(4, 6), 0.0)
image, kernel = cells(2, 16), cells(3, 9)
INPUTS = dict(x=x, y=y, p=p, s=s, d=d, b=b, v=v, u=u, r=r, c=c, image=image, kernel=kernel)
SPARSE = dict(z=z, w=w)


def convolved(image, kernel, stride=1):
    pictures = image.reshape(-1, 4, 4)
    filters = kernel.reshape(-1, 3, 3)
    out = [[sum(a[i + k, j + l] * f[k, l] for k in range(3) for l in range(3))
            for f in filters for i in range(0, 2, stride) for j in range(0, 2, stride)] for a in pictures]
    return np.array(out)


def pooled(image, of):
    return np.array([[of(a[i:i + 2, j:j + 2]) for i in (0, 2) for j in (0, 2)] for a in image.reshape(-1, 4, 4)])


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def normalized(x, axis, p):
    n = np.linalg.norm(x, p, axis=axis, keepdims=True)
    return np.divide(x, n, out=np.zeros_like(x), where=n != 0)


def sums(x, axis):
    return x.sum(axis, keepdims=True)


mean, var, gamma, beta = x.mean(0, keepdims=True), x.var(0, keepdims=True), cells(1, 3), cells(1, 3)
INPUTS.update(gamma=gamma, beta=beta)
layer = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
gelu = 0.5 * x * (1 + sp.erf(x / np.sqrt(2)))
rectangle = cells(5, 3)
deficient = np.round(rectangle[:, :2] @ cells(2, 4), 3)
INPUTS.update(tall=rectangle, wide=cells(3, 5), low=deficient)
wide = INPUTS["wide"]
eigenvalues = np.linalg.eigvals(s)
eigenvalues = eigenvalues[np.lexsort((eigenvalues.imag, eigenvalues.real))]
pl, l_factor, u_factor = la.lu(s)
q, rr = np.linalg.qr(rectangle)
rr = rr * np.sign(np.diag(rr))[:, None]

# Text, the oracle's value, and how many units of rounding of the largest cell they may differ by.
CASES = [
    ("eye(3)", np.eye(3)), ("zeros(2, 3)", np.zeros((2, 3))), ("ones(2, 3)", np.ones((2, 3))), ("full(2, 3, 0.5)", np.full((2, 3), 0.5)),
    ("range(1, 7, 2)", None), ("diag(v)", np.diag(v.ravel())), ("diag(s)", np.diag(s).reshape(-1, 1)),
    ("t(x)", x.T), ("x.T @ y", x.T @ y), ("reshape(x, 2, 6)", x.reshape(2, 6)), ("hstack(x, c)", np.hstack([x, c])), ("vstack(x, r)", np.vstack([x, r])),
    ("x[2, 3]", x[1:2, 2:3]), ("x[2:3, 1:2]", x[1:3, 0:2]), ("x[:, 2]", x[:, 1:2]), ("x[3, :]", x[2:3, :]),
    ("nrow(x)", np.array([[4.0]])), ("ncol(x)", np.array([[3.0]])), ("nnz(z)", np.array([[float(np.count_nonzero(z))]])),
    ("x + y", x + y), ("x - r", x - r), ("x * c", x * c), ("x / p", x / p), ("p ^ 1.7", p ** 1.7), ("2 ^ x", 2 ** x), ("-x", -x), ("x @ s", x @ s),
    ("x < y", x < y), ("x <= y", x <= y), ("x > y", x > y), ("x >= y", x >= y), ("x = x", x == x), ("x <> y", x != y), ("x > 0 AND y > 0", (x > 0) & (y > 0)),
    ("x > 0 OR y > 0", (x > 0) | (y > 0)), ("NOT (x > 0)", ~(x > 0)),
    ("abs(x)", abs(x)), ("sign(x)", np.sign(x)), ("sqrt(p)", np.sqrt(p)), ("exp(x)", np.exp(x)), ("log(p)", np.log(p)), ("log1p(p)", np.log1p(p)), ("expm1(x)", np.expm1(x)),
    ("sin(x)", np.sin(x)), ("cos(x)", np.cos(x)), ("tan(x)", np.tan(x)), ("tanh(x)", np.tanh(x)), ("floor(x)", np.floor(x)), ("ceil(x)", np.ceil(x)), ("round(x)", np.round(x)),
    ("pow(p, 3)", p ** 3), ("least(x, y)", np.minimum(x, y)), ("greatest(x, y)", np.maximum(x, y)), ("clip(x, -1, 1)", np.clip(x, -1, 1)),
    ("where(x > 0, y, p)", np.where(x > 0, y, p)), ("isnan(x)", np.isnan(x)), ("CASE WHEN x > y THEN x ELSE y END", np.maximum(x, y)), ("x BETWEEN -1 AND 1", (x >= -1) & (x <= 1)),
    ("relu(x)", np.maximum(x, 0)), ("leaky_relu(x)", np.where(x > 0, x, 0.01 * x)), ("sigmoid(x)", sp.expit(x)), ("gelu(x)", gelu), ("silu(x)", x * sp.expit(x)), ("softplus(x)", np.logaddexp(0, x)),
    ("softmax(x)", softmax(x)), ("batch_norm(x, col_means(x), col_means((x - col_means(x)) ^ 2), gamma, beta, 1e-5)", (x - mean) / np.sqrt(var + 1e-5) * gamma + beta), ("layer_norm(x)", layer),
    ("conv2d(image, kernel)", convolved(image, kernel)), ("max_pool2d(image, kernel => 2)", pooled(image, np.max)), ("avg_pool2d(image, kernel => 2)", pooled(image, np.mean)),
    ("sum(x)", x.sum()), ("mean(x)", x.mean()), ("min(x)", x.min()), ("max(x)", x.max()), ("var(x)", x.var(ddof=1)), ("stddev(x)", x.std(ddof=1)), ("trace(s)", np.trace(s)),
    ("norm(x)", np.linalg.norm(x)), ("norm(x, 1)", abs(x).sum()), ("norm(x, 3)", (abs(x) ** 3).sum() ** (1 / 3)),
    ("row_sums(x)", sums(x, 1)), ("row_means(x)", x.mean(1, keepdims=True)), ("row_mins(x)", x.min(1, keepdims=True)), ("row_maxs(x)", x.max(1, keepdims=True)), ("row_argmax(x)", x.argmax(1).reshape(-1, 1) + 1),
    ("col_sums(x)", sums(x, 0)), ("col_means(x)", x.mean(0, keepdims=True)), ("col_mins(x)", x.min(0, keepdims=True)), ("col_maxs(x)", x.max(0, keepdims=True)), ("col_argmax(x)", x.argmax(0).reshape(1, -1) + 1),
    ("cumsum(x)", x.cumsum(0)), ("normalize_rows(z, 1)", normalized(z, 1, 1)), ("normalize_cols(z)", normalized(z, 0, 2)),
    ("kron(b, x)", np.kron(b, x)), ("outer(u, v)", np.outer(u, v)), ("dot(u, v)", u.ravel() @ v.ravel()), ("solve(s, b)", np.linalg.solve(s, b), 1e3), ("solve(d, b)", np.linalg.solve(d, b), 1e3),
    ("lstsq(tall, tall @ b + 1)", np.linalg.lstsq(rectangle, rectangle @ b + 1, rcond=None)[0], 1e4), ("lstsq(wide, b)", np.linalg.lstsq(wide, b, rcond=None)[0], 1e4),
    ("inv(s)", np.linalg.inv(s), 1e3), ("pinv(tall)", np.linalg.pinv(rectangle), 1e4), ("pinv(wide)", np.linalg.pinv(wide), 1e4), ("det(s)", np.linalg.det(s), 1e3), ("rank(tall)", np.linalg.matrix_rank(rectangle)),
    ("cholesky(d)", np.linalg.cholesky(d), 1e3), ("lu(s).l", l_factor, 1e3), ("lu(s).u", u_factor, 1e3), ("lu(s).p", pl.T), ("qr(tall).r", rr, 1e3), ("abs(qr(tall).q)", abs(q), 1e3),
    ("svd(tall).s", np.linalg.svd(rectangle)[1].reshape(-1, 1), 1e3), ("abs(svd(tall).u)", abs(np.linalg.svd(rectangle, full_matrices=False)[0]), 1e4), ("abs(svd(tall).vt)", abs(np.linalg.svd(rectangle)[2]), 1e4),
    ("eigh(d).values", np.linalg.eigvalsh(d).reshape(-1, 1), 1e3), ("abs(eigh(d).vectors)", abs(np.linalg.eigh(d)[1]), 1e4),
    ("sum(eig(s).values_re)", eigenvalues.real.sum(), 1e4), ("sum(eig(s).values_re ^ 2 - eig(s).values_im ^ 2)", (eigenvalues ** 2).real.sum(), 1e4),
    ("expm(s)", la.expm(s), 1e4), ("logm(d)", la.logm(d).real, 1e4), ("matrix_power(s, 5)", np.linalg.matrix_power(s, 5), 1e3),
    ("z @ w", z @ w), ("z * (z @ w @ t(w))", z * (z @ w @ w.T)), ("z @ x", z @ x), ("t(z) @ z", z.T @ z), ("z + 2 * z", 3 * z), ("sum(z @ w)", (z @ w).sum()), ("kron(z, b)", np.kron(z, b)), ("exp(z)", np.exp(z)),
    ("ITERATE(k => v, s @ k / norm(s @ k), times => 4)", None),
]
power = v
for _ in range(4):
    power = s @ power / np.linalg.norm(s @ power)
LATER = {"range(1, 7, 2)": np.arange(1.0, 7.0, 2.0).reshape(-1, 1), "ITERATE(k => v, s @ k / norm(s @ k), times => 4)": power}


def literal(x):
    rows = (", ".join(f"{float(cell)!r}e0" if "e" not in repr(float(cell)) else repr(float(cell)) for cell in row) for row in x)
    values = "(VALUES " + ", ".join(f"({row})" for row in rows) + ")"
    # The columns of a query have names, those of what is reshaped have none.
    return f"reshape({values}, {x.shape[0]}, {x.shape[1]})"


print(f"""# Functions of matrices beside NumPy {np.__version__} and SciPy {scipy.__version__}: whether no cell is further off than its bound, and the sizes.
# Written by sqllogictests/oracle.py.
""")
for name, value in INPUTS.items():
    print(f"statement ok\nCREATE MATRIX {name} = {literal(value)}\n")
for name, value in SPARSE.items():
    print(f"statement ok\nCREATE MATRIX {name} = sparse({literal(value)})\n")
for text, value, *units in CASES:
    value = np.atleast_2d(np.asarray(LATER.get(text, value), dtype=float))
    bound = (units[0] if units else 64.0) * 2.0**-53 * max(1.0, abs(value).max())
    print(f"query TRR\nSELECT (MATRIX(max(abs(({text}) - {literal(value)})))) <= {bound:.3e}, (MATRIX(nrow({text}))), (MATRIX(ncol({text})))")
    print(f"----\ntrue {value.shape[0]}.0 {value.shape[1]}.0\n")
