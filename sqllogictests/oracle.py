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


def convolved(image, kernel, channels=1, side=4, window=3, stride=1, padding=0, bias=None):
    pictures = np.pad(image.reshape(-1, channels, side, side), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    filters = kernel.reshape(-1, channels, window, window)
    places = range(0, side + 2 * padding - window + 1, stride)
    bias = np.zeros(len(filters)) if bias is None else bias.ravel()
    return np.array([[(a[:, i:i + window, j:j + window] * f).sum() + shift for f, shift in zip(filters, bias) for i in places for j in places]
                     for a in pictures])


def pooled(image, of, window=2, stride=2):
    places = range(0, 4 - window + 1, stride)
    return np.array([[of(a[i:i + window, j:j + window]) for i in places for j in places] for a in image.reshape(-1, 4, 4)])


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
deficient = np.floor(4 * rectangle[:, :2]) @ np.floor(4 * cells(2, 4))
INPUTS.update(tall=rectangle, wide=cells(3, 5), low=deficient)
wide = INPUTS["wide"]
eigenvalues = np.linalg.eigvals(s)
eigenvalues = eigenvalues[np.lexsort((eigenvalues.imag, eigenvalues.real))]
pl, l_factor, u_factor = la.lu(s)
q, rr = np.linalg.qr(rectangle)
rr = rr * np.sign(np.diag(rr))[:, None]

turned = s[[1, 2, 0]]
factors = la.lu(turned)
truncated = np.linalg.svd(rectangle, full_matrices=False)
best = truncated[0][:, :2] * truncated[1][:2] @ truncated[2][:2]
least = np.linalg.eigh(d)
weights, pair, bias = cells(5, 1, 0.1, 2.0), cells(2, 16), cells(1, 2)
INPUTS.update(turned=turned, weights=weights, pair=pair, bias=bias)
target, root = rectangle @ b + 1, np.sqrt(weights)
weighted = np.linalg.lstsq(rectangle * root, target * root, rcond=None)[0]
ridged = np.linalg.solve(rectangle.T @ rectangle + 0.5 * np.eye(3), rectangle.T @ target)

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
    ("rank(low)", np.linalg.matrix_rank(deficient)), ("pinv(low)", np.linalg.pinv(deficient), 1e4), ("lstsq(low, tall)", np.linalg.lstsq(deficient, rectangle, rcond=None)[0], 1e4),
    ("lstsq(tall, tall @ b + 1, weights => weights)", weighted, 1e4), ("lstsq(tall, tall @ b + 1, ridge => 0.5)", ridged, 1e4),
    ("svd(tall, k => 2).u * t(svd(tall, k => 2).s) @ svd(tall, k => 2).vt", best, 1e3), ("svd(tall, 2).s", truncated[1][:2].reshape(-1, 1), 1e3),
    ("eigh(d, k => 2).values", least[0][1:].reshape(-1, 1), 1e3), ("abs(eigh(d, 2).vectors)", abs(least[1][:, 1:]), 1e4), ("lu(turned).p", factors[0].T), ("lu(turned).l", factors[1], 1e3), ("lu(turned).u", factors[2], 1e3),
    ("s @ eig(s).vectors_re - eig(s).vectors_re * t(eig(s).values_re) + eig(s).vectors_im * t(eig(s).values_im)", np.zeros((3, 3)), 1e4),
    ("s @ eig(s).vectors_im - eig(s).vectors_re * t(eig(s).values_im) - eig(s).vectors_im * t(eig(s).values_re)", np.zeros((3, 3)), 1e4),
    ("col_sums(eig(s).vectors_re ^ 2 + eig(s).vectors_im ^ 2)", np.ones((1, 3)), 1e3),
    ("conv2d(image, kernel, stride => 2, padding => 1)", convolved(image, kernel, stride=2, padding=1)),
    ("conv2d(image, pair, channels => 4, padding => 1, bias => bias)", convolved(image, pair, channels=4, side=2, window=2, padding=1, bias=bias)),
    ("max_pool2d(image, kernel => 3, stride => 1)", pooled(image, np.max, 3, 1)), ("avg_pool2d(image, kernel => 3, stride => 1)", pooled(image, np.mean, 3, 1)),
    ("round(x) IN (0, 2)", np.isin(np.round(x), (0, 2))), ("cast(x, 'float32')", x.astype(np.float32)),
    ("norm(x, 1e999)", abs(x).max()), ("normalize_rows(x)", normalized(x, 1, 2)), ("matrix_power(s, -2)", np.linalg.matrix_power(s, -2), 1e4),
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

# Functions of lists, and models: their numbers one by one.
def numbers(of):
    return "[" + ", ".join(f"{float(cell)!r}" for cell in of) + "]"


f, g = u.ravel(), v.ravel()
regressors, y_values, w_values = rectangle[:, 1:], rectangle[:, 0], weights.ravel()


def fitted(w):
    design, root = np.column_stack([np.ones(5), regressors]), np.sqrt(w)
    found = np.linalg.lstsq(design * root[:, None], y_values * root, rcond=None)[0]
    left = ((y_values - design @ found) ** 2 * w).sum()
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ (design * w[:, None]))) * left / 2)
    return found, errors, 1 - left / ((y_values - np.average(y_values, weights=w)) ** 2 * w).sum()


plain, heavy = fitted(np.ones(5)), fitted(w_values)
centred = regressors - regressors.mean(0)
shrunk = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(2), centred.T @ y_values)
covariances, correlations = np.cov(regressors.T), np.corrcoef(regressors.T)
lists = f"{numbers(f)}, {numbers(g)}"
SCALARS = [
    (f"dot({lists})", f @ g), (f"cosine_similarity({lists})", f @ g / np.linalg.norm(f) / np.linalg.norm(g)), (f"cosine_distance({lists})", 1 - f @ g / np.linalg.norm(f) / np.linalg.norm(g)),
    (f"l2_distance({lists})", np.linalg.norm(f - g)), (f"l1_distance({lists})", abs(f - g).sum()), (f"l2_norm({numbers(f)})", np.linalg.norm(f)),
]
MODELS = [
    ("ols(y, [a, b]).intercept", plain[0][0]), ("ols(y, [a, b]).coefficients[2]", plain[0][2]), ("ols(y, [a, b]).standard_errors[1]", plain[1][1]),
    ("ols(y, [a, b]).intercept_standard_error", plain[1][0]), ("ols(y, [a, b]).r2", plain[2]), ("ols(y, [a, b], w).coefficients[1]", heavy[0][1]), ("ols(y, [a, b], w).r2", heavy[2]),
    ("ridge(y, [a, b], 0.5).coefficients[1]", shrunk[0]), ("ridge(y, [a, b], 0.5).intercept", y_values.mean() - shrunk @ regressors.mean(0)),
    ("gram(a, b)[1][2]", regressors[:, 0] @ regressors[:, 1]), ("covariance_matrix(a, b)[1][2]", covariances[0, 1]), ("covariance_matrix(a, b)[2][2]", covariances[1, 1]),
    ("correlation_matrix(a, b)[2][1]", correlations[1, 0]),
]
rows = ", ".join(f"({', '.join(f'{float(cell)!r}' for cell in row)})" for row in np.column_stack([y_values, regressors, w_values]))
print(f"statement ok\nCREATE TABLE observed (y DOUBLE, a DOUBLE, b DOUBLE, w DOUBLE) AS VALUES {rows}\n")
for text, value, source in [(text, value, "") for text, value in SCALARS] + [(text, value, " FROM observed") for text, value in MODELS]:
    print(f"query T\nSELECT abs({text} - {float(value)!r}) <= {1e4 * 2.0**-53 * max(1.0, abs(value)):.3e}{source}\n----\ntrue\n")
