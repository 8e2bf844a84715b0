// All-pairs attention, the large product and what follows it: see ops/torch.py for the equations.
//
// Scores of a few context items with some queries are multiplied into the second cache, become weights in the first and
// are summed up; nothing but results is written. Lanes beyond the last item compute rubbish that nobody stores: arrays of
// scores have LANES spare numbers at their end.
//
// Vectors are given as all that there are, [any, dim], and the places of those that are meant. A query's place may be
// negative: padding. The context has none: `start` [other + 1] says where each item's begin among the places.

#include "attention.h"

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TALL = 9, LOW = 3, BROAD = 3;  // TALL rows times BROAD vectors, so many sums fit the registers
#else
constexpr int TALL = 4, LOW = 2, BROAD = 2;
#endif
constexpr Size AT_ONCE = 12 * TALL;  // rows that columns from afar are multiplied with while they are near

struct Vectors {
    const float* values;
    const Size* place;
    Size dim;
    Array<float> nothing = Array<float>(dim, 0.0f);

    const float* operator[](Size number) const { return place[number] < 0 ? nothing.data() : values + place[number] * dim; }
};

extern "C" int saccade_lanes() { return LANES; }
extern "C" int saccade_columns() { return COLUMNS; }
extern "C" int saccade_rows() { return ROWS; }
extern "C" void saccade_exponential(const float* values, float* results, Size count) {
    for (Size place = 0; place + LANES <= count; place += LANES) store(results + place, exponential(load(values + place)));
}

// out [HIGH, WIDE] = HIGH rows times columns [dim, WIDE]; its rows are `down` apart
template <int HIGH, int WIDE>
static APART void product(const float* const* rows, const float* columns, Size dim, float* out, Size down) {
    const float* left[HIGH];
    Vec sum[HIGH][WIDE] = {};
    std::copy_n(rows, HIGH, left);
    for (Size d = 0; d < dim; ++d, columns += WIDE * LANES)
#pragma GCC unroll 16
        for (int r = 0; r < HIGH; ++r)
#pragma GCC unroll 8
            for (int c = 0; c < WIDE; ++c) sum[r][c] += left[r][d] * load(columns + c * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < HIGH; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) store(out + r * down + c * LANES, sum[r][c]);
}

// The same of `count` rows, a multiple of LOW
template <int WIDE>
static void products(const float* const* rows, Size count, const float* columns, Size dim, float* out, Size down) {
    Size row = 0;
    for (; row + TALL <= count; row += TALL) product<TALL, WIDE>(rows + row, columns, dim, out + row * down, down);
    for (; row < count; row += LOW) product<LOW, WIDE>(rows + row, columns, dim, out + row * down, down);
}

// scores [row, column], rows `stride` apart
static void multiply(
    const std::vector<const float*>& rows, const float* columns, Size count, Size dim, float* scores, Size stride) {
    constexpr Size PANEL = BROAD * LANES;
    for (Size column = 0; column < count; column += PANEL, columns += dim * PANEL) {
        const Size wide = (count - column) / LANES;
        const auto go = wide >= BROAD ? products<BROAD> : wide == 2 ? products<2> : products<1>;
        go(rows.data(), rows.size(), columns, dim, scores + column, stride);
    }
}

// One context item and WIDE queries of LANES items, from `scores` (of the first part and query, `items` and `stride`
// apart) and the scales of the parts -> match [query, item], `some` of the lanes
template <int WIDE>
static inline void attend(
    const Form& form, const float* scores, const float* scales, const float* gram, const float* norm, float* match,
    float* weights, Size parts, Size items, Size stride, int some) {
    Vec found[WIDE] = {}, total[WIDE] = {}, squared[COLUMNS];
    for (Size part = 0; part < parts; ++part) {
        const Vec scale = load(scales + part * LANES);
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) {
            const Vec score = load(scores + part * stride + c * items);
            const Vec weight = form.weight(score, scale);
            found[c] += weight * score;
            total[c] += weight;
            store(weights + (part * COLUMNS + c) * LANES, weight);
        }
    }
    quadratic<WIDE>(gram, weights, parts, up(parts, ROWS), squared);
    for (int c = 0; c < WIDE; ++c)
        store_some(match + c * items, cosine(found[c], total[c], squared[c], load_some(norm + c * items, some)), some);
}

// Some query items of one length: their columns begin with the first; norm, match [other, query, item]
struct QueryGroup {
    Size first, queries, items;
    const float* norm;
    float* match;
};

// One context item with one group of query items, from its scores, `stride` numbers a part; scales, weights: room
static void attend_item(
    const Form& form, const QueryGroup& group, const float* scores, const float* gram, float* match, float* scales,
    float* weights, Size parts, Size stride) {
    const Size queries = group.queries, items = group.items;
    std::fill(weights + parts * COLUMNS * LANES, weights + up(parts, ROWS) * COLUMNS * LANES, 0.0f);
    for (Size item = 0; item < items; item += LANES) {
        const int some = int(items - item < LANES ? items - item : LANES);
        for (Size part = 0; part < parts; ++part) {
            Vec sum = broadcast(0.0f);
            const float* score = scores + part * stride + item;
            for (Size query = 0; query < queries; ++query) sum = form.add(sum, load(score + query * items));
            store(scales + part * LANES, form.scale(sum));
        }
        for (Size query = 0; query < queries; query += COLUMNS) {
            const Size place = query * items + item;
            const auto go = [&](auto loop) {
                loop(form, scores + place, scales, gram, group.norm + place, match + place, weights, parts, items, stride,
                     some);
            };
            switch (queries - query) {
                case 1: go(attend<1>); break;
                case 2: go(attend<2>); break;
                case 3: go(attend<3>); break;
                default: go(attend<COLUMNS>);
            }
        }
    }
}

// queries are `columns` as saccade_pack_columns makes them, in groups, each {first, queries, items} of `shapes`, with norms
// [query, item]; `gram`: as saccade_triangles makes it, an item's from `triangle` [other] on -> matches [other, query, item]
extern "C" void saccade_attend(
    const float* values, const Size* place, const Size* start, const float* gram, const Size* triangle,
    const float* columns, const Size* shapes, const float* const* norms, float* const* matches, Size others, Size dim,
    Size count, Size groups, int norm_kind, float slope, float sharpness) {
    const Form form{norm_kind, slope, sharpness};
    const Vectors vectors{values, place, dim};
    const Size stride = (count / LANES | 1) * LANES;  // an odd number of vectors: rows fall into all sets of a cache
    const auto parts = [&](Size other) { return start[other + 1] - start[other]; };
    Size most = 1;
    for (Size other = 0; other < others; ++other) most = std::max(most, parts(other));
    static thread_local Array<float> scores;  // stays: to get memory from the system again and again takes time
    scores.resize(up(std::max(AT_ONCE, most), LOW) * stride + LANES);
    std::vector<const float*> rows;
    Array<float> scales(most * LANES), weights(up(most, ROWS) * COLUMNS * LANES, 0.0f);
    for (Size first = 0, last = 0; first < others; first = last) {
        do ++last;
        while (last < others && start[last + 1] - start[first] <= AT_ONCE);
        const Size real = start[last] - start[first];
        rows.assign(up(real, LOW), vectors.nothing.data());
        for (Size row = 0; row < real; ++row) rows[row] = vectors[start[first] + row];
        multiply(rows, columns, count, dim, scores.data(), stride);
        for (Size other = first; other < last; ++other)
            for (Size group = 0; group < groups; ++group) {
                const Size* shape = shapes + 3 * group;
                const QueryGroup queries{shape[0], shape[1], shape[2], norms[group], matches[group]};
                attend_item(form, queries, &scores[(start[other] - start[first]) * stride + queries.first],
                            gram + triangle[other], queries.match + other * queries.queries * queries.items, scales.data(),
                            weights.data(), parts(other), stride);
            }
    }
}

// vectors at `place` [count], a multiple of LANES -> columns [dim, count] in panels of BROAD, and their lengths
extern "C" void saccade_pack_columns(
    const float* values, const Size* place, float* columns, float* length, Size count, Size dim) {
    const Vectors vectors{values, place, dim};
    constexpr Size PANEL = BROAD * LANES;
    for (Size first = 0; first < count; first += LANES) {
        const float* row[LANES];
        for (int lane = 0; lane < LANES; ++lane) row[lane] = vectors[first + lane];
        const Size panel = first / PANEL * PANEL, wide = std::min<Size>(PANEL, count - panel);
        float* result = columns + panel * dim + (first - panel);
        for (Size d = 0; d < dim; ++d, result += wide)
            for (int lane = 0; lane < LANES; ++lane) result[lane] = row[lane][d];
        for (int lane = 0; lane < LANES; ++lane) length[first + lane] = std::sqrt(dot(row[lane], row[lane], dim));
    }
}

// The lower triangles of the context's Gram matrices, all but the diagonal doubled: of an item [part, height], from
// `triangle` [other] on in gram, with zeros beyond
extern "C" void saccade_triangles(
    const float* values, const Size* place, const Size* start, float* gram, const Size* triangle, Size others, Size dim) {
    const Vectors vectors{values, place, dim};
    const Size whole = dim / LANES * LANES;
    const int rest = int(dim - whole);
    std::vector<const float*> rows;
    for (Size other = 0; other < others; ++other) {
        const Size parts = start[other + 1] - start[other], height = up(parts, ROWS);
        float* result = gram + triangle[other];
        std::fill_n(result, parts * height, 0.0f);
        rows.assign(up(parts, 4), vectors.nothing.data());
        for (Size part = 0; part < parts; ++part) rows[part] = vectors[start[other] + part];
        for (Size top = 0; top < parts; top += 4)
            for (Size beside = 0; beside <= top; beside += 4) {
                const float *const *left = &rows[top], *const *right = &rows[beside];
                Vec sum[4][4] = {};
                const auto add = [&](auto take) {
#pragma GCC unroll 4
                    for (int r = 0; r < 4; ++r)
#pragma GCC unroll 4
                        for (int c = 0; c < 4; ++c) sum[r][c] += take(left[r]) * take(right[c]);
                };
                for (Size d = 0; d < whole; d += LANES) add([=](const float* row) { return load(row + d); });
                if (rest) add([=](const float* row) { return load_some(row + whole, rest); });
                for (Size r = top; r < std::min(top + 4, parts); ++r)
                    for (Size c = beside; c < std::min(beside + 4, r + 1); ++c)
                        result[r * height + c] = sum_of(sum[r - top][c - beside]) * (r == c ? 1.0f : 2.0f);
            }
    }
}
