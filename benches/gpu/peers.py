"""The same by PyTorch, CuPy and cuDF, whichever are there with a device: seconds of calls whose inputs are in its memory.

What a peer cannot do, as a library that lacks it, costs that figure alone.
"""

import statistics
import time
import warnings
from collections import namedtuple

# A library, what waits for its calls to end, and what gives its memory back to whoever is measured next.
Peer = namedtuple("Peer", "library synchronize release")


def of_matrices(side):
    """Seconds by peer, of (name, kind)."""
    return gathered({"PyTorch": (pytorch, by_pytorch), "CuPy": (cupy, by_cupy)}, side)


def of_tables(lineitem, rows):
    """Seconds by peer, of the queries of TPC-H that are natural there."""
    found = gathered({"cuDF": (cudf, frame_of_lines)}, lineitem)
    for key, seconds in gathered({"PyTorch": (pytorch, tensors_of_lines)}, rows).items():
        found.setdefault(key, {}).update(seconds)
    return found


def fastest(seconds):
    """Who is, with the milliseconds of that."""
    if not seconds:
        return "–"
    peer = min(seconds, key=seconds.get)
    return f"{peer} {1e3 * seconds[peer]:.2f}"


def gathered(works, given):
    """What each peer's work clocks: seconds by key and peer."""
    found = {}
    for name, (load, work) in works.items():
        try:
            peer = load()
        except ImportError:
            continue
        except Exception as error:
            print(f"{name} is of no use: {first_line(error)}")
            continue
        try:
            work(peer.library, given, lambda key, call: note(found.setdefault(key, {}), name, key, peer, call))
        except Exception as error:
            print(f"{name} has no more figures: {first_line(error)}")
        peer.release()
    return found


def note(seconds, name, key, peer, call):
    """The median of five times some calls, which together take some 20 ms."""
    def clock(times):
        begin = time.perf_counter()
        for _ in range(times):
            call()
        peer.synchronize()
        return (time.perf_counter() - begin) / times

    try:
        clock(1)
        times = max(1, min(100, int(0.02 / clock(1))))
        seconds[name] = statistics.median(clock(times) for _ in range(5))
    except Exception as error:
        print(f"{name} has no {key}: {first_line(error)}")


def first_line(error):
    return f"{type(error).__name__} {error}".splitlines()[0]


def pytorch():
    import torch
    if not torch.cuda.is_available():
        raise ImportError("PyTorch without a device")
    return Peer(torch, torch.cuda.synchronize, torch.cuda.empty_cache)


def cupy():
    import cupy
    return Peer(cupy, cupy.cuda.Device().synchronize, cupy.get_default_memory_pool().free_all_blocks)


def cudf():
    import cudf
    # Its calls end when their results are there.
    return Peer(cudf, lambda: None, lambda: None)


def by_pytorch(torch, side, clock):
    """Rounds, products and statements."""
    run = lambda name, call, kind="float64": clock((name, kind), call)
    matrix = lambda rows, columns, dtype=torch.float64: torch.randn(rows, columns, dtype=dtype, device="cuda")
    for kind, dtype in [("float64", torch.float64), ("float32", torch.float32)]:
        a, b, v = matrix(side, side, dtype), matrix(side, side, dtype), matrix(side, 1, dtype)
        out = torch.empty_like(a)
        run("copy", lambda: out.copy_(a), kind)
        run("loop", lambda: torch.relu(a * b + 0.5), kind)
        run("sum", lambda: torch.relu(b - 1).sum(), kind)
        run("column sums", lambda: torch.relu(b - v.T).sum(0), kind)
        run("row sums", lambda: torch.relu(b - v).sum(1), kind)
        run("softmax", lambda: torch.softmax(a, 1), kind)
        run("transpose", lambda: a.T.contiguous(), kind)
        run("product by a column", lambda: b @ v, kind)
        run("product", lambda: torch.matmul(a, b, out=out), kind)
    torch.backends.cuda.matmul.allow_tf32 = True
    run("product", lambda: torch.matmul(a, b, out=out), "tf32")
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = a.bfloat16(), b.bfloat16()
    run("product", lambda: a @ b, "bf16")

    n = side // 2
    a, w, c = matrix(n, n), matrix(n, 64), matrix(n // 4, n // 4)
    p = a.T @ a + n * torch.eye(n, dtype=torch.float64, device="cuda")
    run("solve", lambda: torch.linalg.solve(a, w))
    run("inverse", lambda: torch.linalg.inv(a))
    run("lu", lambda: torch.linalg.lu_factor(a))
    run("cholesky", lambda: torch.linalg.cholesky(p))
    run("qr", lambda: torch.linalg.qr(a))
    run("eigenvectors", lambda: torch.linalg.eigh(p))
    run("singular vectors", lambda: torch.linalg.svd(a, full_matrices=False))
    run("eigenvalues", lambda: torch.linalg.eigvals(c))

    functional = torch.nn.functional
    images, filters = matrix(side, 32 * 32).reshape(-1, 16, 32, 32), matrix(32, 16 * 3 * 3).reshape(32, 16, 3, 3)
    run("convolution", lambda: functional.conv2d(images, filters, padding=1))
    run("pooling", lambda: functional.max_pool2d(images, 2))

    warnings.simplefilter("ignore")
    def graph(nodes, others):
        places = torch.randint(nodes, (2, others * nodes), device="cuda")
        cells = torch.ones(others * nodes, dtype=torch.float64, device="cuda")
        return torch.sparse_coo_tensor(places, cells, (nodes, nodes)).coalesce().to_sparse_csr()

    net, mesh, x, wide = graph(32 * side, 50), graph(8 * side, 20), matrix(32 * side, 1), matrix(32 * side, 64)
    run("times a column", lambda: net @ x)
    run("times 64 columns", lambda: net @ wide)
    run("times a sparse one", lambda: mesh @ mesh)


def by_cupy(cupy, side, clock):
    """Products, decompositions and sparse matrices."""
    from cupyx.scipy import sparse
    run, linalg = lambda name, call, kind="float64": clock((name, kind), call), cupy.linalg
    matrix = lambda rows, columns, dtype="float64": cupy.random.standard_normal((rows, columns), dtype=dtype)
    for kind in ["float64", "float32"]:
        a, b = matrix(side, side, kind), matrix(side, side, kind)
        out = cupy.empty_like(a)
        run("product", lambda: cupy.matmul(a, b, out=out), kind)
    n = side // 2
    a, w = matrix(n, n), matrix(n, 64)
    p = a.T @ a + n * cupy.eye(n)
    run("solve", lambda: linalg.solve(a, w))
    run("inverse", lambda: linalg.inv(a))
    run("cholesky", lambda: linalg.cholesky(p))
    run("qr", lambda: linalg.qr(a))
    run("eigenvectors", lambda: linalg.eigh(p))
    run("singular vectors", lambda: linalg.svd(a, full_matrices=False))

    def graph(nodes, others):
        places = cupy.random.randint(0, nodes, (2, others * nodes))
        return sparse.coo_matrix((cupy.ones(others * nodes), (places[0], places[1])), shape=(nodes, nodes)).tocsr()

    net, mesh, x, wide = graph(32 * side, 50), graph(8 * side, 20), matrix(32 * side, 1), matrix(32 * side, 64)
    run("times a column", lambda: net @ x)
    run("times 64 columns", lambda: net @ wide)
    run("times a sparse one", lambda: mesh @ mesh)


def tensors_of_lines(torch, rows, clock):
    """The first and the sixth query, over tensors of as many rows, whose values are those of TPC-H in range and not in place."""
    of = lambda low, high, dtype=torch.float64: torch.randint(low, high, (rows,), device="cuda").to(dtype)
    quantity, price, discount, tax = of(1, 51), of(90000, 10500000) / 100, of(0, 11) / 100, of(0, 9) / 100
    group, day = of(0, 6, torch.int64), of(0, 2526, torch.int32)

    def first():
        weight = (day <= 2436).double()
        paid = price * (1 - discount) * weight
        summed = [quantity * weight, price * weight, paid, paid * (1 + tax), discount * weight, weight]
        return [torch.bincount(group, values, minlength=6) for values in summed]

    def sixth():
        held = (day >= 730) & (day < 1095) & (discount > 0.045) & (discount < 0.075) & (quantity < 24)
        return (price * discount * held).sum()

    clock("q1", first)
    clock("q6", sixth)


def frame_of_lines(cudf, path, clock):
    """The same over a frame of the file itself, with doubles for decimals, which cuDF multiplies more slowly."""
    names = ["l_quantity", "l_extendedprice", "l_discount", "l_tax"]
    lines = cudf.read_parquet(path, columns=[*names, "l_returnflag", "l_linestatus", "l_shipdate"])
    lines = lines.assign(**{name: lines[name].astype("float64") for name in names})
    lines["l_shipdate"] = lines["l_shipdate"].astype("datetime64[s]")
    day = lambda text: cudf.Series([text]).astype("datetime64[s]").iloc[0]
    last, begin, end = day("1998-09-02"), day("1994-01-01"), day("1995-01-01")

    def first():
        held = lines[lines.l_shipdate <= last]
        held = held.assign(paid=held.l_extendedprice * (1 - held.l_discount))
        held = held.assign(charged=held.paid * (1 + held.l_tax))
        groups = held.groupby(["l_returnflag", "l_linestatus"], sort=True)
        return groups.agg({"l_quantity": ["sum", "mean", "count"], "l_extendedprice": ["sum", "mean"], "paid": "sum",
                           "charged": "sum", "l_discount": "mean"})

    def sixth():
        is_within = (lines.l_shipdate >= begin) & (lines.l_shipdate < end) & (lines.l_quantity < 24)
        held = lines[is_within & (lines.l_discount > 0.045) & (lines.l_discount < 0.075)]
        return (held.l_extendedprice * held.l_discount).sum()

    clock("q1", first)
    clock("q6", sixth)
