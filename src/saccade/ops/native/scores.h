// Rows compared with all vectors of a context item: sums of products, added up as the numbers of the rows come, PANEL of
// each at a time. The context is in panels, [dim, width].

#pragma once

#include "products.h"

template <class In>
struct Scores {
    typedef typename In::Fine Fine;
    Size rows, dim, width;
    Array<Fine> taken = Array<Fine>(rows * dim);  // [piece, row, PANEL]
    Array<typename In::Sum> sums = Array<typename In::Sum>(rows * width);
    Array<float> step = Array<float>(rows), steps = step;  // of a row's numbers, and so many are one; unused in floats

    // `count` rows, `down` numbers apart, pieces of PANEL numbers `along` apart. What they become later has no number
    // larger than `most`, or the row's largest now.
    void take(const float* source, Size count, Size down, Size along, float most) {
        for (Size row = 0; row < count; ++row, source += down) {
            const auto walk = [&](auto use) {
                for (Size piece = 0; piece < dim / PANEL; ++piece)
                    for (int lane = 0; lane < PANEL; lane += LANES)
                        use((piece * rows + row) * PANEL + lane, load(source + piece * along + lane));
            };
            Vec largest = broadcast(most);
            walk([&](Size, Vec value) { largest = larger(largest, larger(value, -value)); });
            step[row] = largest_of(largest) / In::grid(dim);
            steps[row] = 1.0f / step[row];
            walk([&](Size place, Vec value) { put(&taken[place], value, row); });
        }
    }

    // Of the rows as they were taken, with a context -> result [count, width], rows `down` apart
    void at_first(const Fine* context, const float* scale, float* result, Size count, Size down) {
        begin();
        for (Size piece = 0; piece < dim / PANEL; ++piece)
            for (Size row = 0; row < rows; row += ROWS) add(&taken[(piece * rows + row) * PANEL], row, piece, context);
        end(scale, result, count, down);
    }

    // Of rows that come in parts, each a tile [ROWS, PANEL]
    void begin() { std::fill(sums.begin(), sums.end(), 0); }

    void put(Fine* place, Vec value, Size row) const { In::put(place, value, steps[row]); }

    Vec get(const Fine* place, Size row) const { return In::get(place, step[row]); }

    void add(const Fine* tile, Size row, Size piece, const Fine* context) {
        add_rows_of(tile, PANEL, context, piece * PANEL, PANEL, dim, &sums[row * width], width);
    }

    void end(const float* scale, float* result, Size count, Size down) const {
        for (Size row = 0; row < count; ++row)
            for (Size place = 0; place < width; place += LANES)
                store(result + row * down + place, In::score(&sums[row * width + place], step[row], scale + place));
    }
};
