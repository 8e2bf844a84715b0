// Matrices into the order in which products.h reads them, panels of float or of bytes; and a product with one of them.
//
#include "scores.h"

// A panel may be made of several matrices: `share` neighbouring columns of this one go into every panel, from `offset` on.
// weight [column, depth], rows `stride` apart: a column of a panel is a row here -> values [panel, depth, PANEL] of float
// or, where there is room for scales [panel, PANEL], [panel, depth / 4, PANEL, 4] of bytes with 128 added
extern "C" void saccade_pack_weight(
    const float* weight, void* values, float* scale, Size columns, Size depth, Size stride, Size share, Size offset) {
    Array<uint8_t> whole(depth);
    for (Size column = 0; column < columns; ++column, weight += stride) {
        const Size place = column / share * PANEL + offset + column % share, across = place % PANEL;
        const Size first = place / PANEL * PANEL * depth;
        if (!scale) {
            float* result = static_cast<float*>(values) + first + across;
            for (Size d = 0; d < depth; ++d) result[d * PANEL] = weight[d];
            continue;
        }
        Vec sizes = broadcast(TINY);
        for (Size d = 0; d < depth; d += LANES) sizes = larger(sizes, larger(load(weight + d), -load(weight + d)));
        const float largest = largest_of(sizes);
        scale[place] = largest / 127.0f;
        const float shrink = 127.0f / largest;
        for (Size d = 0; d < depth; ++d) whole[d] = uint8_t(int(weight[d] * shrink + 128.5f));  // all are positive
        uint8_t* result = static_cast<uint8_t*>(values) + first + 4 * across;
        for (Size d = 0; d < depth; d += 4) std::memcpy(result + d * PANEL, &whole[d], 4);
    }
}

// rows [panel, row, PANEL], panels and rows so many numbers apart -> values [panel, row, PANEL] of float or, where there is
// room for scales [panel, PANEL], [panel, row / 4, PANEL, 4] of bytes; what is beyond the last row stays as it was
extern "C" void saccade_pack_rows(
    const float* rows, void* values, float* scale, Size count, Size panels, Size panel_stride, Size row_stride) {
    for (Size place = 0; place < panels * PANEL; place += LANES) {
        const Size panel = place / PANEL, across = place % PANEL;
        const float* source = rows + panel * panel_stride + across;
        if (!scale) {
            float* result = static_cast<float*>(values) + panel * PANEL * count + across;
            for (Size row = 0; row < count; ++row) store(result + row * PANEL, load(source + row * row_stride));
            continue;
        }
        Vec largest = broadcast(TINY);
        for (Size row = 0; row < count; ++row) {
            const Vec value = load(source + row * row_stride);
            largest = larger(largest, larger(value, -value));
        }
        store(scale + place, largest / 127.0f);
        const Vec shrink = 127.0f / largest;
        int8_t* result = static_cast<int8_t*>(values) + panel * PANEL * up(count, 4) + 4 * across;
        for (Size row = 0; row < count; row += 4, result += 4 * PANEL) {
            Int four = {};
            for (Size next = std::min(row + 4, count); next-- > row;)  // its last 8 bits
                four = four << 8 | ((Int)(load(source + next * row_stride) * shrink + ROUND) & 255);
            *reinterpret_cast<Int*>(result) = four;
        }
    }
}

#if SACCADE_BYTES
// rows [part, dim], `stride` apart, of which a part becomes a column -> values [dim / 2, width, 2] of 16 bits in panels, scale [width];
// what is beyond the last part stays as it was
extern "C" void saccade_pack_fine(
    const float* rows, int16_t* values, float* scale, Size parts, Size dim, Size width, Size stride) {
    Array<int32_t> pairs(LANES * dim / 2);  // of some parts: so many become whole vectors
    for (Size first = 0; first < parts; first += LANES) {
        const Size some = std::min<Size>(LANES, parts - first);
        for (Size part = 0; part < some; ++part, rows += stride) {
            Vec squared = broadcast(0.0f);
            for (Size d = 0; d < dim; d += LANES) squared += load(rows + d) * load(rows + d);
            const float steps = InBytes::grid(dim) / std::max(std::sqrt(sum_of(squared)), TINY);
            for (Size d = 0; d < dim; d += LANES)
                InBytes::put(reinterpret_cast<int16_t*>(&pairs[(part * dim + d) / 2]), load(rows + d), steps);
            scale[first + part] = 1.0f / steps;
        }
        const Size panel = first / PANEL * PANEL, wide = std::min<Size>(PANEL, width - panel);
        int32_t* result = reinterpret_cast<int32_t*>(values + panel * dim) + (first - panel);
        for (Size d = 0; d < dim / 2; ++d, result += wide)
            for (Size part = 0; part < some; ++part) result[part] = pairs[part * dim / 2 + d];
    }
}

// rows [row, depth], `stride` apart, times a matrix in panels of 16 bits -> result [row, column]; columns are whole panels
extern "C" void saccade_multiply_fine(
    const float* rows, const int16_t* matrix, const float* scale, float* result, Size count, Size depth, Size columns,
    Size stride) {
    Scores<InBytes> compared{up(count, ROWS), depth, PANEL};
    compared.take(rows, count, stride, PANEL, TINY);
    for (Size column = 0; column < columns; column += PANEL)
        compared.at_first(matrix + column * depth, scale + column, result + column, count, columns);
}
#endif

template <class In>
static void multiply(
    const float* rows, const typename In::Number* weight, const float* scale, float* result, Size count, Size depth,
    Size panels) {
    typename In::Rows taken(count, depth);
    taken.take(rows, count);
    for (Size panel = 0; panel < panels; ++panel)
        for (Size row = 0; row < count; row += ROWS)
            taken.multiply(row, weight + panel * depth * PANEL, scale + panel * PANEL,
                           result + (panel * count + row) * PANEL);
}

extern "C" int saccade_panel() { return PANEL; }
extern "C" int saccade_bytes() { return SACCADE_BYTES; }

// rows [depth / PANEL, row, PANEL] times a matrix in panels, of float or, where there are scales, of bytes -> result
// [panel, row, PANEL]
extern "C" void saccade_multiply(
    const float* rows, const void* weight, const float* scale, float* result, Size count, Size depth, Size panels) {
#if SACCADE_BYTES
    if (scale) return multiply<InBytes>(rows, static_cast<const int8_t*>(weight), scale, result, count, depth, panels);
#endif
    multiply<InFloat>(rows, static_cast<const float*>(weight), scale, result, count, depth, panels);
}
