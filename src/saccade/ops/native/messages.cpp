// What fragments become when they hear of one other item after the other: see models/camp.py for the equations; comments
// use its letters for regions V that hear of words T. Some fragments, of whole items, stay in the caches while they look,
// take in what they found as far as a gate lets it, and are pooled.

#include "scores.h"

static inline Vec exponential_below(Vec x) { return exponential(at_least(x, -80.0f)); }  // for x <= 0

// scores [width], of which `there` says which count -> shares of one, the others 0
static inline void softmax(float* scores, const float* there, Size width, float scale) {
    constexpr float NONE = -1e30f;
    Vec most = broadcast(NONE);
    for (Size place = 0; place < width; place += LANES)
        most = larger(most, load(there + place) > 0.0f ? load(scores + place) * scale : broadcast(NONE));
    const float largest = largest_of(most);
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

struct Messages {
    Size rows, dim, items, parts, width;  // rows: a multiple of ROWS; width: parts and padding, a multiple of LANES
    const int32_t* start;                 // [item + 1]: the first row of each item
    bool again, gated;
    float scale;  // of attention's scores
    Array<float> both = Array<float>(2 * rows * width);  // [row, 2 * width]: scores, then V Tᵀ
    Array<float> looked = Array<float>((rows + ROWS) * width), heard = looked, found = looked;
    Array<float> gate = Array<float>(rows + ROWS), factor = gate;
    Array<float> there = Array<float>(width), beside, turned, between_rows;

    void times(const float* left, const float* right, float* result) const {
        std::fill(result, result + rows * width, 0.0f);
        for (Size row = 0; row < rows; row += ROWS)
            add_rows_of(left + row * width, width, right, 0, parts, parts, result + row * width, width);
    }

    // P, R, and how far a message comes in, from `both`: `found` has shares of one, `factor` what they are multiplied by
    void look(const float* between, const float* gram) {
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
            add_rows_of(&heard[(begin + row) * width], width, turned.data(), 0, parts, parts, &between_rows[row * wide],
                        wide);
        for (Size row = 0; row < count; ++row) softmax(&between_rows[row * wide], beside.data(), wide, scale);
        for (Size row = 0; row < tall; row += ROWS) {
            float* result = &found[(begin + row) * width];
            std::fill_n(result, ROWS * width, 0.0f);
            add_rows_of(&between_rows[row * wide], wide, &looked[begin * width], 0, count, count, result, width);
        }
    }
};

// What becomes of the fragments, once they have looked. L₁ v' is the product that differs for every pair.
template <class In>
struct Hearing {
    typedef typename In::Number Number;
    Messages& messages;
    const Scores<In>& compared;  // has v
    const float* own;            // F_own v, [panel, row, PANEL]
    const Number* weight;  // L₁ in panels
    const float *scale, *hidden_bias, *head_weight, *bias;
    Size heads, rows = messages.rows, dim = messages.dim;
    typename In::Rows old{rows, dim};
    typename In::Shares found{rows, messages.width, messages.parts};
    Array<float>& become;  // [panel, row, PANEL]: v'
    Array<float> logits = Array<float>(rows * heads * LANES), share = Array<float>(rows), score = Array<float>(rows + LANES);
    Array<float> nothing = Array<float>(ROWS * PANEL);

    // v' = ReLU(g F_own v + g r (F_sent T)) + v
    void take_in(const Number* sent, const float* sent_scale, Size deep) {
        alignas(LINE) float message[ROWS * PANEL];
        found.take(messages.found.data(), rows);
        for (Size panel = 0; panel < dim / PANEL; ++panel)
            for (Size row = 0; row < rows; row += ROWS) {
                found.add(row, sent + panel * deep * PANEL, sent_scale + panel * PANEL, nothing.data(), message);
                for (int r = 0; r < ROWS; ++r)
                    for (int lane = 0; lane < PANEL; lane += LANES) {
                        const Size place = (panel * rows + row + r) * PANEL + lane;
                        Vec value = load(message + r * PANEL + lane) * messages.factor[row + r] +
                                    load(own + place) * messages.gate[row + r];
                        if (bias) value += load(bias + panel * PANEL + lane);
                        store(&become[place], at_least(value, 0.0f) + compared.get(&compared.taken[place], row + r));
                    }
            }
    }

    // L₂ ReLU(L₁ v' + b), for every head LANES numbers that are still to be added up
    void weigh() {
        alignas(LINE) float product[ROWS * PANEL];
        old.take(become.data(), rows);
        std::fill(logits.begin(), logits.end(), 0.0f);
        for (Size panel = 0; panel < dim / PANEL; ++panel)
            for (Size row = 0; row < rows; row += ROWS) {
                old.multiply(row, weight + panel * dim * PANEL, scale + panel * PANEL, product);
                for (int r = 0; r < ROWS; ++r) {
                    const float *given = product + r * PANEL, *more = hidden_bias + panel * PANEL;
                    Vec hidden[COLUMNS];
                    for (int c = 0; c < COLUMNS; ++c)
                        hidden[c] = at_least(load(given + c * LANES) + load(more + c * LANES), 0.0f);
                    for (Size head = 0; head < heads; ++head) {
                        const float* towards = head_weight + head * dim + panel * PANEL;
                        float* place = &logits[((row + r) * heads + head) * LANES];
                        Vec sum = load(place);
                        for (int c = 0; c < COLUMNS; ++c) sum += hidden[c] * load(towards + c * LANES);
                        store(place, sum);
                    }
                }
            }
    }

    // ω: the softmax of each head over the fragments of an item, then the mean of the heads
    void share_out(Size begin, Size end) {
        std::fill(&share[begin], &share[begin] + (end - begin), 0.0f);
        for (Size head = 0; head < heads; ++head) {
            float largest = -1e30f, total = 0.0f;
            for (Size row = begin; row < end; ++row) {
                score[row] = sum_of(load(&logits[(row * heads + head) * LANES]));
                largest = std::max(largest, score[row]);
            }
            for (Size row = begin; row < end; row += LANES)  // and some beyond the end, which come to nothing
                store(&score[row], exponential_below(load(&score[row]) - largest));
            for (Size row = begin; row < end; ++row) total += score[row];
            for (Size row = begin; row < end; ++row) share[row] += score[row] / (total * float(heads));
        }
    }

    // p = Σ ω v', of length one in the full model
    void pool(Size begin, Size end, float* pooled) const {
        Vec squared = broadcast(0.0f);
        for (Size panel = 0; panel < dim / PANEL; ++panel) {
            Vec sum[COLUMNS] = {};
            for (Size row = begin; row < end; ++row) {
                const float* value = &become[(panel * rows + row) * PANEL];
                for (int c = 0; c < COLUMNS; ++c) sum[c] += share[row] * load(value + c * LANES);
            }
            for (int c = 0; c < COLUMNS; ++c) {
                store(pooled + panel * PANEL + c * LANES, sum[c]);
                squared += sum[c] * sum[c];
            }
        }
        if (!messages.again) return;
        const float shrink = 1.0f / (std::sqrt(sum_of(squared)) + EPSILON);
        for (Size place = 0; place < dim; place += LANES) store(pooled + place, load(pooled + place) * shrink);
    }
};

template <class In>
static void hear(
    Messages& messages, const float* vectors, const float* own, const void* every_asked, const float* asked_scale,
    const float* between, const float* gram, const void* sent, const float* sent_scale, const int32_t* count,
    const void* weight, const float* scale, const float* hidden_bias, const float* head_weight, const float* bias,
    float* pooled, const Size* where, Size others, Size stride, Size down, Size heads) {
    typedef typename In::Number Number;
    static thread_local Array<float> become;  // stays: to get memory from the system again and again takes time
    become.resize(messages.rows * messages.dim);
    const Number *matrix = static_cast<const Number*>(weight), *offer = static_cast<const Number*>(sent);
    const auto* asked = static_cast<const typename In::Fine*>(every_asked);
    Scores<In> compared{messages.rows, messages.dim, 2 * messages.width};
    compared.take(vectors, messages.rows, PANEL, messages.rows * PANEL, TINY);
    Hearing<In> hearing{messages, compared, own, matrix, scale, hidden_bias, head_weight, bias, heads, messages.rows,
                        messages.dim, typename In::Rows{messages.rows, messages.dim},
                        typename In::Shares{messages.rows, messages.width, messages.parts}, become};
    const Size deep = up(messages.parts, 4 / sizeof(Number)), parts = messages.parts, width = messages.width;
    for (Size other = 0; other < others; ++other) {
        for (Size part = 0; part < width; ++part) messages.there[part] = part < count[other] ? 1.0f : 0.0f;
        compared.at_first(asked, asked_scale, messages.both.data(), messages.rows, 2 * width);
        messages.look(between, gram);
        hearing.take_in(offer, sent_scale, deep);
        hearing.weigh();
        for (Size item = 0; item < messages.items; ++item) {
            const Size begin = messages.start[item], end = messages.start[item + 1];
            hearing.share_out(begin, end);
            hearing.pool(begin, end, pooled + where[other] * stride + item * down);
        }
        asked += messages.dim * 2 * width, asked_scale += 2 * width, between += parts * width, gram += parts * width;
        offer += deep * messages.dim, sent_scale += messages.dim;
    }
}

// vectors, own (F_own v) [panel, row, PANEL], start [item + 1]; of every other item, in panels, asked [other, dim, 2 * width]
// (what vectors are multiplied with for scores, and T) as floats or fine with scales, between (A_q T (A_k T)ᵀ) and gram
// [other, part, width], sent (F_sent T) [other, panel, part, PANEL] as floats or as bytes with scales, count [other];
// weight: L₁ in panels, of float or, where there are scales, of bytes; hidden_bias: its b; head_weight: L₂ [head, dim];
// bias [dim], if any -> pooled [place, item, dim], `stride` and `down` apart, of an other item at the place `where` says;
// if fragments look again, of length one
extern "C" void saccade_hear(
    const float* vectors, const float* own, const int32_t* start, const void* asked, const float* asked_scale,
    const float* between, const float* gram, const void* sent, const float* sent_scale, const int32_t* count,
    const void* weight, const float* scale, const float* hidden_bias, const float* head_weight, const float* bias,
    float* pooled, const Size* where, Size others, Size parts, Size width, Size rows, Size dim, Size items, Size stride,
    Size down, Size heads, int again, int gated, float attention_scale) {
    Messages messages{rows, dim, items, parts, width, start, again != 0, gated != 0, attention_scale};
#if SACCADE_BYTES
    const auto go = scale ? hear<InBytes> : hear<InFloat>;
#else
    const auto go = hear<InFloat>;
#endif
    go(messages, vectors, own, asked, asked_scale, between, gram, sent, sent_scale, count, weight, scale,
       hidden_bias, head_weight, bias, pooled, where, others, stride, down, heads);
}
