// What weights of attention come to: the same for all pairs (attention.cpp) and for GSMN's blocks (blocks.cpp).
//
// A lane of a vector is one pair (an item that asks and an item that is asked), so that no sum runs across lanes.

#pragma once

#include "vectors.h"

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
