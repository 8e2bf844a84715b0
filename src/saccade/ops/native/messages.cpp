// What fragments become when they hear of one other item after the other: see models/camp.py for the equations; comments
// use its letters for regions V that hear of words T. Some fragments, of whole items, stay in the caches while they look,
// take in what they found as far as a gate lets it, and are pooled.

#include "products.h"

static inline Vec exponential_below(Vec x) { return exponential(at_least(x, -80.0f)); }  // for x <= 0

// scores [width], of which `there` says which count -> shares of one, the others 0
static inline void softmax(float* scores, const float* there, Size width, float scale) {
    constexpr float NONE = -1e30f;
    float largest = NONE;
    for (Size place = 0; place < width; ++place)
        if (there[place] > 0.0f) largest = std::max(largest, scores[place] * scale);
    if (largest == NONE) return std::fill(scores, scores + width, 0.0f);
    Vec total = broadcast(0.0f);
    for (Size place = 0; place < width; place += LANES) {
        const Vec value = exponential_below(load(scores + place) * scale - largest) * load(there + place);
        store(scores + place, value);
        total += value;
    }
    const float share = 1.0f / std::max(sum_of(total), TINY);
    for (Size place = 0; place < width; place += LANES) store(scores + place, load(scores + place) * share);
}

static inline float dot(const float* one, const float* other, Size width) {
    Vec sum = broadcast(0.0f);
    for (Size place = 0; place < width; place += LANES) sum += load(one + place) * load(other + place);
    return sum_of(sum);
}

struct Fragments {  // all [panel, row, PANEL]
    const float *vectors, *own, *hidden;
};

struct Messages {
    Size rows, dim, items, parts, width;  // rows: a multiple of ROWS; width: parts and padding, a multiple of LANES
    const int32_t* start;                 // [item + 1]: the first row of each item
    bool again, gated;
    float scale;                                                                          // of attention's scores
    Array<float> both = Array<float>(2 * rows * width);  // [row, 2 * width]: scores, then V Tᵀ
    Array<float> looked = Array<float>((rows + ROWS) * width), heard = looked, found = looked;
    Array<float> gate = Array<float>(rows + ROWS), factor = gate;
    Array<float> there = Array<float>(width), beside, turned, between_rows;

    // Vectors with both of what the other item has in panels side by side, [dim, 2 * width]
    void compare(const float* left, const float* right) {
        std::fill(both.begin(), both.end(), 0.0f);
        for (Size place = 0; place < dim; place += PANEL)
            for (Size row = 0; row < rows; row += ROWS)
                add_rows_of(left + place * rows + row * PANEL, PANEL, right, place, PANEL, dim, &both[row * 2 * width], 2 * width);
    }

    void times(const float* left, const float* right, float* result) const {
        std::fill(result, result + rows * width, 0.0f);
        for (Size row = 0; row < rows; row += ROWS)
            add_rows_of(left + row * width, width, right, 0, parts, parts, result + row * width, width);
    }

    // P, R, and how far a message comes in: `found` has shares of one, `factor` what they are multiplied by
    void look(const float* vectors, const float* asked, const float* between, const float* gram) {
        compare(vectors, asked);
        for (Size row = 0; row < start[items]; ++row) {
            std::copy_n(&both[row * 2 * width], width, &looked[row * width]);
            softmax(&looked[row * width], there.data(), width, scale);
        }
        if (again) {
            times(looked.data(), between, heard.data());
            for (Size item = 0; item < items; ++item) look_again(start[item], start[item + 1]);
        } else {
            std::copy(looked.begin(), looked.end(), found.begin());
        }
        times(found.data(), gram, heard.data());
        for (Size row = 0; row < start[items]; ++row) {
            const float* share = &found[row * width];
            const float squared = dot(share, &heard[row * width], width);
            const float length = std::max(std::sqrt(std::max(squared, 0.0f)), EPSILON) + EPSILON;
            const float size = again ? 1.0f / length : 1.0f;  // v^ / |v^|
            const float agreement = dot(share, &both[row * 2 * width + width], width) * size;
            gate[row] = gated ? 1.0f / (1.0f + std::exp(-agreement)) : 1.0f;
            factor[row] = gate[row] * size;
        }
    }

    // R = softmax(P B Pᵀ) P among the fragments of one item; `heard` has P B
    void look_again(Size begin, Size end) {
        const Size count = end - begin, wide = up(count, LANES), tall = up(count, ROWS);
        beside.assign(wide, 0.0f), turned.assign(parts * wide, 0.0f), between_rows.assign(tall * wide, 0.0f);
        std::fill(beside.begin(), beside.begin() + count, 1.0f);
        for (Size row = 0; row < count; ++row)
            for (Size part = 0; part < parts; ++part) turned[part * wide + row] = looked[(begin + row) * width + part];
        for (Size row = 0; row < tall; row += ROWS)
            add_rows_of(&heard[(begin + row) * width], width, turned.data(), 0, parts, parts, &between_rows[row * wide], wide);
        for (Size row = 0; row < count; ++row) softmax(&between_rows[row * wide], beside.data(), wide, scale);
        for (Size row = 0; row < tall; row += ROWS) {
            std::fill(&found[(begin + row) * width], &found[(begin + row) * width] + ROWS * width, 0.0f);
            add_rows_of(&between_rows[row * wide], wide, &looked[begin * width], 0, count, count, &found[(begin + row) * width], width);
        }
    }
};

template <class In>
static void hear(
    Messages& messages, const Fragments& fragments, const float* asked, const float* between, const float* gram,
    const typename In::Number* sent, const float* sent_scale, const int32_t* count,
    const typename In::Number* weight, const float* scale, const float* head_weight, const float* bias, float* pooled,
    Size others, Size stride, Size heads) {
    const Size rows = messages.rows, dim = messages.dim, width = messages.width, panels = dim / PANEL;
    const Size deep = up(messages.parts, 4 / sizeof(typename In::Number));
    typename In::Rows old(rows, dim);
    typename In::Shares shares(rows, width, messages.parts);
    static thread_local Array<float> taken;  // stays: to get memory from the system again and again takes time
    taken.resize(rows * dim);
    Array<float> logits(rows * heads * LANES), share(rows);
    const Array<float> nothing(ROWS * PANEL, 0.0f);
    alignas(LINE) float tile[ROWS * PANEL];
    for (Size other = 0; other < others; ++other) {
        for (Size part = 0; part < width; ++part) messages.there[part] = part < count[other] ? 1.0f : 0.0f;
        messages.look(fragments.vectors, asked, between, gram);
        shares.take(messages.found.data(), rows);
        for (Size panel = 0; panel < panels; ++panel)  // v' - v = ReLU(g F_own v + g r (F_sent T))
            for (Size row = 0; row < rows; row += ROWS) {
                shares.add(row, sent + panel * deep * PANEL, sent_scale + panel * PANEL, nothing.data(), tile);
                for (int r = 0; r < ROWS; ++r)
                    for (int lane = 0; lane < PANEL; lane += LANES) {
                        const Size place = (panel * rows + row + r) * PANEL + lane;
                        Vec value = load(tile + r * PANEL + lane) * messages.factor[row + r] +
                                    load(fragments.own + place) * messages.gate[row + r];
                        if (bias) value += load(bias + panel * PANEL + lane);
                        store(&taken[place], at_least(value, 0.0f));
                    }
            }
        old.take(taken.data(), rows, PANEL);
        std::fill(logits.begin(), logits.end(), 0.0f);
        for (Size panel = 0; panel < panels; ++panel)  // L₂ ReLU(L₁ v')
            for (Size row = 0; row < rows; row += ROWS) {
                old.multiply(row, weight + panel * dim * PANEL, scale + panel * PANEL, tile);
                for (int r = 0; r < ROWS; ++r) {
                    const float *value = tile + r * PANEL, *known = fragments.hidden + (panel * rows + row + r) * PANEL;
                    Vec hidden[COLUMNS];
                    for (int c = 0; c < COLUMNS; ++c) hidden[c] = at_least(load(value + c * LANES) + load(known + c * LANES), 0.0f);
                    for (Size head = 0; head < heads; ++head) {
                        float* place = &logits[((row + r) * heads + head) * LANES];
                        Vec sum = load(place);
                        for (int c = 0; c < COLUMNS; ++c) sum += hidden[c] * load(head_weight + head * dim + panel * PANEL + c * LANES);
                        store(place, sum);
                    }
                }
            }
        std::fill(share.begin(), share.end(), 0.0f);
        for (Size item = 0; item < messages.items; ++item)
            for (Size head = 0; head < heads; ++head) {
                float largest = -1e30f, total = 0.0f;
                Array<float>& score = messages.factor;  // of no more use
                for (Size row = messages.start[item]; row < messages.start[item + 1]; ++row) {
                    score[row] = sum_of(load(&logits[(row * heads + head) * LANES]));
                    largest = std::max(largest, score[row]);
                }
                for (Size row = messages.start[item]; row < messages.start[item + 1]; ++row)
                    total += score[row] = std::exp(score[row] - largest);
                for (Size row = messages.start[item]; row < messages.start[item + 1]; ++row)
                    share[row] += score[row] / (total * float(heads));
            }
        for (Size panel = 0; panel < panels; ++panel)  // p = Σ ω v'
            for (Size item = 0; item < messages.items; ++item) {
                Vec sum[COLUMNS] = {};
                for (Size row = messages.start[item]; row < messages.start[item + 1]; ++row) {
                    const Size place = (panel * rows + row) * PANEL;
                    for (int c = 0; c < COLUMNS; ++c)
                        sum[c] += share[row] * (load(&taken[place + c * LANES]) + load(fragments.vectors + place + c * LANES));
                }
                for (int c = 0; c < COLUMNS; ++c) store(pooled + item * dim + panel * PANEL + c * LANES, sum[c]);
            }
        asked += dim * 2 * width, between += messages.parts * width, gram += messages.parts * width;
        sent += deep * panels * PANEL, sent_scale += panels * PANEL, pooled += stride;
    }
}

// vectors, own (F_own v), hidden (L₁ v + b) [panel, row, PANEL], start [item + 1]; of every other item, in panels, asked [other,
// dim, 2 * width] (what vectors are multiplied with for scores, and T), between (A_q T (A_k T)ᵀ) and gram [other, part, width],
// sent (F_sent T) [other, panel, part, PANEL] as floats or as bytes with scales, count [other]; weight: L₁ in
// panels, of float or, where there are scales, of bytes; head_weight: L₂ [head, dim]; bias [dim], if any
// -> pooled [other, item, dim], `stride` apart by other
extern "C" void saccade_hear(
    const float* vectors, const float* own, const float* hidden, const int32_t* start, const float* asked,
    const float* between, const float* gram, const void* sent, const float* sent_scale, const int32_t* count,
    const void* weight, const float* scale, const float* head_weight, const float* bias, float* pooled, Size others, Size parts, Size width, Size rows, Size dim, Size items, Size stride,
    Size heads, int again, int gated, float attention_scale) {
    Messages messages{rows, dim, items, parts, width, start, again != 0, gated != 0, attention_scale};
    const Fragments fragments{vectors, own, hidden};
#if SACCADE_BYTES
    if (scale)
        return hear<InBytes>(messages, fragments, asked, between, gram, static_cast<const int8_t*>(sent), sent_scale,
                             count, static_cast<const int8_t*>(weight), scale, head_weight, bias, pooled, others, stride, heads);
#endif
    hear<InFloat>(messages, fragments, asked, between, gram, static_cast<const float*>(sent), sent_scale, count,
                  static_cast<const float*>(weight), scale, head_weight, bias, pooled, others, stride, heads);
}
