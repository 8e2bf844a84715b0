// Vectors of as many numbers as a register holds, and what the loops of attention.cpp and block_cosines.cpp do with them.
//
// A lane of a vector is one pair (a query item and a context item), so that no sum runs across lanes.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 6;  // ROWS x COLUMNS sums, a row of vectors and a number fit the registers
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 2;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int COLUMNS = 4;
constexpr std::size_t LINE = 64;  // bytes of a cache's line
constexpr float EPSILON = 1e-8f, TINY = 1e-20f;  // a sum of weights is larger than TINY, or there was nothing to weigh

constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: a number added to it has no digits behind the point

typedef float Vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Int __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t Size;

#define APART __attribute__((noinline))  // a function of its own has all registers for its sums

static inline Vec load(const float* place) { return *reinterpret_cast<const Vec*>(place); }
static inline void store(float* place, Vec value) { *reinterpret_cast<Vec*>(place) = value; }
static inline Vec broadcast(float value) { return Vec{} + value; }
static inline Vec larger(Vec one, Vec other) {
#if defined(__AVX512F__)
    return (Vec)_mm512_max_ps((__m512)one, (__m512)other);  // GCC would compare and choose, in two steps
#endif
    return one > other ? one : other;
}

static inline Vec at_least(Vec value, float least) { return larger(value, broadcast(least)); }
static inline Vec clipped(Vec score, float slope) { return score > 0.0f ? score : score * slope; }

static inline Vec load_some(const float* place, int count) {
    Vec value = broadcast(0.0f);
    std::memcpy(&value, place, sizeof(float) * count);
    return value;
}

static inline void store_some(float* place, Vec value, int count) { std::memcpy(place, &value, sizeof(float) * count); }

static inline Vec root(Vec value) {
#if defined(__AVX512F__)
    return (Vec)_mm512_sqrt_ps((__m512)value);  // of a loop over lanes GCC makes two halves, put together in memory
#endif
    Vec result = value;
    for (int lane = 0; lane < LANES; ++lane) result[lane] = std::sqrt(value[lane]);
    return result;
}

static inline float sum_of(Vec value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)value);  // one by one, every lane waits for the one before it
#endif
    float total = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) total += value[lane];
    return total;
}

static inline float dot(const float* one, const float* other, Size count) {
    Vec sum[2] = {};
    Size d = 0;
    for (; d + 2 * LANES <= count; d += 2 * LANES)
        for (int half = 0; half < 2; ++half) sum[half] += load(one + d + half * LANES) * load(other + d + half * LANES);
    for (; d < count; d += LANES) {
        const int some = int(std::min<Size>(LANES, count - d));
        sum[0] += load_some(one + d, some) * load_some(other + d, some);
    }
    return sum_of(sum[0] + sum[1]);
}

// e^x for |x| < 87: 2^n times a polynomial of the rest, which is within half a factor of two. Relative error < 1e-7.
static inline Vec exponential(Vec x) {
    const Vec shifted = x * 1.44269504f + ROUND;
    const Vec whole = shifted - ROUND;
    const Vec rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts
    Vec sum = rest * 1.38144669e-3f + 8.36878051e-3f;
    sum = sum * rest + 4.16683942e-2f;
    sum = sum * rest + 1.66665201e-1f;
    sum = sum * rest + 4.99999934e-1f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    return (Vec)((Int)sum + ((Int)shifted << 23));
}

// A vector of the library whose first number is where a cache's line begins: no load or store of a register takes two.
template <class T>
struct AtLine {
    typedef T value_type;
    AtLine() = default;
    template <class Other>
    AtLine(const AtLine<Other>&) {}
    T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(LINE))); }
    void deallocate(T* place, std::size_t) { ::operator delete(place, std::align_val_t(LINE)); }
    friend bool operator==(const AtLine&, const AtLine&) { return true; }
    friend bool operator!=(const AtLine&, const AtLine&) { return false; }
};
template <class T>
using Array = std::vector<T, AtLine<T>>;

static inline Size up(Size number, Size multiple) { return (number + multiple - 1) / multiple * multiple; }

// How strongly a context vector is scaled: sharpness over the norm of its scores with all queries of an item.
struct Form {
    int norm;  // 1 or 2
    float slope, sharpness;

    inline Vec add(Vec sum, Vec score) const {
        const Vec value = clipped(score, slope);
        return norm == 2 ? sum + value * value : sum + (value > 0.0f ? value : -value);
    }
    inline Vec scale(Vec sum) const { return sharpness / ((norm == 2 ? root(sum) : sum) + EPSILON); }
    inline Vec weight(Vec score, Vec scale) const { return exponential(clipped(score, slope) * scale); }
};

// The weights' quadratic form, WIDE queries at once. `gram` is the lower triangle of a Gram matrix with all but its
// diagonal doubled, [part, height]; weights [height, COLUMNS] are zero beyond the parts; height is a multiple of ROWS.
template <int WIDE>
static inline void quadratic(const float* gram, const float* weights, Size parts, Size height, Vec (&squared)[COLUMNS]) {
    for (int c = 0; c < WIDE; ++c) squared[c] = broadcast(0.0f);
    for (Size top = 0; top < parts; top += ROWS) {
        Vec sum[ROWS][WIDE] = {};
        for (Size part = top; part < parts; ++part) {
            const float *row = gram + part * height + top, *value = weights + part * COLUMNS * LANES;
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                for (int c = 0; c < WIDE; ++c) sum[r][c] += row[r] * load(value + c * LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int c = 0; c < WIDE; ++c) squared[c] += sum[r][c] * load(weights + ((top + r) * COLUMNS + c) * LANES);
    }
}

// Of a query's weights (not yet divided by their sum): its cosine with what it found, lengths being at least EPSILON.
static inline Vec cosine(Vec found, Vec total, Vec squared, Vec norm) {
    const Vec least = at_least(total, TINY) * EPSILON, length = root(at_least(squared, 0.0f));
    const Vec size = (length > least ? length : least) * norm;
    return found / (size > least ? size : least);
}
