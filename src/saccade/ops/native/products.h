// Products of ROWS rows with a panel of a matrix: so many of its columns that all sums stay in registers.
//
// A panel is [depth, PANEL]; the last one of a matrix may have fewer columns, a multiple of LANES. Rows come in multiples
// of ROWS; those beyond the last real one are there to be computed, nobody reads them.

#pragma once

#include "vectors.h"

constexpr int PANEL = COLUMNS * LANES;
#define APART __attribute__((noinline))  // a function of its own has all registers for its sums

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

// out [ROWS, width] += left [ROWS, depth] · right [skip … skip + depth, width] of a matrix in panels, which has `all` rows
static inline void add_rows_of(
    const float* left, Size down, const float* right, Size skip, Size depth, Size all, float* out, Size width) {
    for (Size first = 0; first < width; first += PANEL, right += all * PANEL, out += PANEL) {
        const int wide = int(std::min<Size>(COLUMNS, (width - first) / LANES));
        const auto add = wide == 1 ? add_rows<1> : wide == 2 ? add_rows<2> : wide == 3 ? add_rows<3> : add_rows<COLUMNS>;
        add(left, down, 1, right + skip * wide * LANES, depth, out, width, out, width);
    }
}

// What is multiplied by matrices: rows in the order in which a product reads them, in float or in bytes. Rows are given in
// pieces, [piece, row, number], of a piece a multiple of LANES numbers; Shares are weights of zero or more, [row, width].
struct InFloat {
    typedef float Number;

    struct Rows {
        Size depth;
        Array<float> values;  // [row / ROWS, depth, ROWS]

        Rows(Size rows, Size depth) : depth(depth), values(rows * depth) {}

        void take(const float* source, Size rows, Size piece) {
            for (Size first = 0; first < depth; first += piece)
                for (Size row = 0; row < rows; ++row, source += piece) {
                    float* place = &values[(row / ROWS * depth + first) * ROWS + row % ROWS];
                    for (Size d = 0; d < piece; ++d) place[d * ROWS] = source[d];
                }
        }

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

#if defined(__AVX512VNNI__)
#define SACCADE_BYTES 1

// In 8 bits numbers are so many times a scale of their row, or column of a matrix; four neighbours stand together.
struct InBytes {
    typedef int8_t Number;

    static inline void put(__m128i bytes, int32_t* place) {
        alignas(LINE) int32_t four[LANES / 4];
        _mm_store_si128(reinterpret_cast<__m128i*>(four), bytes);
        for (int quad = 0; quad < LANES / 4; ++quad) place[quad * ROWS] = four[quad];
    }

    // -127 … 127. One factor of a product must be positive: the matrix is, 128 having been added to each number of it.
    // What that adds to the sums of a row is known.
    struct Rows {
        Size depth;
        Array<int32_t> quads;  // [row / ROWS, depth / 4, ROWS]
        Array<float> scale;
        Array<int32_t> surplus;

        Rows(Size rows, Size depth) : depth(depth), quads(rows * depth / 4), scale(rows), surplus(rows) {}

        void take(const float* source, Size rows, Size piece) {
            for (Size row = 0; row < rows; ++row) {
                const auto walk = [&](auto use) {
                    for (Size first = 0; first < depth; first += piece)
                        for (Size d = 0; d < piece; d += LANES)
                            use(first + d, _mm512_loadu_ps(source + first * rows + row * piece + d));
                };
                __m512 largest = _mm512_set1_ps(TINY);
                walk([&](Size, __m512 value) { largest = _mm512_max_ps(largest, _mm512_abs_ps(value)); });
                scale[row] = _mm512_reduce_max_ps(largest) / 127.0f;
                const __m512 shrink = _mm512_set1_ps(1.0f / scale[row]);
                __m512i total = _mm512_setzero_si512();
                walk([&](Size d, __m512 value) {
                    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(value, shrink));
                    total = _mm512_add_epi32(total, whole);
                    put(_mm512_cvtsepi32_epi8(whole), &quads[(row / ROWS * depth + d) / 4 * ROWS + row % ROWS]);
                });
                surplus[row] = 128 * _mm512_reduce_add_epi32(total);
            }
        }

        // panel: [depth / 4, PANEL, 4], with 128 added, and the scales of its columns
        APART void multiply(Size row, const int8_t* panel, const float* column_scale, float* out) const {
            const int32_t* quad = &quads[row * depth / 4];
            Int sum[ROWS][COLUMNS] = {};
            for (Size d = 0; d < depth; d += 4, quad += ROWS, panel += 4 * PANEL)
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                    for (int c = 0; c < COLUMNS; ++c)
                        sum[r][c] = (Int)_mm512_dpbusd_epi32(
                            (__m512i)sum[r][c], _mm512_loadu_si512(panel + 4 * LANES * c), _mm512_set1_epi32(quad[r]));
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
        Array<int32_t> quads;  // [row / ROWS, width / 4, ROWS]
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
                    put(_mm512_cvtusepi32_epi8(whole), &quads[(row / ROWS * width + d) / 4 * ROWS + row % ROWS]);
                }
            }
        }

        // panel: [depth / 4, PANEL, 4], and the scales of its columns
        APART void add(Size row, const int8_t* panel, const float* column_scale, const float* from, float* out) const {
            const int32_t* quad = &quads[row * width / 4];
            Int sum[ROWS][COLUMNS] = {};
            for (Size d = 0; d < depth; d += 4, quad += ROWS, panel += 4 * PANEL)
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
                    for (int c = 0; c < COLUMNS; ++c)
                        sum[r][c] = (Int)_mm512_dpbusd_epi32(
                            (__m512i)sum[r][c], _mm512_set1_epi32(quad[r]), _mm512_loadu_si512(panel + 4 * LANES * c));
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
#else
#define SACCADE_BYTES 0
#endif
