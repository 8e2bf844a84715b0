// Products of ROWS rows with a panel of a matrix: so many of its columns that all sums stay in registers.
//
// A panel is [depth, PANEL]; the last one of a matrix may have fewer columns, a multiple of LANES. Rows come in multiples
// of ROWS; those beyond the last real one are there to be computed, nobody reads them.

#pragma once

#include "vectors.h"

constexpr int PANEL = COLUMNS * LANES;

// out = from + left · right, of [ROWS, WIDE * LANES], [ROWS, depth] and [depth, WIDE * LANES]. Rows are so many numbers
// apart (`_down`), the numbers of a row of `left` are `along` apart.
template <int WIDE>
static APART void add_rows(
    const float* left, Size left_down, Size along, const float* right, Size depth, const float* from, Size from_down,
    float* out, Size out_down) {
    Vec sum[ROWS][WIDE], more[ROWS][WIDE] = {};  // few sums would wait for each other: every second product has its own
    constexpr int STEP = WIDE == 1 ? 2 : 1;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) sum[r][c] = from ? load(from + r * from_down + c * LANES) : broadcast(0.0f);
    for (Size d = 0; d < depth; d += STEP, left += STEP * along, right += STEP * WIDE * LANES)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int c = 0; c < WIDE; ++c) {
                sum[r][c] += left[r * left_down] * load(right + c * LANES);
                if (STEP == 2 && d + 1 < depth)
                    more[r][c] += left[r * left_down + along] * load(right + (WIDE + c) * LANES);
            }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) store(out + r * out_down + c * LANES, sum[r][c] + more[r][c]);
}

template <int WIDE>
static inline void add_to(const float* left, Size down, const float* right, Size depth, float* out, Size width) {
    add_rows<WIDE>(left, down, 1, right, depth, out, width, out, width);
}

#if defined(__AVX512VNNI__)
#define SACCADE_BYTES 1

// The same of 16-bit numbers, two neighbours of a row or a column together, and 32-bit sums
template <int WIDE>
static APART void add_to(const int16_t* left, Size down, const int16_t* right, Size depth, int32_t* out, Size width) {
    constexpr int STEPS = WIDE == 1 ? 2 : 1;  // few sums would wait for each other
    Int sum[STEPS][ROWS][WIDE] = {};
    for (Size d = 0; d < depth; d += 2 * STEPS, left += 2 * STEPS)
#pragma GCC unroll 8
        for (int step = 0; step < STEPS; ++step, right += 2 * WIDE * LANES)
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                int32_t pair;
                std::memcpy(&pair, left + r * down + 2 * step, sizeof pair);
#pragma GCC unroll 8
                for (int c = 0; c < WIDE; ++c)
                    sum[step][r][c] = (Int)_mm512_dpwssd_epi32(
                        (__m512i)sum[step][r][c], _mm512_loadu_si512(right + 2 * LANES * c), _mm512_set1_epi32(pair));
            }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) {
            Int* place = reinterpret_cast<Int*>(out + r * width + c * LANES);
            *place += sum[0][r][c] + (STEPS == 2 ? sum[STEPS - 1][r][c] : Int{});
        }
}
#else
#define SACCADE_BYTES 0
#endif

// out [ROWS, width] += left [ROWS, depth] · right [skip … skip + depth, width] of a matrix in panels, which has `all` rows
template <class Number, class Sum>
static inline void add_rows_of(
    const Number* left, Size down, const Number* right, Size skip, Size depth, Size all, Sum* out, Size width) {
    for (Size first = 0; first < width; first += PANEL, right += all * PANEL, out += PANEL) {
        const int wide = int(std::min<Size>(COLUMNS, (width - first) / LANES));
        const Number* here = right + skip * wide * LANES;
        if (wide == 1) add_to<1>(left, down, here, depth, out, width);
        if (wide == 2) add_to<2>(left, down, here, depth, out, width);
        if (wide == 3) add_to<3>(left, down, here, depth, out, width);
        if (wide == COLUMNS) add_to<COLUMNS>(left, down, here, depth, out, width);
    }
}

// What is multiplied by matrices: rows in the order in which a product reads them, in float or in bytes. Rows are given in
// pieces, [piece, row, PANEL]; Shares are weights of zero or more, [row, width].
//
// Fine numbers are for scores, see scores.h: sums of their products are exact enough to choose by.
struct InFloat {
    typedef float Number;
    typedef float Fine;
    typedef float Sum;
    static constexpr bool ALL = true;  // digits of a float count

    static float grid(Size) { return 1.0f; }
    static void put(Fine* place, Vec value, float) { store(place, value); }
    static Vec get(const Fine* place, float) { return load(place); }
    static Vec score(const Sum* sums, float, const float*) { return load(sums); }

    struct Rows {
        Size depth;
        Array<float> values;  // [row / ROWS, depth, ROWS]

        Rows(Size rows, Size depth) : depth(depth), values(rows * depth) {}

        void take(const float* source, Size rows) {
            for (Size first = 0; first < depth; first += PANEL)
                for (Size row = 0; row < rows; ++row, source += PANEL) {
                    float* place = &values[(row / ROWS * depth + first) * ROWS + row % ROWS];
                    for (Size d = 0; d < PANEL; ++d) place[d * ROWS] = source[d];
                }
        }

        void take(const Fine* source, const float*, Size rows) { take(source, rows); }

        // ROWS rows times a panel [depth, PANEL] -> out [ROWS, PANEL]
        void multiply(Size row, const float* panel, const float*, float* out) const {
            add_rows<COLUMNS>(&values[row * depth], 1, ROWS, panel, depth, nullptr, 0, out, PANEL);
        }
    };

    struct Shares {
        Size width, depth;
        const float* values = nullptr;

        Shares(Size, Size width, Size depth) : width(width), depth(depth) {}

        void take(const float* source, Size) { values = source; }

        // out [ROWS, PANEL] = from + ROWS rows times a panel [depth, PANEL]
        void add(Size row, const float* panel, const float*, const float* from, float* out) const {
            add_rows<COLUMNS>(values + row * width, width, 1, panel, depth, from, PANEL, out, PANEL);
        }
    };
};

#if SACCADE_BYTES
// In 8 bits numbers are so many times a scale of their row, or column of a matrix; four neighbours stand together. Fine
// ones have 16 bits; two neighbours stand together.
struct InBytes {
    typedef int8_t Number;
    typedef int16_t Fine;
    typedef int32_t Sum;
    static constexpr bool ALL = false;

    // Into so many steps a row's largest number is divided, and the length of a context's vector: so fine that the product
    // of both, at most (√dim grid) grid, just fits 32 bits. Rounding may lengthen them, by less than what is left.
    static float grid(Size dim) { return 0.95f * std::sqrt(2147483648.0f / std::sqrt(float(dim))); }

    static void put(Fine* place, Vec value, float shrink) {
        const __m512i whole = _mm512_cvtps_epi32((__m512)(value * shrink));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(place), _mm512_cvtsepi32_epi16(whole));
    }

    static Vec get(const Fine* place, float step) {
        const __m256i whole = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(place));
        return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(whole)) * step;
    }

    static Vec score(const Sum* sums, float step, const float* scale) {
        return (Vec)_mm512_cvtepi32_ps(_mm512_loadu_si512(sums)) * (step * load(scale));
    }

    static void keep(__m128i bytes, int32_t* place) { _mm_storeu_si128(reinterpret_cast<__m128i*>(place), bytes); }

    // -127 … 127. One factor of a product must be positive: the matrix is, 128 having been added to each number of it.
    // What that adds to the sums of a row is known.
    struct Rows {
        Size depth;
        Array<int32_t> quads;  // [row, depth / 4]
        Array<float> scale;
        Array<int32_t> surplus;

        Rows(Size rows, Size depth) : depth(depth), quads(rows * depth / 4), scale(rows), surplus(rows) {}

        // Rows of floats, or fine ones with their steps
        void take(const float* source, Size rows) {
            for (Size row = 0; row < rows; ++row) {
                const auto walk = [&](auto use) {
                    for (Size first = 0; first < depth; first += PANEL)
                        for (Size d = 0; d < PANEL; d += LANES)
                            use(first + d, _mm512_loadu_ps(source + first * rows + row * PANEL + d));
                };
                __m512 largest = _mm512_set1_ps(TINY);
                walk([&](Size, __m512 value) { largest = _mm512_max_ps(largest, _mm512_abs_ps(value)); });
                scale[row] = _mm512_reduce_max_ps(largest) / 127.0f;
                const __m512 shrink = _mm512_set1_ps(1.0f / scale[row]);
                __m512i total = _mm512_setzero_si512();
                walk([&](Size d, __m512 value) {
                    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(value, shrink));
                    total = _mm512_add_epi32(total, whole);
                    keep(_mm512_cvtsepi32_epi8(whole), &quads[(row * depth + d) / 4]);
                });
                surplus[row] = 128 * _mm512_reduce_add_epi32(total);
            }
        }

        void take(const Fine* source, const float* step, Size rows) {
            for (Size row = 0; row < rows; ++row) {
                const Fine* start = source + row * PANEL;
                __m512i largest = _mm512_set1_epi16(127);
                for (Size d = 0; d < depth; d += 2 * LANES) {
                    const __m512i value = _mm512_loadu_si512(start + d / PANEL * PANEL * rows + d % PANEL);
                    largest = _mm512_max_epi16(largest, _mm512_abs_epi16(value));
                }
                alignas(LINE) Fine each[2 * LANES];
                _mm512_store_si512(each, largest);
                const int most = *std::max_element(each, each + 2 * LANES);
                const int share = std::min(32767, (127 << 15) / most);  // of 2^15
                scale[row] = step[row] * 32768.0f / float(share);
                const __m512i shrink = _mm512_set1_epi16(int16_t(share)), ones = _mm512_set1_epi16(1);
                __m512i total = _mm512_setzero_si512();
                for (Size d = 0; d < depth; d += 2 * LANES) {
                    const __m512i value = _mm512_loadu_si512(start + d / PANEL * PANEL * rows + d % PANEL);
                    const __m512i whole = _mm512_mulhrs_epi16(value, shrink);
                    total = _mm512_dpwssd_epi32(total, whole, ones);
                    const __m256i bytes = _mm512_cvtepi16_epi8(whole);
                    _mm256_storeu_si256(reinterpret_cast<__m256i*>(&quads[(row * depth + d) / 4]), bytes);
                }
                surplus[row] = 128 * _mm512_reduce_add_epi32(total);
            }
        }

        // panel: [depth / 4, PANEL, 4], with 128 added, and the scales of its columns
        APART void multiply(Size row, const int8_t* panel, const float* column_scale, float* out) const {
            const int32_t* quad = &quads[row * depth / 4];
            Int sum[ROWS][COLUMNS] = {};
            for (Size d = 0; d < depth; d += 4, ++quad, panel += 4 * PANEL)
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                    for (int c = 0; c < COLUMNS; ++c)
                        sum[r][c] = (Int)_mm512_dpbusd_epi32(
                            (__m512i)sum[r][c], _mm512_loadu_si512(panel + 4 * LANES * c),
                            _mm512_set1_epi32(quad[r * depth / 4]));
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                for (int c = 0; c < COLUMNS; ++c)
                    store(out + r * PANEL + c * LANES,
                          (Vec)_mm512_cvtepi32_ps((__m512i)(sum[r][c] - surplus[row + r])) *
                              (scale[row + r] * load(column_scale + c * LANES)));
        }
    };

    // Shares of one: 0 … 255 times a scale. Here it is the matrix that may be negative.
    struct Shares {
        Size width, depth;
        Array<int32_t> quads;  // [row, width / 4]
        Array<float> scale;

        Shares(Size rows, Size width, Size depth) : width(width), depth(depth), quads(rows * width / 4), scale(rows) {}

        void take(const float* source, Size rows) {
            for (Size row = 0; row < rows; ++row, source += width) {
                __m512 largest = _mm512_set1_ps(TINY);
                for (Size d = 0; d < width; d += LANES) largest = _mm512_max_ps(largest, _mm512_loadu_ps(source + d));
                scale[row] = _mm512_reduce_max_ps(largest) / 255.0f;
                const __m512 shrink = _mm512_set1_ps(1.0f / scale[row]);
                for (Size d = 0; d < width; d += LANES) {
                    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(source + d), shrink));
                    keep(_mm512_cvtusepi32_epi8(whole), &quads[(row * width + d) / 4]);
                }
            }
        }

        // panel: [depth / 4, PANEL, 4], and the scales of its columns
        APART void add(Size row, const int8_t* panel, const float* column_scale, const float* from, float* out) const {
            const int32_t* quad = &quads[row * width / 4];
            Int sum[ROWS][COLUMNS] = {};
            for (Size d = 0; d < depth; d += 4, ++quad, panel += 4 * PANEL)
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                    for (int c = 0; c < COLUMNS; ++c)
                        sum[r][c] = (Int)_mm512_dpbusd_epi32(
                            (__m512i)sum[r][c], _mm512_set1_epi32(quad[r * width / 4]),
                            _mm512_loadu_si512(panel + 4 * LANES * c));
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                for (int c = 0; c < COLUMNS; ++c)
                    store(out + r * PANEL + c * LANES,
                          load(from + r * PANEL + c * LANES) + (Vec)_mm512_cvtepi32_ps((__m512i)sum[r][c]) *
                                                                   (scale[row + r] * load(column_scale + c * LANES)));
        }
    };
};
#endif
