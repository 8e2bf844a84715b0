// What follows the large product of all-pairs attention, in one pass: see ops/pairwise.py for the equations.
//
// A lane of a vector is one pair (an item that asks and an item that is asked), so that no sum runs across lanes. Scores
// of some pairs are read into the first cache, become weights there and are summed up; nothing but results is written.
// Lanes beyond the last item compute rubbish that nobody stores: arrays of scores have LANES spare numbers at their end.

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

extern "C" int saccade_lanes() { return LANES; }
extern "C" int saccade_columns() { return COLUMNS; }
extern "C" int saccade_rows() { return ROWS; }
extern "C" void saccade_exponential(const float* values, float* results, Size count) {
    for (Size place = 0; place + LANES <= count; place += LANES) store(results + place, exponential(load(values + place)));
}

// One context item and WIDE queries of LANES items, from `scores` (of the first part and query, `items` and `stride`
// apart) and the scales of the parts -> match [query, item], `some` of the lanes
template <int WIDE>
static inline void attend(
    const Form& form, const float* scores, const float* scales, const float* gram, const float* there, const float* norm,
    float* match, float* weights, Size parts, Size items, Size stride, int some) {
    Vec found[WIDE] = {}, total[WIDE] = {}, squared[COLUMNS];
    for (Size part = 0; part < parts; ++part) {
        const Vec scale = load(scales + part * LANES);
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; ++c) {
            const Vec score = load(scores + part * stride + c * items);
            const Vec weight = form.weight(score, scale) * there[part];
            found[c] += weight * score;
            total[c] += weight;
            store(weights + (part * COLUMNS + c) * LANES, weight);
        }
    }
    quadratic<WIDE>(gram, weights, parts, up(parts, ROWS), squared);
    for (int c = 0; c < WIDE; ++c)
        store_some(match + c * items, cosine(found[c], total[c], squared[c], load_some(norm + c * items, some)), some);
}

// scores [other, part, stride], of which the first query * item count, and LANES more, gram [other, part, height],
// there [other, part] (1 or 0), norm [query, item] -> match [other, query, item]
extern "C" void saccade_attend(
    const float* scores, const float* gram, const float* there, const float* norm, float* match,
    Size others, Size parts, Size queries, Size items, Size stride, int norm_kind, float slope, float sharpness) {
    const Form form{norm_kind, slope, sharpness};
    const Size height = up(parts, ROWS);
    Array<float> scales(parts * LANES), weights(height * COLUMNS * LANES, 0.0f);
    for (Size other = 0; other < others; ++other) {
        for (Size item = 0; item < items; item += LANES) {
            const int some = int(items - item < LANES ? items - item : LANES);
            for (Size part = 0; part < parts; ++part) {
                Vec sum = broadcast(0.0f);
                const float* score = scores + part * stride + item;
                for (Size query = 0; query < queries; ++query) sum = form.add(sum, load(score + query * items));
                store(&scales[part * LANES], form.scale(sum));
            }
            for (Size query = 0; query < queries; query += COLUMNS) {
                const Size place = query * items + item;
                const auto go = [&](auto loop) {
                    loop(form, scores + place, scales.data(), gram, there, norm + place, match + place, weights.data(),
                         parts, items, stride, some);
                };
                switch (queries - query) {
                    case 1: go(attend<1>); break;
                    case 2: go(attend<2>); break;
                    case 3: go(attend<3>); break;
                    default: go(attend<COLUMNS>);
                }
            }
        }
        scores += parts * stride, gram += parts * height, there += parts, match += queries * items;
    }
}

// Scores of ROWS vectors with COLUMNS others of every lane, over `width` numbers.
// context: ROWS places; queries [width, COLUMNS, lane] -> scores: row r at r * stride, [COLUMNS, lane]
static inline void product(
    const float* const (&context)[ROWS], const float* queries, Size width, float* scores, Size stride) {
    Vec sum[ROWS][COLUMNS] = {};
    for (Size d = 0; d < width; ++d, queries += COLUMNS * LANES)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int c = 0; c < COLUMNS; ++c) sum[r][c] += context[r][d] * load(queries + c * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; ++c) store(scores + r * stride + c * LANES, sum[r][c]);
}

// The same quadratic form where every lane has a triangle of its own, four rows of weights at once:
// gram [word, word, lane], weights [word, lane]
static inline void own_quadratic(const float* gram, const float* const (&weights)[4], Size words, Vec (&squared)[4]) {
    for (int c = 0; c < 4; ++c) squared[c] = broadcast(0.0f);
    for (Size word = 0; word < words; word += 2) {
        const bool two = word + 1 < words;
        const float *one = gram + word * words * LANES, *next = two ? one + words * LANES : one;
        Vec sum[2][4] = {};
        for (Size other = 0; other <= word; ++other) {
            const Vec first = load(one + other * LANES), second = load(next + other * LANES);
#pragma GCC unroll 8
            for (int c = 0; c < 4; ++c) {
                const Vec weight = load(weights[c] + other * LANES);
                sum[0][c] += first * weight;
                sum[1][c] += second * weight;
            }
        }
        for (int c = 0; c < 4; ++c) {
            squared[c] += sum[0][c] * load(weights[c] + word * LANES);
            if (two) {
                const Vec weight = load(weights[c] + (word + 1) * LANES);
                squared[c] += (sum[1][c] + load(next + (word + 1) * LANES) * weight) * weight;
            }
        }
    }
}

// One picture with as many sentences as there are lanes, both ways, block by block (nn/block_match.py).
struct Blocks {
    Form form;
    Size parts, words, blocks, width;
    Size height = up(parts, ROWS), columns = up(words, COLUMNS);
    // scores [block, height, columns, lane], their sum over blocks, weights of either way [height, columns, lane]
    Array<float> scores = Array<float>(blocks * height * columns * LANES);
    Array<float> whole = Array<float>(height * columns * LANES);
    Array<float> of_words = Array<float>(columns / COLUMNS * height * COLUMNS * LANES, 0.0f);
    Array<float> of_regions = whole;
    Array<float> word_total = Array<float>(columns * LANES), region_total = Array<float>(height * LANES);
    Array<float> found = Array<float>(columns * LANES);

    // regions [part, block * width]; words [block, columns / COLUMNS, width, COLUMNS, lane]
    void multiply(const float* regions, const float* packed) {
        const Size row = columns * LANES, stride = blocks * width;
        for (Size block = 0; block < blocks; ++block)
            for (Size column = 0; column < columns; column += COLUMNS)
                for (Size top = 0; top < height; top += ROWS) {
                    const float* rows[ROWS];
                    for (int r = 0; r < ROWS; ++r)
                        rows[r] = regions + (top + r < parts ? top + r : parts - 1) * stride + block * width;
                    product(rows, packed + (block * columns + column) * width * LANES, width,
                            &scores[((block * height + top) * columns + column) * LANES], row);
                }
        std::memcpy(whole.data(), scores.data(), sizeof(float) * height * row);
        for (Size block = 1; block < blocks; ++block)
            for (Size place = 0; place < height * row; place += LANES)
                store(&whole[place], load(&whole[place]) + load(&scores[block * height * row + place]));
    }

    // there [part], and [word, lane]
    void weigh(const float* part_there, const float* word_there) {
        Array<float> sums(words * LANES, 0.0f);
        std::fill(word_total.begin(), word_total.end(), 0.0f);
        for (Size part = 0; part < parts; ++part) {
            Vec sum = broadcast(0.0f);
            for (Size word = 0; word < words; ++word) {
                const Vec score = load(&whole[(part * columns + word) * LANES]);
                sum = form.add(sum, score);
                store(&sums[word * LANES], form.add(load(&sums[word * LANES]), score));
            }
            const Vec scale = form.scale(sum);
            for (Size word = 0; word < words; ++word) {
                const Vec weight = form.weight(load(&whole[(part * columns + word) * LANES]), scale) * part_there[part];
                float* total = &word_total[word * LANES];
                store(total, load(total) + weight);
                store(&of_words[((word / COLUMNS * height + part) * COLUMNS + word % COLUMNS) * LANES], weight);
            }
        }
        for (Size word = 0; word < words; ++word) {
            const Vec scale = form.scale(load(&sums[word * LANES]));
            store(&sums[word * LANES], scale);
        }
        for (Size part = 0; part < parts; ++part) {
            Vec total = broadcast(0.0f);
            for (Size word = 0; word < words; ++word) {
                const Size place = (part * columns + word) * LANES;
                const Vec weight = form.weight(load(&whole[place]), load(&sums[word * LANES])) * load(word_there + word * LANES);
                total += weight;
                store(&of_regions[place], weight);
            }
            store(&region_total[part * LANES], total);
        }
    }

    // norms [word, block, lane] and [part, block]; results [word, block, lane] and [part, block, lane]
    void compare(Size block, const float* region_gram, const float* word_gram, const float* region_norm,
                 const float* word_norm, float* word_match, float* region_match) {
        const float* score = &scores[block * height * columns * LANES];
        std::fill(found.begin(), found.end(), 0.0f);
        for (Size top = 0; top < parts; top += 4) {
            const float* weights[4];
            Vec seen[4] = {}, squared[4];
            for (int r = 0; r < 4; ++r) {
                const Size part = top + r < parts ? top + r : parts - 1;
                weights[r] = &of_regions[part * columns * LANES];
                if (top + r >= parts) continue;
                for (Size word = 0; word < words; ++word) {
                    const Vec here = load(score + (part * columns + word) * LANES);
                    const Size place = ((word / COLUMNS * height + part) * COLUMNS + word % COLUMNS) * LANES;
                    seen[r] += load(weights[r] + word * LANES) * here;
                    store(&found[word * LANES], load(&found[word * LANES]) + load(&of_words[place]) * here);
                }
            }
            own_quadratic(word_gram, weights, words, squared);
            for (int r = 0; r < 4 && top + r < parts; ++r) {
                const Size part = top + r;
                const Vec norm = broadcast(region_norm[part * blocks + block]);
                store(region_match + (part * blocks + block) * LANES,
                      cosine(seen[r], load(&region_total[part * LANES]), squared[r], norm));
            }
        }
        for (Size word = 0; word < words; word += COLUMNS) {
            Vec squared[COLUMNS];
            quadratic<COLUMNS>(region_gram, &of_words[word / COLUMNS * height * COLUMNS * LANES], parts, height, squared);
            for (int c = 0; c < COLUMNS && word + c < words; ++c) {
                const Size place = ((word + c) * blocks + block) * LANES;
                store(word_match + place, cosine(load(&found[(word + c) * LANES]), load(&word_total[(word + c) * LANES]),
                                                 squared[c], load(word_norm + place)));
            }
        }
    }
};

// Pictures with as many sentences as there are lanes, see Blocks. Triangles: [image, block, part, height] and
// [block, word, word, lane]; results [image, word, block, lane] and [image, part, block, lane].
extern "C" void saccade_block_match(
    const float* regions, const float* region_gram, const float* region_norm, const float* region_there,
    const float* words, const float* word_gram, const float* word_norm, const float* word_there,
    float* word_match, float* region_match,
    Size images, Size parts, Size count, Size blocks, Size width,
    int norm_kind, float slope, float sharpness) {
    Blocks work{Form{norm_kind, slope, sharpness}, parts, count, blocks, width};
    for (Size image = 0; image < images; ++image) {
        work.multiply(regions + image * parts * blocks * width, words);
        work.weigh(region_there + image * parts, word_there);
        for (Size block = 0; block < blocks; ++block)
            work.compare(block, region_gram + (image * blocks + block) * parts * work.height,
                         word_gram + block * count * count * LANES, region_norm + image * parts * blocks, word_norm,
                         word_match + image * count * blocks * LANES, region_match + image * parts * blocks * LANES);
    }
}
