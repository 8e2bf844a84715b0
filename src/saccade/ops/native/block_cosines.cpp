// GSMN's node matching, both ways, block by block: see models/gsmn.py for the equations.

#include "attention.h"

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

// One picture with as many sentences as there are lanes, both ways, block by block.
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
extern "C" void saccade_block_cosines(
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
