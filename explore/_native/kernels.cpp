// Runs recorded programs (see recorder.py): one lane after another, one minibatch after another.
//
// Every output is one fixed sequence of IEEE operations, written with explicit fused multiply-adds, whatever the
// width of vectors: so all variants of this file agree to the bit, and a lane's numbers depend on nothing but
// the lane. Compile with -ffp-contract=off.

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

constexpr int DIMS = 6, OPERANDS = 5;

enum DType : int32_t { F32, I64, BOOL };

struct Operand {  // a tensor: where it starts, and its strides in elements
    int32_t base, dtype;
    int64_t offset;  // bytes
    int64_t strides[DIMS];
};

struct Instruction {
    int32_t op, dims, operands, flag;
    int64_t shape[DIMS];
    Operand operand[OPERANDS];
    int64_t extra[6];
};

struct Base {  // a block of memory that belongs to a lane, or to a minibatch of a lane
    char* data;
    int64_t lane_stride, batch_stride;  // bytes
};

constexpr int TABLES = 4;

struct Table {  // a layer of one-hot inputs, of which only the rows of inputs that were seen have had a gradient
    int64_t start, rows, width;
    const uint8_t* seen;
};

struct Row {  // the trained parameters of a network in one lane, for Adam
    float *parameters, *gradient, *mean, *square, *steps;
    double rate;
    int64_t dense;  // numbers before the tables
    int64_t tables;
    Table table[TABLES];
};

struct Adam {
    const Row* rows;  // of all lanes, those of a lane side by side
    int64_t rows_per_lane;
    double epsilon, clip;  // clip < 0: none
};

// Vectors.

#if defined(__AVX512F__)
struct Vec {
    static constexpr int width = 16, row_block = 6, column_block = 4;
    __m512 v;
    static Vec zero() { return {_mm512_setzero_ps()}; }
    static Vec all(float x) { return {_mm512_set1_ps(x)}; }
    static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
    using Mask = __mmask16;
    static Mask first(int n) { return (__mmask16)((1u << n) - 1); }
    static Vec load(const float* p, Mask m) { return {_mm512_maskz_loadu_ps(m, p)}; }
    void store(float* p) const { _mm512_storeu_ps(p, v); }
    void store(float* p, Mask m) const { _mm512_mask_storeu_ps(p, m, v); }
    void add_product(Vec a, Vec b) { v = _mm512_fmadd_ps(a.v, b.v, v); }
};
#elif defined(__AVX2__) && defined(__FMA__)
struct Vec {
    static constexpr int width = 8, row_block = 6, column_block = 2;
    __m256 v;
    using Mask = __m256i;
    static Mask first(int n) {
        static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
        return _mm256_loadu_si256((const __m256i*)(bits + 8 - n));
    }
    static Vec zero() { return {_mm256_setzero_ps()}; }
    static Vec all(float x) { return {_mm256_set1_ps(x)}; }
    static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
    static Vec load(const float* p, Mask m) { return {_mm256_maskload_ps(p, m)}; }
    void store(float* p) const { _mm256_storeu_ps(p, v); }
    void store(float* p, Mask m) const { _mm256_maskstore_ps(p, m, v); }
    void add_product(Vec a, Vec b) { v = _mm256_fmadd_ps(a.v, b.v, v); }
};
#else
struct Vec {
    static constexpr int width = 4, row_block = 2, column_block = 2;
    float v[4];
    using Mask = int;
    static Mask first(int n) { return n; }
    static Vec zero() { return {{0, 0, 0, 0}}; }
    static Vec all(float x) { return {{x, x, x, x}}; }
    static Vec load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
    static Vec load(const float* p, int n) {
        Vec result = zero();
        for (int i = 0; i < n; i++) result.v[i] = p[i];
        return result;
    }
    void store(float* p) const { store(p, 4); }
    void store(float* p, int n) const {
        for (int i = 0; i < n; i++) p[i] = v[i];
    }
    void add_product(Vec a, Vec b) {
        for (int i = 0; i < 4; i++) v[i] = __builtin_fmaf(a.v[i], b.v[i], v[i]);
    }
};
#endif

// Matrix products: each output is start + a0 b0 + a1 b1 + ..., in this order.

struct Product {
    float* out;
    const float *a, *b, *start;
    int64_t rows, columns, inner;
    int64_t out_row, a_row, a_inner, b_inner, b_column, start_row, start_column;  // strides; columns of out have 1
};

template <int R, int C, bool PARTIAL>
inline void product_block(const Product& p, int64_t row, int64_t column, Vec::Mask last) {
    constexpr int W = Vec::width;
    Vec sums[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) {
            const bool part = PARTIAL && c == C - 1;
            if (!p.start) {
                sums[r][c] = Vec::zero();
            } else if (p.start_column == 1) {
                const float* from = p.start + (row + r) * p.start_row + column + c * W;
                sums[r][c] = part ? Vec::load(from, last) : Vec::load(from);
            } else {  // a column of numbers, one for each row
                sums[r][c] = Vec::all(p.start[(row + r) * p.start_row]);
            }
        }
    const float* b = p.b + column;
    const float* a = p.a + row * p.a_row;
    for (int64_t k = 0; k < p.inner; k++, b += p.b_inner, a += p.a_inner) {
        Vec bs[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) bs[c] = PARTIAL && c == C - 1 ? Vec::load(b + c * W, last) : Vec::load(b + c * W);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Vec one = Vec::all(a[r * p.a_row]);
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) sums[r][c].add_product(one, bs[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) {
            float* to = p.out + (row + r) * p.out_row + column + c * W;
            if (PARTIAL && c == C - 1) sums[r][c].store(to, last);
            else sums[r][c].store(to);
        }
}

template <int C, bool PARTIAL>
inline void product_columns(const Product& p, int64_t column, Vec::Mask last) {
    constexpr int R = Vec::row_block;
    int64_t row = 0;
    for (; row + R <= p.rows; row += R) product_block<R, C, PARTIAL>(p, row, column, last);
    for (; row + 2 <= p.rows; row += 2) product_block<2, C, PARTIAL>(p, row, column, last);
    for (; row < p.rows; row++) product_block<1, C, PARTIAL>(p, row, column, last);
}

template <int C>
inline void product_rest(const Product& p, int64_t column) {  // at most C vectors of columns are left
    const int64_t left = p.columns - column;
    if (left <= 0) return;
    const int last = (int)(left - (C - 1) * Vec::width);
    if constexpr (C > 1) {
        if (last <= 0) return product_rest<C - 1>(p, column);
    }
    if (last == Vec::width) product_columns<C, false>(p, column, Vec::first(0));
    else product_columns<C, true>(p, column, Vec::first(last));
}

void multiply(const Product& p) {
    constexpr int block = Vec::column_block * Vec::width;
    int64_t column = 0;
    for (; column + block <= p.columns; column += block) product_columns<Vec::column_block, false>(p, column, Vec::first(0));
    product_rest<Vec::column_block>(p, column);
}

// Products with few columns whose inner dimension is long, and lies in memory in a row: each output is the start plus
// sixteen sums, of every sixteenth product, added in pairs.

inline float add_up(const float* sums) {
    float parts[8];
    for (int i = 0; i < 8; i++) parts[i] = sums[i] + sums[i + 8];
    for (int half = 4; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

template <int R, int C>
inline void dot_block(const Product& p, int64_t row, int64_t column) {
    constexpr int W = Vec::width, N = 16 / W;
    Vec sums[R][C][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) sums[r][c][n] = Vec::zero();
    const float* a = p.a + row * p.a_row;
    const float* b = p.b + column * p.b_column;
    const auto add_products = [&](int64_t k, int n, auto load) {
        Vec bs[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) bs[c] = load(b + c * p.b_column + k);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Vec one = load(a + r * p.a_row + k);
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) sums[r][c][n].add_product(one, bs[c]);
        }
    };
    int64_t k = 0;
    for (; k + 16 <= p.inner; k += 16)
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) add_products(k + n * W, n, [](const float* from) { return Vec::load(from); });
#pragma GCC unroll 4
    for (int n = 0; n < N; n++, k += W) {
        const int left = (int)(p.inner - k);
        if (left <= 0) break;
        const Vec::Mask mask = Vec::first(left < W ? left : W);
        add_products(k, n, [=](const float* from) { return Vec::load(from, mask); });
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) {
            float parts[16];
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) sums[r][c][n].store(parts + n * W);
            const float start = p.start ? p.start[(row + r) * p.start_row + (column + c) * p.start_column] : 0.0f;
            p.out[(row + r) * p.out_row + column + c] = start + add_up(parts);
        }
}

template <int C>
inline void dot_columns(const Product& p, int64_t column) {
    constexpr int R = Vec::width < 16 ? 1 : 3;
    int64_t row = 0;
    for (; row + R <= p.rows; row += R) dot_block<R, C>(p, row, column);
    for (; row < p.rows; row++) dot_block<1, C>(p, row, column);
}

void multiply_by_dots(const Product& p) {
    int64_t column = 0;
    for (; column + 6 <= p.columns; column += 6) dot_columns<6>(p, column);
    for (; column + 2 <= p.columns; column += 2) dot_columns<2>(p, column);
    for (; column < p.columns; column++) dot_columns<1>(p, column);
}

// Functions of numbers, without branches, so that compilers vectorise loops over them.

constexpr float INF = __builtin_inff(), NOT_A_NUMBER = __builtin_nanf("");

inline float exp_(float x) {  // from -87 to 88
    x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float n = __builtin_rintf(x * 1.44269504088896341f);
    float r = __builtin_fmaf(n, -0.693359375f, x);
    r = __builtin_fmaf(n, 2.12194440e-4f, r);
    float y = 1.9875691500e-4f;
    y = __builtin_fmaf(y, r, 1.3981999507e-3f);
    y = __builtin_fmaf(y, r, 8.3334519073e-3f);
    y = __builtin_fmaf(y, r, 4.1665795894e-2f);
    y = __builtin_fmaf(y, r, 1.6666665459e-1f);
    y = __builtin_fmaf(y, r, 5.0000001201e-1f);
    y = __builtin_fmaf(y, r * r, r) + 1.0f;
    const int32_t bits = ((int32_t)(n == n ? n : 0.0f) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return y * power;
}

inline float any_exp(float x) {
    const float y = exp_(x > 88.0f ? x - 1.0f : x), far = y * 2.71828182845904524f;
    return x > 88.7228394f ? INF : x > 88.0f ? far : x < -87.3365448f ? 0.0f : y;
}

inline float log1p_of_unit(float u) {  // log(1 + u), u from 0 to 1: 2 artanh(s)
    const float s = u / (2.0f + u), s2 = s * s;
    float y = 0.0666666667f;
    y = __builtin_fmaf(y, s2, 0.0769230769f);
    y = __builtin_fmaf(y, s2, 0.0909090909f);
    y = __builtin_fmaf(y, s2, 0.1111111111f);
    y = __builtin_fmaf(y, s2, 0.1428571429f);
    y = __builtin_fmaf(y, s2, 0.2f);
    y = __builtin_fmaf(y, s2, 0.3333333333f);
    const float twice = s + s;
    return __builtin_fmaf(twice * s2, y, twice);
}

inline float absolute(float x) { return x < 0 ? -x : x; }
inline float softplus_(float x) { return (x > 0 ? x : 0.0f) + log1p_of_unit(exp_(-absolute(x))); }

inline float sigmoid_(float x) {
    const float e = exp_(-absolute(x)), small = e / (1.0f + e);
    return x < 0 ? small : 1.0f - small;
}

inline float tanh_(float x) {
    const float y = absolute(x), e = exp_(-2.0f * y);
    const float far = (1.0f - e) / (1.0f + e), s = y * y;
    float near = -5.70498872745e-3f;  // an odd polynomial near 0, where the quotient cancels
    near = __builtin_fmaf(near, s, 2.06390887954e-2f);
    near = __builtin_fmaf(near, s, -5.37397155531e-2f);
    near = __builtin_fmaf(near, s, 1.33314422036e-1f);
    near = __builtin_fmaf(near, s, -3.33332819422e-1f);
    near = __builtin_fmaf(near * s, y, y);
    const float result = y < 0.625f ? near : far;
    return x < 0 ? -result : result;
}

inline float log_(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, 4);
    int32_t exponent = ((bits >> 23) & 255) - 126;
    bits = (bits & 0x007fffff) | 0x3f000000;
    float m;
    std::memcpy(&m, &bits, 4);  // from 0.5 to 1
    const bool small = m < 0.707106781186547524f;
    const float e = (float)(small ? exponent - 1 : exponent);
    m = (small ? m + m : m) - 1.0f;
    const float z = m * m;
    float y = 7.0376836292e-2f;
    y = __builtin_fmaf(y, m, -1.1514610310e-1f);
    y = __builtin_fmaf(y, m, 1.1676998740e-1f);
    y = __builtin_fmaf(y, m, -1.2420140846e-1f);
    y = __builtin_fmaf(y, m, 1.4249322787e-1f);
    y = __builtin_fmaf(y, m, -1.6668057665e-1f);
    y = __builtin_fmaf(y, m, 2.0000714765e-1f);
    y = __builtin_fmaf(y, m, -2.4999993993e-1f);
    y = __builtin_fmaf(y, m, 3.3333331174e-1f);
    y = y * m * z;
    y = __builtin_fmaf(e, -2.12194440e-4f, y);
    y = __builtin_fmaf(z, -0.5f, y);
    return __builtin_fmaf(e, 0.693359375f, m + y);
}

inline float any_log(float x) {
    const float y = log_(x);
    return x < 1.17549435e-38f ? (x < 0 ? NOT_A_NUMBER : -INF) : x < INF ? y : x;
}

inline float log1p_(float x) {
    const float u = 1.0f + x, y = any_log(u);
    return u == 1.0f ? x : absolute(x) < 1e6f ? y * (x / (u - 1.0f)) : y;
}

inline float expm1_(float x) {
    const float t = tanh_(0.5f * x), near = 2.0f * t / (1.0f - t), far = any_exp(x) - 1.0f;
    return x < 0.5f ? near : far;
}

inline float erf_(float x) {
    const float s = x * x, y = absolute(x);
    float near = 7.853861353153693e-5f;
    near = __builtin_fmaf(near, s, -8.010193625184903e-4f);
    near = __builtin_fmaf(near, s, 5.188327685732524e-3f);
    near = __builtin_fmaf(near, s, -2.685381193529856e-2f);
    near = __builtin_fmaf(near, s, 1.128358514861418e-1f);
    near = __builtin_fmaf(near, s, -3.761262582423300e-1f);
    near = __builtin_fmaf(near, s, 1.128379165726710e0f) * x;
    const float q = 1.0f / (y > 1.0f ? y : 1.0f), r = q * q;  // 1 - erf is exp(-s) q times a polynomial
    float far = 2.326819970068386e-2f;
    far = __builtin_fmaf(far, r, -1.387039388740657e-1f);
    far = __builtin_fmaf(far, r, 3.687424674597105e-1f);
    far = __builtin_fmaf(far, r, -5.824733027278666e-1f);
    far = __builtin_fmaf(far, r, 6.210004621745983e-1f);
    far = __builtin_fmaf(far, r, -4.944515323274145e-1f);
    far = __builtin_fmaf(far, r, 3.404879937665872e-1f);
    far = __builtin_fmaf(far, r, -2.741127028184656e-1f);
    far = __builtin_fmaf(far, r, 5.638259427386472e-1f);
    far = 1.0f - exp_(-s) * q * far;
    return y > 1.0f ? (x < 0 ? -far : far) : near;
}

inline double reduced(float x, int64_t* quadrant) {  // x minus a multiple of pi / 2
    const double n = __builtin_rint((double)x * 0.63661977236758134308);
    const double turn = n - 4.0 * __builtin_rint(0.25 * n);  // small, as numbers may be too large for an integer
    *quadrant = (int64_t)(turn == turn ? turn : 0.0);
    return __builtin_fma(n, -6.1232339957367660e-17, __builtin_fma(n, -1.5707963267948966, (double)x));
}

inline float cosine(float x, int64_t shift) {  // the cosine of x less a quarter turn for each shift
    int64_t quadrant;
    const float r = (float)reduced(x, &quadrant), s = r * r;
    float c = 2.443315711809948e-5f;
    c = __builtin_fmaf(c, s, -1.388731625493765e-3f);
    c = __builtin_fmaf(c, s, 4.166664568298827e-2f);
    c = __builtin_fmaf(c * s, s, __builtin_fmaf(s, -0.5f, 1.0f));
    float d = -1.9515295891e-4f;
    d = __builtin_fmaf(d, s, 8.3321608736e-3f);
    d = __builtin_fmaf(d, s, -1.6666654611e-1f);
    d = __builtin_fmaf(d * s, r, r);
    const int64_t turn = (quadrant - shift) & 3;
    const float value = turn & 1 ? d : c;
    return turn == 1 || turn == 2 ? -value : value;
}

inline float cos_(float x) { return cosine(x, 0); }
inline float sin_(float x) { return cosine(x, 1); }

// Instructions. program.py has the same list.

enum Op : int32_t {
    COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM, NEGATE, ABSOLUTE, SIGN, SQUARE, SQUARE_ROOT, EXP, LOG,
    COS, SIN, TANH, SIGMOID, SOFTPLUS, RELU, RELU_BACKWARD, LESS, LESS_EQUAL, EQUAL, NOT, WHERE, TO_FLOAT, TO_INTEGER,
    SUM, ARGMAX, TAKE, PUT, PRODUCT, SET, ERF, EXPM1, LOG1P,
};

// Loops over the elements of an instruction.

using Bases = char* const*;

inline char* address(const Operand& o, Bases bases) { return bases[o.base] + o.offset; }

template <class Body>
inline void outer_loops(const Instruction& in, Body body) {  // body(offsets): all dimensions but the last
    int64_t index[DIMS] = {0}, offset[OPERANDS] = {0};
    const int outer = in.dims - 1;
    int64_t count = 1;
    for (int d = 0; d < outer; d++) count *= in.shape[d];
    for (int64_t i = 0; i < count; i++) {
        body(offset);
        for (int d = outer - 1; d >= 0; d--) {
            for (int k = 0; k < in.operands; k++) offset[k] += in.operand[k].strides[d];
            if (++index[d] < in.shape[d]) break;
            index[d] = 0;
            for (int k = 0; k < in.operands; k++) offset[k] -= in.shape[d] * in.operand[k].strides[d];
        }
    }
}

template <class Out, class A, class F>
void map1(const Instruction& in, Bases bases, F f) {
    Out* out = (Out*)address(in.operand[0], bases);
    const A* a = (const A*)address(in.operand[1], bases);
    const int last = in.dims - 1;
    const int64_t n = in.shape[last], so = in.operand[0].strides[last], sa = in.operand[1].strides[last];
    outer_loops(in, [&](const int64_t* at) {
        Out* o = out + at[0];
        const A* x = a + at[1];
        if (so == 1 && sa == 1) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) o[i] = f(x[i]);
        } else for (int64_t i = 0; i < n; i++) o[i * so] = f(x[i * sa]);
    });
}

template <class Out, class A, class F>
void map2(const Instruction& in, Bases bases, F f) {
    Out* out = (Out*)address(in.operand[0], bases);
    const A* a = (const A*)address(in.operand[1], bases);
    const A* b = (const A*)address(in.operand[2], bases);
    const int last = in.dims - 1;
    const int64_t n = in.shape[last], so = in.operand[0].strides[last];
    const int64_t sa = in.operand[1].strides[last], sb = in.operand[2].strides[last];
    outer_loops(in, [&](const int64_t* at) {
        Out* o = out + at[0];
        const A *x = a + at[1], *y = b + at[2];
        if (so == 1 && sa == 1 && sb == 1) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) o[i] = f(x[i], y[i]);
        } else if (so == 1 && sa == 1 && sb == 0) {
            const A same = *y;
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) o[i] = f(x[i], same);
        } else {
            for (int64_t i = 0; i < n; i++) o[i * so] = f(x[i * sa], y[i * sb]);
        }
    });
}

template <class T>
void choose(const Instruction& in, Bases bases) {  // condition ? a : b
    T* out = (T*)address(in.operand[0], bases);
    const uint8_t* condition = (const uint8_t*)address(in.operand[1], bases);
    const T* a = (const T*)address(in.operand[2], bases);
    const T* b = (const T*)address(in.operand[3], bases);
    const int last = in.dims - 1;
    int64_t s[4];
    for (int k = 0; k < 4; k++) s[k] = in.operand[k].strides[last];
    outer_loops(in, [&](const int64_t* at) {
        for (int64_t i = 0; i < in.shape[last]; i++)
            out[at[0] + i * s[0]] = condition[at[1] + i * s[1]] ? a[at[2] + i * s[2]] : b[at[3] + i * s[3]];
    });
}

template <class T>
void copy(const Instruction& in, Bases bases) {
    T* out = (T*)address(in.operand[0], bases);
    const T* a = (const T*)address(in.operand[1], bases);
    const int last = in.dims - 1;
    const int64_t n = in.shape[last], so = in.operand[0].strides[last], sa = in.operand[1].strides[last];
    outer_loops(in, [&](const int64_t* at) {
        T* o = out + at[0];
        const T* x = a + at[1];
        if (so == 1 && sa == 1) std::memcpy(o, x, n * sizeof(T));
        else if (so == 1 && sa == 0) for (int64_t i = 0; i < n; i++) o[i] = *x;
        else for (int64_t i = 0; i < n; i++) o[i * so] = x[i * sa];
    });
}

inline float sum_of(const float* x, int64_t n, int64_t stride) {  // sixteen sums side by side, then theirs
    float part[16] = {0};
    int64_t i = 0;
    if (stride == 1) {
        for (; i + 16 <= n; i += 16)
            for (int k = 0; k < 16; k++) part[k] += x[i + k];
    } else {
        for (; i + 16 <= n; i += 16)
            for (int k = 0; k < 16; k++) part[k] += x[(i + k) * stride];
    }
    for (int k = 0; i < n; i++, k++) part[k] += x[i * stride];
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) part[k] += part[k + half];
    return part[0];
}

// Sums of at most sixteen numbers each, sixteen of them side by side; the same as `sum_of` to the bit.
void short_sums(float* out, int64_t so, const float* x, int64_t row, int64_t stride, int64_t rows, int64_t n) {
    for (int64_t first = 0; first < rows; first += 16) {
        const int64_t count = rows - first < 16 ? rows - first : 16;
        float part[16][16] = {{0}};
        for (int64_t k = 0; k < n; k++)
            for (int64_t r = 0; r < count; r++) part[k][r] += x[(first + r) * row + k * stride];
        for (int half = 8; half; half /= 2)
            for (int k = 0; k < half; k++)
                for (int r = 0; r < 16; r++) part[k][r] += part[k + half][r];
        for (int64_t r = 0; r < count; r++) out[(first + r) * so] += part[0][r];
    }
}

void sum(const Instruction& in, Bases bases) {  // onto an output that is 0 at first; its stride is 0 where summed
    float* out = (float*)address(in.operand[0], bases);
    const float* a = (const float*)address(in.operand[1], bases);
    const int last = in.dims - 1;
    const int64_t n = in.shape[last], so = in.operand[0].strides[last], sa = in.operand[1].strides[last];
    if (so == 0 && n <= 16 && last) {
        Instruction rest = in;
        rest.dims = last;
        const Operand &to = in.operand[0], &from = in.operand[1];
        outer_loops(rest, [&](const int64_t* at) {
            short_sums(out + at[0], to.strides[last - 1], a + at[1], from.strides[last - 1], sa, in.shape[last - 1], n);
        });
        return;
    }
    outer_loops(in, [&](const int64_t* at) {
        float* o = out + at[0];
        const float* x = a + at[1];
        if (so == 0) *o += sum_of(x, n, sa);
        else if (so == 1 && sa == 1) {
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) o[i] += x[i];
        } else for (int64_t i = 0; i < n; i++) o[i * so] += x[i * sa];
    });
}

// out = source at places given by up to three tensors of numbers, or the reverse, with or without adding up.
// extra[k]: the stride that the number of tensor k is multiplied by; extra[3 + k]: how many places there are.
template <class T, int OP>
int64_t take(const Instruction& in, Bases bases) {
    T* out = (T*)address(in.operand[0], bases);
    T* source = (T*)address(in.operand[1], bases);
    const int64_t* place[3] = {nullptr, nullptr, nullptr};
    const int places = in.operands - 2, last = in.dims - 1;
    for (int k = 0; k < places; k++) place[k] = (const int64_t*)address(in.operand[2 + k], bases);
    const int64_t n = in.shape[last], so = in.operand[0].strides[last], ss = in.operand[1].strides[last];
    bool rows = true;  // whether whole rows are taken
    for (int k = 0; k < places; k++) rows = rows && in.operand[2 + k].strides[last] == 0;
    int64_t outside = 0;
    const auto find = [&](const int64_t* at, int64_t i) {
        int64_t offset = 0;
        for (int k = 0; k < places; k++) {
            int64_t number = place[k][at[2 + k] + i * in.operand[2 + k].strides[last]];
            if (number < 0) number += in.extra[3 + k];
            if (number < 0 || number >= in.extra[3 + k]) outside++, number = 0;
            offset += number * in.extra[k];
        }
        return offset;
    };
    outer_loops(in, [&](const int64_t* at) {
        if (rows) {
            T* o = out + at[0];
            T* s = source + at[1] + find(at, 0);
            if (OP == SET) {
                for (int64_t i = 0; i < n; i++) s[i * ss] = o[i * so];
            } else if (OP == PUT) {
                if (so == 1 && ss == 1) for (int64_t i = 0; i < n; i++) s[i] += o[i];
                else for (int64_t i = 0; i < n; i++) s[i * ss] += o[i * so];
            } else {
                if (so == 1 && ss == 1) std::memcpy(o, s, n * sizeof(T));
                else for (int64_t i = 0; i < n; i++) o[i * so] = s[i * ss];
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                T* s = source + at[1] + i * ss + find(at, i);
                if (OP == SET) *s = out[at[0] + i * so];
                else if (OP == PUT) *s += out[at[0] + i * so];
                else out[at[0] + i * so] = *s;
            }
        }
    });
    return outside;
}

void argmax(const Instruction& in, Bases bases) {  // of the rows of a matrix
    int64_t* out = (int64_t*)address(in.operand[0], bases);
    const float* x = (const float*)address(in.operand[1], bases);
    for (int64_t row = 0; row < in.shape[0]; row++, x += in.shape[1]) {
        int64_t best = 0;
        for (int64_t k = 1; k < in.shape[1]; k++)
            if (x[k] > x[best] || (x[k] != x[k] && x[best] == x[best])) best = k;
        out[row] = best;
    }
}

template <class T>
T* scratch(int64_t count) {
    static thread_local T* memory = nullptr;
    static thread_local int64_t size = 0;
    if (count > size) {
        delete[] memory;
        memory = new T[count];
        size = count;
    }
    return memory;
}

constexpr int64_t FEW = 32, LONG = 128;

void product(const Instruction& in, Bases bases) {  // dimensions: batch, rows, columns, inner
    const int64_t batch = in.shape[0], rows = in.shape[1], columns = in.shape[2], inner = in.shape[3];
    const Operand &out = in.operand[0], &a = in.operand[1], &b = in.operand[2], &start = in.operand[3];
    for (int64_t i = 0; i < batch; i++) {
        Product p;
        p.out = (float*)address(out, bases) + i * out.strides[0];
        p.a = (const float*)address(a, bases) + i * a.strides[0];
        p.b = (const float*)address(b, bases) + i * b.strides[0];
        p.start = in.operands > 3 ? (const float*)address(start, bases) + i * start.strides[0] : nullptr;
        p.start_row = start.strides[1], p.start_column = start.strides[2];
        p.rows = rows, p.columns = columns, p.inner = inner;
        p.out_row = out.strides[1], p.a_row = a.strides[1], p.a_inner = a.strides[3], p.b_inner = b.strides[3];
        p.b_column = b.strides[2];
        if (b.strides[2] != 1 && b.strides[3] == 1 && a.strides[3] == 1 && columns <= FEW && inner >= LONG) {
            multiply_by_dots(p);
            continue;
        }
        if (b.strides[2] != 1 && columns > 1) {
            float* packed = scratch<float>(inner * columns);
            for (int64_t c = 0; c < columns; c++)
                for (int64_t k = 0; k < inner; k++) packed[k * columns + c] = p.b[k * b.strides[3] + c * b.strides[2]];
            p.b = packed, p.b_inner = columns;
        }
        multiply(p);
    }
}

// Adam.

double power(double base, int64_t exponent) {  // the same on every processor, unlike pow
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

struct Step {
    float size, scale, epsilon, factor;  // factor: of clipping
};

inline void adam_step(
    float* __restrict__ p, float* __restrict__ g, float* __restrict__ m, float* __restrict__ v, int64_t n, Step s
) {
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.factor;
        const float mean = __builtin_fmaf(0.1f, gradient - m[i], m[i]);
        const float square = __builtin_fmaf(0.001f * gradient, gradient, 0.999f * v[i]);
        m[i] = mean, v[i] = square, g[i] = 0.0f;
        p[i] -= s.size * mean / __builtin_fmaf(__builtin_sqrtf(square), s.scale, s.epsilon);
    }
}

template <class F>
inline void each_stretch(const Row& row, F f) {  // f(start, length): all that has had a gradient
    f(0, row.dense);
    for (int64_t t = 0; t < row.tables; t++) {
        const Table& table = row.table[t];
        for (int64_t r = 0; r < table.rows; r++)
            if (table.seen[r]) f(table.start + r * table.width, table.width);
    }
}

float squared_length(const Row& row) {
    float part[16] = {0};
    each_stretch(row, [&](int64_t start, int64_t n) {
        const float* g = row.gradient + start;
        int64_t i = 0;
        for (; i + 16 <= n; i += 16)
            for (int k = 0; k < 16; k++) part[k] = __builtin_fmaf(g[i + k], g[i + k], part[k]);
        for (int k = 0; i < n; i++, k++) part[k] = __builtin_fmaf(g[i], g[i], part[k]);
    });
    return sum_of(part, 16, 1);
}

void step(const Adam& adam, const Row* rows) {
    float factor = 1.0f;
    if (adam.clip >= 0) {
        float sum = 0;
        for (int64_t k = 0; k < adam.rows_per_lane; k++) sum += squared_length(rows[k]);
        factor = (float)adam.clip / (__builtin_sqrtf(sum) + 1e-6f);
        factor = factor > 1.0f ? 1.0f : factor;
    }
    for (int64_t k = 0; k < adam.rows_per_lane; k++) {
        const Row& row = rows[k];
        *row.steps += 1;
        const int64_t t = (int64_t)*row.steps;
        Step s;
        s.size = (float)(row.rate / (1 - power(0.9, t)));
        s.scale = (float)(1 / __builtin_sqrt(1 - power(0.999, t)));
        s.epsilon = (float)adam.epsilon, s.factor = factor;
        each_stretch(row, [&](int64_t start, int64_t n) {
            adam_step(row.parameters + start, row.gradient + start, row.mean + start, row.square + start, n, s);
        });
    }
}

// While this lives, numbers too small to be normal are 0: moments of what is no longer seen would become such, and
// processors take a hundred times as long for them.
struct FlushToZero {
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    FlushToZero() { _mm_setcsr(before | 0x8040); }
    ~FlushToZero() { _mm_setcsr(before); }
#endif
};

template <int OP>
int64_t take_any(const Instruction& in, Bases bases) {
    switch (in.operand[0].dtype) {
        case F32: return take<float, OP>(in, bases);
        case I64: return take<int64_t, OP>(in, bases);
        default: return take<uint8_t, OP>(in, bases);
    }
}

template <class T>
void arithmetic(const Instruction& in, Bases bases) {
    switch (in.op) {
        case ADD: return map2<T, T>(in, bases, [](T a, T b) { return a + b; });
        case SUBTRACT: return map2<T, T>(in, bases, [](T a, T b) { return a - b; });
        case MULTIPLY: return map2<T, T>(in, bases, [](T a, T b) { return a * b; });
        case LESS: return map2<uint8_t, T>(in, bases, [](T a, T b) { return (uint8_t)(a < b); });
        case LESS_EQUAL: return map2<uint8_t, T>(in, bases, [](T a, T b) { return (uint8_t)(a <= b); });
        case EQUAL: return map2<uint8_t, T>(in, bases, [](T a, T b) { return (uint8_t)(a == b); });
    }
}

int64_t execute(const Instruction& in, Bases bases) {
    using F = float;
    const int32_t type = in.operands > 1 ? in.operand[1].dtype : F32;
    switch (in.op) {
        case COPY:
            if (type == F32) copy<float>(in, bases);
            else if (type == I64) copy<int64_t>(in, bases);
            else copy<uint8_t>(in, bases);
            break;
        case ADD: case SUBTRACT: case MULTIPLY: case LESS: case LESS_EQUAL: case EQUAL:
            if (type == F32) arithmetic<float>(in, bases);
            else arithmetic<int64_t>(in, bases);
            break;
        case DIVIDE: map2<F, F>(in, bases, [](F a, F b) { return a / b; }); break;
        case MAXIMUM: map2<F, F>(in, bases, [](F a, F b) { return a > b || a != a ? a : b; }); break;
        case MINIMUM: map2<F, F>(in, bases, [](F a, F b) { return a < b || a != a ? a : b; }); break;
        case NEGATE: map1<F, F>(in, bases, [](F a) { return -a; }); break;
        case ABSOLUTE: map1<F, F>(in, bases, [](F a) { return absolute(a); }); break;
        case SIGN: map1<F, F>(in, bases, [](F a) { return (F)((a > 0) - (a < 0)); }); break;
        case SQUARE: map1<F, F>(in, bases, [](F a) { return a * a; }); break;
        case SQUARE_ROOT: map1<F, F>(in, bases, [](F a) { return __builtin_sqrtf(a); }); break;
        case EXP: map1<F, F>(in, bases, [](F a) { return any_exp(a); }); break;
        case EXPM1: map1<F, F>(in, bases, [](F a) { return expm1_(a); }); break;
        case LOG: map1<F, F>(in, bases, [](F a) { return any_log(a); }); break;
        case LOG1P: map1<F, F>(in, bases, [](F a) { return log1p_(a); }); break;
        case ERF: map1<F, F>(in, bases, [](F a) { return erf_(a); }); break;
        case COS: map1<F, F>(in, bases, [](F a) { return cos_(a); }); break;
        case SIN: map1<F, F>(in, bases, [](F a) { return sin_(a); }); break;
        case TANH: map1<F, F>(in, bases, [](F a) { return tanh_(a); }); break;
        case SIGMOID: map1<F, F>(in, bases, [](F a) { return sigmoid_(a); }); break;
        case SOFTPLUS: map1<F, F>(in, bases, [](F a) { return softplus_(a); }); break;
        case RELU: map1<F, F>(in, bases, [](F a) { return a < 0 ? 0.0f : a; }); break;
        case RELU_BACKWARD: map2<F, F>(in, bases, [](F g, F a) { return a <= 0 ? 0.0f : g; }); break;
        case NOT: map1<uint8_t, uint8_t>(in, bases, [](uint8_t a) { return (uint8_t)!a; }); break;
        case WHERE:
            if (in.operand[0].dtype == F32) choose<float>(in, bases);
            else if (in.operand[0].dtype == I64) choose<int64_t>(in, bases);
            else choose<uint8_t>(in, bases);
            break;
        case TO_FLOAT:
            if (type == I64) map1<F, int64_t>(in, bases, [](int64_t a) { return (F)a; });
            else map1<F, uint8_t>(in, bases, [](uint8_t a) { return (F)(a != 0); });
            break;
        case TO_INTEGER:
            if (type == F32) map1<int64_t, F>(in, bases, [](F a) { return (int64_t)a; });
            else map1<int64_t, uint8_t>(in, bases, [](uint8_t a) { return (int64_t)(a != 0); });
            break;
        case SUM: sum(in, bases); break;
        case ARGMAX: argmax(in, bases); break;
        case TAKE: return take_any<TAKE>(in, bases);
        case PUT: return take<float, PUT>(in, bases);
        case SET: return take_any<SET>(in, bases);
        case PRODUCT: product(in, bases); break;
    }
    return 0;
}

// Random numbers: Philox 4x32 with ten rounds (Salmon et al. 2011), sixteen counters side by side.

constexpr int SIDE = 16;

inline void philox(uint64_t key, uint64_t counter, uint32_t* __restrict__ out) {  // four numbers for each counter
    for (int i = 0; i < SIDE; i++) {
        uint64_t x0 = (uint32_t)(counter + i), x1 = (counter + i) >> 32, x2 = 0, x3 = 0;
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            const uint64_t a = (uint64_t)0xD2511F53u * (uint32_t)x0, b = (uint64_t)0xCD9E8D57u * (uint32_t)x2;
            x0 = (b >> 32) ^ x1 ^ k0, x1 = (uint32_t)b;
            x2 = (a >> 32) ^ x3 ^ k1, x3 = (uint32_t)a;
        }
        out[i] = (uint32_t)x0, out[SIDE + i] = (uint32_t)x1;
        out[2 * SIDE + i] = (uint32_t)x2, out[3 * SIDE + i] = (uint32_t)x3;
    }
}

inline void two_normals(uint32_t a, uint32_t b, float* first, float* second) {  // Box and Muller 1958
    const float u = __builtin_fmaf((float)(int32_t)(a >> 8), 0x1p-24f, ((float)(int32_t)(a & 255) + 0.5f) * 0x1p-32f);
    const float radius = __builtin_sqrtf(-2.0f * log_(u));
    const float t = __builtin_fmaf((float)(int32_t)(b >> 8), 0x1p-24f, -0.5f) * 1.57079632679f;  // in a quarter turn
    const float s2 = t * t;
    float c = 2.443315711809948e-5f;
    c = __builtin_fmaf(c, s2, -1.388731625493765e-3f);
    c = __builtin_fmaf(c, s2, 4.166664568298827e-2f);
    c = __builtin_fmaf(c * s2, s2, __builtin_fmaf(s2, -0.5f, 1.0f));
    float s = -1.9515295891e-4f;
    s = __builtin_fmaf(s, s2, 8.3321608736e-3f);
    s = __builtin_fmaf(s, s2, -1.6666654611e-1f);
    s = __builtin_fmaf(s * s2, t, t);
    const float x = radius * (c - s) * 0.70710678118f, y = radius * (c + s) * 0.70710678118f;
    const uint32_t quarter = b & 3;
    *first = quarter == 0 ? x : quarter == 1 ? -y : quarter == 2 ? -x : y;
    *second = quarter == 0 ? y : quarter == 1 ? x : quarter == 2 ? -y : -x;
}

void fill(float* out, int64_t count, uint64_t key, bool normal) {
    uint32_t x[4 * SIDE];
    float numbers[4 * SIDE];
    for (int64_t start = 0; start < count; start += 4 * SIDE) {
        philox(key, start / 4, x);
        if (normal)
            for (int i = 0; i < 2 * SIDE; i++) two_normals(x[i], x[2 * SIDE + i], numbers + i, numbers + 2 * SIDE + i);
        else
            for (int i = 0; i < 4 * SIDE; i++) numbers[i] = (float)(int32_t)(x[i] >> 8) * 0x1p-24f;
        const int64_t left = count - start < 4 * SIDE ? count - start : 4 * SIDE;
        std::memcpy(out + start, numbers, left * sizeof(float));
    }
}

}  // namespace

extern "C" {

// Fills a row of `count` random numbers for each key: uniform in [0, 1), or standard normal.
void explore_fill(float* out, int64_t rows, int64_t count, const uint64_t* keys, const uint8_t* wanted, int64_t normal) {
    const FlushToZero flush;
    for (int64_t row = 0; row < rows; row++, out += count) {
        if (wanted[row]) fill(out, count, keys[row], normal);
        else std::memset(out, 0, count * sizeof(float));
    }
}

// Runs a program for each of some lanes, on each of some minibatches, with a step of Adam after each if there is one.
// Returns how many places that were asked for do not exist.
int64_t explore_run(
    const Instruction* program, int64_t length, const Base* bases, int64_t number, const int64_t* lanes, int64_t many,
    int64_t batches, const Adam* adam
) {
    const FlushToZero flush;
    char** at = new char*[number];
    int64_t outside = 0;
    for (int64_t l = 0; l < many; l++)
        for (int64_t batch = 0; batch < batches; batch++) {
            for (int64_t k = 0; k < number; k++)
                at[k] = bases[k].data + lanes[l] * bases[k].lane_stride + batch * bases[k].batch_stride;
            for (int64_t i = 0; i < length; i++) outside += execute(program[i], at);
            if (adam) step(*adam, adam->rows + lanes[l] * adam->rows_per_lane);
        }
    delete[] at;
    return outside;
}

// The best of `actions` scores for each of `count` observations; returns how many have more than one.
int64_t explore_argmax(const float* scores, int64_t count, int64_t actions, int64_t* best) {
    int64_t ties = 0;
    for (int64_t i = 0; i < count; i++, scores += actions) {
        int64_t first = 0, equal = 1;
        for (int64_t k = 1; k < actions; k++) {
            if (scores[k] > scores[first]) first = k, equal = 1;
            else if (scores[k] == scores[first]) equal++;
        }
        best[i] = first;
        ties += equal > 1;
    }
    return ties;
}

}
