// All looks of some queries at one context item after the other: see models/imram.py and nn/memory.py for the equations.
//
// A query that remembers is another one for every context item. Here it never leaves the caches: some queries, of whole
// items, look, take what they found into memory a few numbers at a time, and are compared with the context at once.

#include "scores.h"

constexpr int HALF = PANEL / 2;  // of a panel: so many numbers of the gate, then the candidate's for the same places

// Of ROWS vectors, one step of all after the other: each step of one would wait for the step before it.
#define EACH _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; ++r)
typedef Vec Several[ROWS];

// x -> 1 / (1 + 2^x), to all digits of a float or to four of them
template <bool ALL>
static inline void logistic(Several& x) {
#if defined(__AVX512DQ__)
    Several rest, sum;
    if (ALL) EACH x[r] = (Vec)_mm512_min_ps((__m512)x[r], _mm512_set1_ps(100.0f));  // Newton's step knows no infinity
    EACH rest[r] = (Vec)_mm512_reduce_ps((__m512)x[r], _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // 0 … 1
    if (ALL) {
        EACH sum[r] = rest[r] * 1.87931865e-3f + 8.99099510e-3f;
        EACH sum[r] = sum[r] * rest[r] + 5.58186760e-2f;
        EACH sum[r] = sum[r] * rest[r] + 2.40159272e-1f;
        EACH sum[r] = sum[r] * rest[r] + 6.93151739e-1f;
    } else {
        EACH sum[r] = rest[r] * 1.35557472e-2f + 5.20323690e-2f;
        EACH sum[r] = sum[r] * rest[r] + 2.41379763e-1f;
        EACH sum[r] = sum[r] * rest[r] + 6.93032121e-1f;
    }
    EACH sum[r] = sum[r] * rest[r] + 1.0f;
    EACH sum[r] = 1.0f + (Vec)_mm512_scalef_ps((__m512)sum[r], (__m512)x[r]);  // times 2 to the power of x, rounded down
    EACH x[r] = ALL ? reciprocal(sum[r]) : (Vec)_mm512_rcp14_ps((__m512)sum[r]);
#else
    EACH x[r] = reciprocal(1.0f + exponential(0.69314718f * at_least(-at_least(-x[r], -100.0f), -100.0f)));
#endif
}

// σ(gate) query + (1 - σ(gate)) tanh(candidate) = u + g (q - u), with g = 1 / (1 + e^-gate), u = 1 - 2 / (1 + e^2candidate);
// given are those exponents, of two
template <bool ALL>
static inline void blend(Several& gate, Several& candidate, Several& query) {
    logistic<ALL>(gate);
    logistic<ALL>(candidate);
    EACH candidate[r] = 1.0f - 2.0f * candidate[r];
    EACH query[r] = candidate[r] + gate[r] * (query[r] - candidate[r]);
}

struct Looks {
    Form form;
    Size rows, dim, items, parts, width;  // rows: a multiple of ROWS; width: parts and padding, a multiple of LANES
    const int32_t* start;                 // [item + 1]: the first row of each item
    const float* length;                  // [row]: of the queries at first
    bool mean;
    Array<float> first = Array<float>(rows * width), scores = first, weights = first, heard = first;
    Array<float> scales = Array<float>(width), there = scales;

    // The weights of a look, from `now`, and each item's cosines of what it found with the queries at first.
    void look(const float* now, const float* gram, float* table) {
        for (Size item = 0; item < items; ++item) weigh(now, start[item], start[item + 1]);
        std::fill(heard.begin(), heard.end(), 0.0f);
        for (Size row = 0; row < rows; row += ROWS)
            add_rows_of(&weights[row * width], width, gram, 0, parts, parts, &heard[row * width], width);
        for (Size item = 0; item < items; ++item) {
            float total = 0.0f;
            for (Size row = start[item]; row < start[item + 1]; ++row) total += cosine(row);
            table[item] += mean ? total / std::max(start[item + 1] - start[item], 1) : total;
        }
    }

    void weigh(const float* now, Size begin, Size end) {
        for (Size place = 0; place < width; place += LANES) {
            Vec sum = broadcast(0.0f);
            for (Size row = begin; row < end; ++row) sum = form.add(sum, load(now + row * width + place));
            store(&scales[place], form.scale(sum));
        }
        for (Size row = begin; row < end; ++row) {
            float* weight = &weights[row * width];
            Vec total = broadcast(0.0f);
            for (Size place = 0; place < width; place += LANES) {
                const Vec score = load(now + row * width + place);
                const Vec value = form.weight(score, load(&scales[place])) * load(&there[place]);
                store(weight + place, value);
                total += value;
            }
            const float share = 1.0f / std::max(sum_of(total), TINY);
            for (Size place = 0; place < width; place += LANES) store(weight + place, load(weight + place) * share);
        }
    }

    float cosine(Size row) const {
        Vec found = broadcast(0.0f), squared = found;
        for (Size place = row * width; place < (row + 1) * width; place += LANES) {
            const Vec weight = load(&weights[place]);
            found += weight * load(&first[place]);
            squared += weight * load(&heard[place]);
        }
        const float size = std::max(std::sqrt(std::max(sum_of(squared), 0.0f)), EPSILON) * length[row];
        return sum_of(found) / std::max(size, EPSILON);
    }

    // What was found comes into memory; the new queries are compared with the context at once, while they are near.
    // `recall(row, panel)`: what the old ones bring into it themselves, W_q q, [ROWS, PANEL]; `add(row, panel, from, out)`:
    // what they found comes on top of it.
    template <class In, class Recall, class Add>
    void remember(
        Scores<In>& compared, const typename In::Fine* query, const typename In::Fine* context, typename In::Fine* updated,
        Recall recall, Add add) {
        compared.begin();
        alignas(LINE) float mixed[ROWS * PANEL];
        for (Size piece = 0; piece < dim / PANEL; ++piece)
            for (Size row = 0; row < rows; row += ROWS) {
                const Size place = (piece * rows + row) * PANEL;
                for (int half = 0; half < 2; ++half) {
                    const Size panel = 2 * piece + half;
                    add(row, panel, recall(row, panel), mixed);
                    for (int lane = 0; lane < HALF; lane += LANES) {
                        const Size here = place + half * HALF + lane;
                        Several gate, candidate, value;
                        EACH gate[r] = load(mixed + r * PANEL + lane);
                        EACH candidate[r] = load(mixed + r * PANEL + HALF + lane);
                        EACH value[r] = compared.get(query + here + r * PANEL, row + r);
                        blend<In::ALL>(gate, candidate, value);
                        EACH compared.put(updated + here + r * PANEL, value[r], row + r);
                    }
                }
                compared.add(updated + place, row, piece, context);
            }
    }
};

// Products that differ for every pair In floats or In bytes.
template <class In>
static void walk(
    Looks& looks, const float* query, const float* recalled, const void* every_context, const float* context_scale,
    const float* gram, const void* every_offered, const float* offered_scale, const int32_t* count, const void* every_weight,
    const float* scale, float* table, Size others, Size stride, int steps) {
    typedef typename In::Number Number;
    const Number *offered = static_cast<const Number*>(every_offered), *weight = static_cast<const Number*>(every_weight);
    const Size panels = looks.dim / HALF, deep = up(looks.parts, 4 / sizeof(Number));
    const auto* context = static_cast<const typename In::Fine*>(every_context);
    Scores<In> compared{looks.rows, looks.dim, looks.width};
    compared.take(query, looks.rows, PANEL, looks.rows * PANEL, 1.0f);  // a candidate is at most 1
    typename In::Rows old(looks.rows, looks.dim);
    typename In::Shares shares(looks.rows, looks.width, looks.parts);
    static thread_local Array<typename In::Fine> kept;  // stays: to get memory from the system again and again takes time
    kept.resize(looks.rows * looks.dim);
    alignas(LINE) float recalled_later[ROWS * PANEL];
    const auto at_first = [&](Size row, Size panel) { return recalled + (panel * looks.rows + row) * PANEL; };
    const auto later = [&](Size row, Size panel) {
        old.multiply(row, weight + panel * looks.dim * PANEL, scale + panel * PANEL, recalled_later);
        return recalled_later;
    };
    const auto add = [&](Size row, Size panel, const float* from, float* out) {
        shares.add(row, offered + panel * deep * PANEL, offered_scale + panel * PANEL, from, out);
    };
    for (Size other = 0; other < others; ++other) {
        for (Size part = 0; part < looks.width; ++part) looks.there[part] = part < count[other] ? 1.0f : 0.0f;
        compared.at_first(context, context_scale, looks.first.data(), looks.rows, looks.width);
        looks.look(looks.first.data(), gram, table);
        for (int step = 1; step < steps; ++step) {
            shares.take(looks.weights.data(), looks.rows);
            if (step == 1) {
                looks.remember(compared, compared.taken.data(), context, kept.data(), at_first, add);
            } else {
                old.take(kept.data(), compared.step.data(), looks.rows);
                looks.remember(compared, kept.data(), context, kept.data(), later, add);
            }
            compared.end(context_scale, looks.scores.data(), looks.rows, looks.width);
            looks.look(looks.scores.data(), gram, table);
        }
        context += looks.dim * looks.width, context_scale += looks.width, gram += looks.parts * looks.width, table += stride;
        offered += deep * panels * PANEL, offered_scale += panels * PANEL;
    }
}

// query [piece, row, PANEL], length [row], start [item + 1]; weight: W_q in panels, of a panel HALF numbers of the gate and
// HALF of the candidate, of float or, where there are scales [panel, PANEL], of bytes; recalled [panel, row, PANEL], W_q q;
// context [other, dim, width], of float or fine with scales, and gram [other, part, width] in panels; offered [other, panel,
// part, PANEL], W_a c + b in the order of W_q, as floats or as bytes with scales; count [other] -> table [other, item], to
// which is added, its rows `stride` apart
extern "C" void saccade_looks(
    const float* query, const float* length, const int32_t* start, const float* recalled, const void* context,
    const float* context_scale, const float* gram, const void* offered, const float* offered_scale, const int32_t* count,
    const void* weight, const float* scale, float* table, Size others, Size parts, Size width, Size rows, Size dim,
    Size items, Size stride, int steps, int mean, int norm_kind, float slope, float sharpness) {
    Looks looks{Form{norm_kind, slope, sharpness}, rows, dim, items, parts, width, start, length, mean != 0};
#if SACCADE_BYTES
    const auto go = scale ? walk<InBytes> : walk<InFloat>;
#else
    const auto go = walk<InFloat>;
#endif
    go(looks, query, recalled, context, context_scale, gram, offered, offered_scale, count, weight, scale, table, others,
       stride, steps);
}
