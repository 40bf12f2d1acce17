// Factorizations, queued as those of cuSOLVER are, of matrices column by column.
//
// They are the plain ones of textbooks, with what LAPACK leaves behind: factors in the place of the matrix, and `info`.

#include "driver.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#define API extern "C" int

namespace {

constexpr int SUCCESS = 0;
constexpr int INVALID_VALUE = 3;
constexpr int EXECUTION_FAILED = 6;

constexpr int FLOAT32 = 0;
constexpr int FLOAT64 = 1;

// After so many sweeps over all pairs of columns we give up; ten are many.
constexpr int SWEEPS = 60;
// A column this short, where the longest cell is about one, has no direction.
constexpr double NOTHING = 1e-100;
// Units of rounding that singular values are moved by.
constexpr double MOVED = 32;

struct Handle {
    const void* device;
    void* stream;
};

bool is_choice(int choice) { return choice == 0 || choice == 1; }

bool is_matrix(int type, int compute, int64_t rows, int64_t columns, int64_t width) {
    return (type == FLOAT32 || type == FLOAT64) && compute == type && rows >= 0 && columns >= 0 && width >= std::max<int64_t>(1, rows);
}

// The memory that callers are to lend. Nothing here needs it.
struct Room {
    size_t device, host;

    Room(int type, int64_t m, int64_t n) : device((m + 32) * n * (type == FLOAT32 ? 4 : 8)), host(512 + 16 * n) {}
};

int tell_room(Room room, size_t* device, size_t* host) { return *device = room.device, *host = room.host, SUCCESS; }

// Rubbish into the memory that was lent, so that whoever keeps something there misses it.
void spoil(void* room, size_t bytes) { std::fill_n((char*)room, bytes, 0x5A); }

// Queues work in these places, which is handed a cell of the type that it is for, and returns what `info` is to be.
template <class Work, class... Places>
int queue(Handle* handle, int type, void* room, size_t bytes, int* info, Work work, Places... places) {
    if (standin_fails("refuse_factorization")) return EXECUTION_FAILED;
    const std::function<int()> queued = [=] {
        spoil(room, bytes);
        *info = type == FLOAT32 ? work(float()) : work(double());
        return SUCCESS;
    };
    return standin_queue(handle->device, handle->stream, {room, info, places...}, &queued) ? SUCCESS : EXECUTION_FAILED;
}

template <class T>
int factor_lu(int64_t m, int64_t n, T* a, int64_t width, int64_t* pivots) {
    int info = 0;
    for (int64_t at = 0; at < std::min(m, n); at++) {
        T* column = a + at * width;
        int64_t pivot = at;
        for (int64_t row = at + 1; row < m; row++) {
            if (std::abs(column[row]) > std::abs(column[pivot])) pivot = row;
        }
        pivots[at] = pivot + 1;
        if (column[pivot] == 0) {
            if (!info) info = at + 1;
            continue;
        }
        for (int64_t other = 0; other < n && pivot != at; other++) std::swap(a[at + other * width], a[pivot + other * width]);
        for (int64_t row = at + 1; row < m; row++) column[row] /= column[at];
        for (int64_t other = at + 1; other < n; other++) {
            T* cells = a + other * width;
            const T factor = cells[at];
            for (int64_t row = at + 1; row < m; row++) cells[row] -= factor * column[row];
        }
    }
    return info;
}

template <class T>
int solve_lu(bool turned, int64_t n, int64_t columns, const T* a, int64_t width, const int64_t* pivots, T* b, int64_t width_b) {
    for (int64_t column = 0; column < columns; column++) {
        T* x = b + column * width_b;
        if (turned) {
            for (int64_t at = 0; at < n; at++) {
                for (int64_t row = 0; row < at; row++) x[at] -= a[row + at * width] * x[row];
                x[at] /= a[at + at * width];
            }
            for (int64_t at = n - 1; at >= 0; at--) {
                for (int64_t row = at + 1; row < n; row++) x[at] -= a[row + at * width] * x[row];
            }
            for (int64_t at = n - 1; at >= 0; at--) std::swap(x[at], x[pivots[at] - 1]);
        } else {
            for (int64_t at = 0; at < n; at++) std::swap(x[at], x[pivots[at] - 1]);
            for (int64_t at = 0; at < n; at++) {
                for (int64_t row = at + 1; row < n; row++) x[row] -= a[row + at * width] * x[at];
            }
            for (int64_t at = n - 1; at >= 0; at--) {
                x[at] /= a[at + at * width];
                for (int64_t row = 0; row < at; row++) x[row] -= a[row + at * width] * x[at];
            }
        }
    }
    return 0;
}

// The upper factor is the lower one with rows for columns.
template <class T>
int factor_cholesky(bool upper, int64_t n, T* a, int64_t width) {
    const int64_t down = upper ? width : 1, right = upper ? 1 : width;
    for (int64_t at = 0; at < n; at++) {
        T* column = a + at * right;
        if (!(column[at * down] > 0)) return at + 1;
        const T root = std::sqrt(column[at * down]);
        column[at * down] = root;
        for (int64_t row = at + 1; row < n; row++) column[row * down] /= root;
        for (int64_t other = at + 1; other < n; other++) {
            T* cells = a + other * right;
            const T factor = column[other * down];
            for (int64_t row = other; row < n; row++) cells[row * down] -= factor * column[row * down];
        }
    }
    return 0;
}

// Applies a reflection to columns. The first cell of its vector is one, and not stored.
template <class T>
void reflect(int64_t rows, const T* vector, T tau, T* a, int64_t columns, int64_t width) {
    for (int64_t column = 0; column < columns; column++) {
        T* cells = a + column * width;
        T along = cells[0];
        for (int64_t row = 1; row < rows; row++) along += vector[row] * cells[row];
        along *= tau;
        cells[0] -= along;
        for (int64_t row = 1; row < rows; row++) cells[row] -= along * vector[row];
    }
}

template <class T>
int factor_qr(int64_t m, int64_t n, T* a, int64_t width, T* tau) {
    for (int64_t at = 0; at < std::min(m, n); at++) {
        T *vector = a + at + at * width, *end = vector + m - at;
        T largest = 0;
        for (T* cell = vector + 1; cell < end; cell++) largest = std::max(largest, std::abs(*cell));
        tau[at] = 0;
        if (largest == 0) continue;
        // What rounding left of a column may be too small to square, and the reflection must be whole all the same.
        const T power = std::exp2(std::ilogb(std::max(largest, std::abs(vector[0]))));
        for (T* cell = vector; cell < end; cell++) *cell /= power;
        const T image = -std::copysign(std::sqrt(std::inner_product(vector, end, vector, 0.0)), vector[0]), length = vector[0] - image;
        tau[at] = -length / image;
        for (T* cell = vector + 1; cell < end; cell++) *cell /= length;
        vector[0] = image * power;
        reflect(m - at, vector, tau[at], vector + width, n - at - 1, width);
    }
    return 0;
}

// From the last reflection to the first, each in the place of its vector.
template <class T>
int form_q(int64_t m, int64_t n, int64_t k, T* a, int64_t width, const T* tau) {
    for (int64_t column = k; column < n; column++) {
        std::fill_n(a + column * width, m, T(0));
        a[column + column * width] = 1;
    }
    for (int64_t at = k - 1; at >= 0; at--) {
        T* vector = a + at + at * width;
        reflect(m - at, vector, tau[at], vector + width, n - at - 1, width);
        for (int64_t row = 1; row < m - at; row++) vector[row] *= -tau[at];
        vector[0] = 1 - tau[at];
        std::fill_n(a + at * width, at, T(0));
    }
    return 0;
}

// What follows computes with doubles, whose range holds the squares of what rounding leaves of a column that depends on others.

double dot(int64_t rows, const double* a, const double* b) { return std::inner_product(a, a + rows, b, 0.0); }

// Divides by a power of two, so that squares neither overflow nor vanish, and returns it; NaN where a cell is not finite.
double scale(std::vector<double>& cells) {
    double largest = 0;
    for (double cell : cells) {
        if (!std::isfinite(cell)) return NAN;
        largest = std::max(largest, std::abs(cell));
    }
    if (largest == 0) return 1;
    const double power = std::exp2(std::ilogb(largest));
    for (double& cell : cells) cell /= power;
    return power;
}

// Jacobi's rotations, from one side: turns pairs of columns until all are orthogonal. Leaves the product of the rotations in `turns`, and
// returns whether there was an end.
bool orthogonalize(int64_t rows, int64_t columns, std::vector<double>& a, std::vector<double>& turns) {
    const double enough = std::sqrt((double)rows) * std::numeric_limits<double>::epsilon();
    turns.assign(columns * columns, 0);
    for (int64_t at = 0; at < columns; at++) turns[at + at * columns] = 1;
    auto rotate = [](int64_t rows, double* x, double* y, double cosine, double sine) {
        for (int64_t row = 0; row < rows; row++) {
            const double before = x[row];
            x[row] = cosine * before - sine * y[row];
            y[row] = sine * before + cosine * y[row];
        }
    };
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        bool is_done = true;
        for (int64_t left = 0; left < columns; left++) {
            for (int64_t right = left + 1; right < columns; right++) {
                double *x = &a[left * rows], *y = &a[right * rows];
                double xx = 0, yy = 0, xy = 0;
                for (int64_t row = 0; row < rows; row++) xx += x[row] * x[row], yy += y[row] * y[row], xy += x[row] * y[row];
                const double length = std::sqrt(xx), other = std::sqrt(yy);
                if (length < NOTHING || other < NOTHING || std::abs(xy) <= enough * length * other) continue;
                is_done = false;
                const double zeta = (yy - xx) / (2 * xy), tangent = std::copysign(1 / (std::abs(zeta) + std::hypot(1, zeta)), zeta);
                const double cosine = 1 / std::hypot(1, tangent), sine = cosine * tangent;
                rotate(rows, x, y, cosine, sine);
                rotate(columns, &turns[left * columns], &turns[right * columns], cosine, sine);
            }
        }
        if (is_done) return true;
    }
    return false;
}

// Appends orthonormal columns to some, until there are so many, by Gram and Schmidt from unit vectors.
void complete(int64_t rows, int64_t columns, std::vector<double>& basis) {
    for (int64_t at = 0; (int64_t)basis.size() < rows * columns; at++) {
        std::vector<double> unit(rows);
        unit[at] = 1;
        // The second time takes away what rounding left the first time.
        for (int time = 0; time < 2; time++) {
            for (size_t column = 0; column < basis.size(); column += rows) {
                const double along = dot(rows, &basis[column], unit.data());
                for (int64_t row = 0; row < rows; row++) unit[row] -= along * basis[column + row];
            }
        }
        const double length = std::sqrt(dot(rows, unit.data(), unit.data()));
        // Too little is left of one that is nearly a sum of others. As long as columns lack, twice as much is left of a later one.
        if (2 * length < 1 / std::sqrt((double)rows)) continue;
        for (double cell : unit) basis.push_back(cell / length);
    }
}

// The places of values in the order in which they are told.
template <class Before>
std::vector<int64_t> sorted(const std::vector<double>& values, Before before) {
    std::vector<int64_t> places(values.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return before(values[a], values[b]); });
    return places;
}

// Without vectors, rubbish is left of the matrix.
template <class T>
int find_eigen(bool with_vectors, bool upper, int64_t n, T* a, int64_t width, T* told) {
    std::vector<double> whole(n * n), vectors;
    for (int64_t column = 0; column < n; column++) {
        for (int64_t row = column; row < n; row++) {
            whole[row + column * n] = whole[column + row * n] = upper ? a[column + row * width] : a[row + column * width];
        }
        std::fill_n(a + column * width, n, T(NAN));
    }
    const double power = scale(whole);
    if (std::isnan(power)) return 1;
    // Of a matrix that is positive definite, which this makes it, the vectors are those that turn its columns orthogonal.
    const double shift = 2 * std::sqrt(dot(n * n, whole.data(), whole.data()));
    std::vector<double> shifted = whole;
    for (int64_t at = 0; at < n; at++) shifted[at + at * n] += shift;
    if (!orthogonalize(n, n, shifted, vectors)) return 1;
    // From the matrix as it was, or small values would lose what the shift rounds off.
    std::vector<double> values(n);
    for (int64_t at = 0; at < n; at++) {
        const double* vector = &vectors[at * n];
        for (int64_t row = 0; row < n; row++) values[at] += vector[row] * dot(n, &whole[row * n], vector);
    }
    const std::vector<int64_t> places = sorted(values, std::less());
    for (int64_t at = 0; at < n; at++) {
        told[at] = values[places[at]] * power;
        if (with_vectors) std::copy_n(&vectors[places[at] * n], n, a + at * width);
    }
    return 0;
}

// Rubbish is left of the matrix.
template <class T>
int find_singular(bool with_vectors, bool thin, int64_t m, int64_t n, T* a, int64_t width, T* told, T* u, int64_t width_u, T* v,
                  int64_t width_v) {
    // A wide one is turned, and its vectors change sides.
    const bool wide = m < n;
    const int64_t rows = std::max(m, n), columns = std::min(m, n);
    std::vector<double> left(rows * columns), right, basis;
    for (int64_t column = 0; column < n; column++) {
        for (int64_t row = 0; row < m; row++) left[wide ? column + row * rows : row + column * rows] = a[row + column * width];
        std::fill_n(a + column * width, m, T(NAN));
    }
    const double power = scale(left);
    if (std::isnan(power) || !orthogonalize(rows, columns, left, right)) return 1;
    std::vector<double> values(columns);
    for (int64_t at = 0; at < columns; at++) values[at] = std::sqrt(dot(rows, &left[at * rows], &left[at * rows]));
    const std::vector<int64_t> places = sorted(values, std::greater());
    // A device moves values that are nothing by some units of rounding, by which ranks are told.
    const double least = columns ? MOVED * std::numeric_limits<double>::epsilon() * values[places[0]] : 0;
    for (int64_t at = 0; at < columns; at++) told[at] = std::max(values[places[at]], least) * power;
    if (!with_vectors) return 0;
    for (int64_t place : places) {
        for (int64_t row = 0; row < rows && values[place] >= NOTHING; row++) basis.push_back(left[row + place * rows] / values[place]);
    }
    const int64_t wanted = thin ? columns : rows;
    complete(rows, wanted, basis);
    if (wide) std::swap(u, v), std::swap(width_u, width_v);
    for (int64_t at = 0; at < wanted; at++) std::copy_n(&basis[at * rows], rows, u + at * width_u);
    for (int64_t at = 0; at < columns; at++) std::copy_n(&right[places[at] * columns], columns, v + at * width_v);
    return 0;
}

using Complex = std::complex<double>;

// The rotation [c s; -conj(s) c] of two rows that leaves nothing of the second of two cells.
struct Rotation {
    double c = 1;
    Complex s = 0;

    Rotation() = default;
    Rotation(Complex x, Complex y) {
        const double length = std::hypot(std::abs(x), std::abs(y));
        if (length == 0) return;
        c = std::abs(x) / length;
        s = (c == 0 ? Complex(1) : x / std::abs(x)) * std::conj(y) / length;
    }
};

void turn_rows(int64_t n, std::vector<Complex>& a, int64_t row, const Rotation& by) {
    for (int64_t at = row; at < n * n; at += n) {
        const Complex x = a[at], y = a[at + 1];
        a[at] = by.c * x + by.s * y;
        a[at + 1] = by.c * y - std::conj(by.s) * x;
    }
}

void turn_columns(int64_t n, std::vector<Complex>& a, int64_t column, const Rotation& by) {
    for (int64_t at = column * n; at < (column + 1) * n; at++) {
        const Complex x = a[at], y = a[at + n];
        a[at] = by.c * x + std::conj(by.s) * y;
        a[at + n] = by.c * y - by.s * x;
    }
}

// a = z·t·zᴴ with t upper triangular, in the place of `a`: steps of QR with Wilkinson's shifts. Returns whether there was an end.
bool triangularize(int64_t n, std::vector<Complex>& t, std::vector<Complex>& z) {
    auto cell = [&](int64_t row, int64_t column) -> Complex& { return t[row + column * n]; };
    auto turn_both = [&](int64_t at, const Rotation& by) { turn_columns(n, t, at, by), turn_columns(n, z, at, by); };
    z.assign(n * n, 0);
    for (int64_t at = 0; at < n; at++) z[at + at * n] = 1;
    for (int64_t column = 0; column + 2 < n; column++) {
        for (int64_t row = n - 2; row > column; row--) {
            const Rotation by(cell(row, column), cell(row + 1, column));
            turn_rows(n, t, row, by), turn_both(row, by);
            cell(row + 1, column) = 0;
        }
    }
    int64_t last = n - 1;
    for (int step = 1; last > 0; step++) {
        int64_t first = last;
        auto is_open = [&](int64_t at) {
            const double beside = std::abs(cell(at, at)) + std::abs(cell(at - 1, at - 1));
            return std::abs(cell(at, at - 1)) > std::numeric_limits<double>::epsilon() * beside;
        };
        while (first > 0 && is_open(first)) first--;
        if (first > 0) cell(first, first - 1) = 0;
        if (first == last) {
            last--, step = 0;
            continue;
        }
        if (step > SWEEPS) return false;
        const Complex below = cell(last, last - 1), half = (cell(last - 1, last - 1) - cell(last, last)) / 2.0;
        const Complex across = cell(last - 1, last) * below, root = std::sqrt(half * half + across);
        const Complex far = std::abs(half + root) > std::abs(half - root) ? half + root : half - root;
        const Complex shift = step % 10 == 0 || far == 0.0 ? cell(last, last) + std::abs(below) : cell(last, last) - across / far;
        for (int64_t at = first; at <= last; at++) cell(at, at) -= shift;
        std::vector<Rotation> turns;
        for (int64_t at = first; at < last; at++) {
            turns.emplace_back(cell(at, at), cell(at + 1, at));
            turn_rows(n, t, at, turns.back());
        }
        for (int64_t at = first; at < last; at++) turn_both(at, turns[at - first]);
        for (int64_t at = first; at <= last; at++) cell(at, at) += shift;
    }
    return true;
}

// Rubbish is left of the matrix. By complex numbers, so that of values that lie near each other a pair may not be found to be one.
template <class T>
int find_any_eigen(int64_t n, T* a, int64_t width, T* told, T* vectors, int64_t width_v) {
    std::vector<double> cells(n * n);
    for (int64_t column = 0; column < n; column++) {
        for (int64_t row = 0; row < n; row++) cells[row + column * n] = a[row + column * width];
        std::fill_n(a + column * width, n, T(NAN));
    }
    const double power = scale(cells);
    std::vector<Complex> t(cells.begin(), cells.end()), z;
    if (std::isnan(power) || !triangularize(n, t, z)) return 1;
    const double norm = std::sqrt(dot(n * n, cells.data(), cells.data())), least = std::numeric_limits<double>::epsilon() * norm;
    int64_t to = 0;
    for (int64_t at = 0; at < n; at++) {
        const Complex value = t[at + at * n];
        const bool is_real = std::abs(value.imag()) <= 1000 * least;
        // The other one of a pair comes by itself.
        if (!is_real && value.imag() < 0) continue;
        if (to + (is_real ? 1 : 2) > n) return 1;
        std::vector<Complex> x(n), vector(n);
        x[at] = 1;
        for (int64_t row = at - 1; row >= 0; row--) {
            for (int64_t column = row + 1; column <= at; column++) x[row] -= t[row + column * n] * x[column];
            const Complex apart = t[row + row * n] - value;
            x[row] /= std::abs(apart) < least ? Complex(least) : apart;
        }
        Complex most = 0;
        double squares = 0;
        for (int64_t row = 0; row < n; row++) {
            for (int64_t column = 0; column <= at; column++) vector[row] += z[row + column * n] * x[column];
            if (std::abs(vector[row]) > std::abs(most)) most = vector[row];
        }
        for (Complex& cell : vector) squares += std::norm(cell /= most);
        for (int64_t row = 0; row < n; row++) {
            vectors[row + to * width_v] = vector[row].real() / std::sqrt(squares);
            if (!is_real) vectors[row + (to + 1) * width_v] = vector[row].imag() / std::sqrt(squares);
        }
        told[to] = value.real() * power, told[n + to] = is_real ? 0 : value.imag() * power, to++;
        if (!is_real) told[to] = told[to - 1], told[n + to] = -told[n + to - 1], to++;
    }
    return to == n ? 0 : 1;
}

// Vectors of the left are never found.
bool is_eigen_problem(int left, int right, int64_t n, int type, int64_t width, int type_w, int type_r, int64_t width_r, int compute) {
    return left == 0 && right == 1 && is_matrix(type, compute, n, n, width) && type_w == type && is_matrix(type_r, type, n, n, width_r);
}

bool is_singular_problem(int vectors, int thin, int64_t m, int64_t n, int type, int64_t width, int type_s, int type_u, int64_t width_u,
                         int type_v, int64_t width_v, int compute) {
    return is_choice(vectors) && is_choice(thin) && is_matrix(type, compute, m, n, width) && type_s == type &&
           (!vectors || (is_matrix(type_u, type, m, m, width_u) && is_matrix(type_v, type, n, n, width_v)));
}

int tell_q_room(int type, int64_t m, int64_t n, int64_t k, int64_t width, int* cells) {
    if (!is_matrix(type, type, m, n, width) || m < n || n < k || k < 0) return INVALID_VALUE;
    return *cells = Room(type, m, n).device / (type == FLOAT32 ? 4 : 8), SUCCESS;
}

template <class T>
int queue_q(Handle* handle, int type, int64_t m, int64_t n, int64_t k, T* a, int64_t width, const T* tau, T* room, int cells, int* info) {
    int needed;
    if (int code = tell_q_room(type, m, n, k, width, &needed)) return code;
    if (cells < needed) return INVALID_VALUE;
    auto work = [=](auto) { return form_q(m, n, k, a, width, tau); };
    return queue(handle, type, room, cells * sizeof(T), info, work, a, tau);
}

}  // namespace

API cusolverDnCreate(Handle** handle) { return *handle = new Handle{standin_device(), nullptr}, SUCCESS; }
API cusolverDnDestroy(Handle* handle) { return delete handle, SUCCESS; }
API cusolverDnSetStream(Handle* handle, void* stream) { return handle->stream = stream, SUCCESS; }
API cusolverDnCreateParams(void** params) { return *params = new char, SUCCESS; }
API cusolverDnDestroyParams(void* params) { return delete (char*)params, SUCCESS; }

API cusolverDnXgetrf_bufferSize(Handle*, void*, int64_t m, int64_t n, int type, const void*, int64_t width, int compute, size_t* device,
                                size_t* host) {
    if (!is_matrix(type, compute, m, n, width)) return INVALID_VALUE;
    return tell_room(Room(type, m, n), device, host);
}

API cusolverDnXgetrf(Handle* handle, void*, int64_t m, int64_t n, int type, void* a, int64_t width, int64_t* pivots, int compute,
                     void* device, size_t device_bytes, void* host, size_t host_bytes, int* info) {
    const Room needed(type, m, n);
    if (!is_matrix(type, compute, m, n, width) || device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    auto work = [=](auto cell) { return factor_lu(m, n, (decltype(cell)*)a, width, pivots); };
    return queue(handle, type, device, device_bytes, info, work, a, pivots);
}

API cusolverDnXgetrs(Handle* handle, void*, int turned, int64_t n, int64_t columns, int type, const void* a, int64_t width,
                     const int64_t* pivots, int type_b, void* b, int64_t width_b, int* info) {
    if (!is_choice(turned) || !is_matrix(type, type, n, n, width) || !is_matrix(type_b, type, n, columns, width_b)) return INVALID_VALUE;
    auto work = [=](auto cell) {
        using T = decltype(cell);
        return solve_lu(turned, n, columns, (const T*)a, width, pivots, (T*)b, width_b);
    };
    return queue(handle, type, nullptr, 0, info, work, a, pivots, b);
}

API cusolverDnXpotrf_bufferSize(Handle*, void*, int upper, int64_t n, int type, const void*, int64_t width, int compute, size_t* device,
                                size_t* host) {
    if (!is_choice(upper) || !is_matrix(type, compute, n, n, width)) return INVALID_VALUE;
    return tell_room(Room(type, n, n), device, host);
}

API cusolverDnXpotrf(Handle* handle, void*, int upper, int64_t n, int type, void* a, int64_t width, int compute, void* device,
                     size_t device_bytes, void* host, size_t host_bytes, int* info) {
    const Room needed(type, n, n);
    if (!is_choice(upper) || !is_matrix(type, compute, n, n, width)) return INVALID_VALUE;
    if (device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    auto work = [=](auto cell) { return factor_cholesky(upper, n, (decltype(cell)*)a, width); };
    return queue(handle, type, device, device_bytes, info, work, a);
}

API cusolverDnXgeqrf_bufferSize(Handle*, void*, int64_t m, int64_t n, int type, const void*, int64_t width, int type_tau, const void*,
                                int compute, size_t* device, size_t* host) {
    if (!is_matrix(type, compute, m, n, width) || type_tau != type) return INVALID_VALUE;
    return tell_room(Room(type, m, n), device, host);
}

API cusolverDnXgeqrf(Handle* handle, void*, int64_t m, int64_t n, int type, void* a, int64_t width, int type_tau, void* tau, int compute,
                     void* device, size_t device_bytes, void* host, size_t host_bytes, int* info) {
    const Room needed(type, m, n);
    if (!is_matrix(type, compute, m, n, width) || type_tau != type) return INVALID_VALUE;
    if (device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    auto work = [=](auto cell) {
        using T = decltype(cell);
        return factor_qr(m, n, (T*)a, width, (T*)tau);
    };
    return queue(handle, type, device, device_bytes, info, work, a, tau);
}

API cusolverDnSorgqr_bufferSize(Handle*, int m, int n, int k, const float*, int width, const float*, int* cells) {
    return tell_q_room(FLOAT32, m, n, k, width, cells);
}

API cusolverDnDorgqr_bufferSize(Handle*, int m, int n, int k, const double*, int width, const double*, int* cells) {
    return tell_q_room(FLOAT64, m, n, k, width, cells);
}

API cusolverDnSorgqr(Handle* handle, int m, int n, int k, float* a, int width, const float* tau, float* room, int cells, int* info) {
    return queue_q(handle, FLOAT32, m, n, k, a, width, tau, room, cells, info);
}

API cusolverDnDorgqr(Handle* handle, int m, int n, int k, double* a, int width, const double* tau, double* room, int cells, int* info) {
    return queue_q(handle, FLOAT64, m, n, k, a, width, tau, room, cells, info);
}

API cusolverDnXsyevd_bufferSize(Handle*, void*, int vectors, int upper, int64_t n, int type, const void*, int64_t width, int type_w,
                                const void*, int compute, size_t* device, size_t* host) {
    if (!is_choice(vectors) || !is_choice(upper) || !is_matrix(type, compute, n, n, width) || type_w != type) return INVALID_VALUE;
    return tell_room(Room(type, n, n), device, host);
}

API cusolverDnXsyevd(Handle* handle, void*, int vectors, int upper, int64_t n, int type, void* a, int64_t width, int type_w, void* w,
                     int compute, void* device, size_t device_bytes, void* host, size_t host_bytes, int* info) {
    const Room needed(type, n, n);
    if (!is_choice(vectors) || !is_choice(upper) || !is_matrix(type, compute, n, n, width) || type_w != type) return INVALID_VALUE;
    if (device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    auto work = [=](auto cell) {
        using T = decltype(cell);
        return find_eigen(vectors, upper, n, (T*)a, width, (T*)w);
    };
    return queue(handle, type, device, device_bytes, info, work, a, w);
}

API cusolverDnXgeev_bufferSize(Handle*, void*, int left, int right, int64_t n, int type, const void*, int64_t width, int type_w, const void*,
                               int, const void*, int64_t, int type_r, const void*, int64_t width_r, int compute, size_t* device,
                               size_t* host) {
    if (!is_eigen_problem(left, right, n, type, width, type_w, type_r, width_r, compute)) return INVALID_VALUE;
    return tell_room(Room(type, n, n), device, host);
}

API cusolverDnXgeev(Handle* handle, void*, int left, int right, int64_t n, int type, void* a, int64_t width, int type_w, void* w, int, void*,
                    int64_t, int type_r, void* vectors, int64_t width_r, int compute, void* device, size_t device_bytes, void* host,
                    size_t host_bytes, int* info) {
    const Room needed(type, n, n);
    if (!is_eigen_problem(left, right, n, type, width, type_w, type_r, width_r, compute)) return INVALID_VALUE;
    if (device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    auto work = [=](auto cell) {
        using T = decltype(cell);
        return find_any_eigen(n, (T*)a, width, (T*)w, (T*)vectors, width_r);
    };
    return queue(handle, type, device, device_bytes, info, work, a, w, vectors);
}

API cusolverDnXgesvdp_bufferSize(Handle*, void*, int vectors, int thin, int64_t m, int64_t n, int type, const void*, int64_t width,
                                 int type_s, const void*, int type_u, const void*, int64_t width_u, int type_v, const void*,
                                 int64_t width_v, int compute, size_t* device, size_t* host) {
    if (!is_singular_problem(vectors, thin, m, n, type, width, type_s, type_u, width_u, type_v, width_v, compute)) return INVALID_VALUE;
    return tell_room(Room(type, m, n), device, host);
}

API cusolverDnXgesvdp(Handle* handle, void*, int vectors, int thin, int64_t m, int64_t n, int type, void* a, int64_t width, int type_s,
                      void* s, int type_u, void* u, int64_t width_u, int type_v, void* v, int64_t width_v, int compute, void* device,
                      size_t device_bytes, void* host, size_t host_bytes, int* info, double* error) {
    const Room needed(type, m, n);
    if (!is_singular_problem(vectors, thin, m, n, type, width, type_s, type_u, width_u, type_v, width_v, compute)) return INVALID_VALUE;
    if (device_bytes < needed.device || host_bytes < needed.host) return INVALID_VALUE;
    spoil(host, host_bytes);
    *error = 0;
    auto work = [=](auto cell) {
        using T = decltype(cell);
        return find_singular(vectors, thin, m, n, (T*)a, width, (T*)s, (T*)u, width_u, (T*)v, width_v);
    };
    return queue(handle, type, device, device_bytes, info, work, a, s, u, v);
}
