// From a block of scores to similarities, one warp at a time: what follows the matrix product in SCAN's attention.
//
// A warp has one bin of queries (ROWS rows, up to 8 items of unequal length) and goes through some items of the
// context, of up to 8 N_TILES columns. Scores lie in registers as the tensor cores' accumulators do: thread 4g + t of the
// warp has rows g and g + 8 of a tile of 16 × 8 and its columns 2t and 2t + 1. So laid out
// - a tile is the left factor of the next product as it stands: e G needs no exchange between threads;
// - turned by one instruction (movmatrix), it is a right factor: sums over an item's queries are a product with a
//   matrix of zeros and ones (`across`), and its transpose (`back`) hands every row its item's scale;
// - sums over the context are sums of a thread's own numbers, and of four threads at the end.
// A scale is two numbers of 16 bits, the second the rest of the first, in the two halves of that last product.
// The weights are rounded once, for the score and the norm alike: R is the exact cosine of slightly other weights.
//
// Compiled at run time with -D for: M_TILES, N_TILES, HALF (scores are float16, else bfloat16), HALF_WEIGHTS (so are
// weights and Gram matrices), CLIPPED, SUM (1: of absolute values, 2: of squares), POOL (0: logsumexp, 1: mean, 2: max,
// 3: sum), SHIFTED (logsumexp begins at the largest), CHUNK (items of one warp), BLOCKS (that a multiprocessor should
// hold at once: it limits registers).

typedef unsigned int u32;

#define ROWS (16 * M_TILES)
#define K_STEPS ((N_TILES + 1) / 2)
#define SLOTS 8
#define WARPS 4
#define HELD (N_TILES <= 7)  // whether registers hold an item's Gram matrix for all rows
#define BATCH 8  // items of the context whose R wait in shared memory
#define PITCH (ROWS + (36 - ROWS % 32) % 32)  // 4 more than a multiple of 32: the threads that pool read 32 banks
#define LOG2E 1.4426950408889634f

#ifdef __CUDACC__
__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_half(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 turned(u32 x) {  // an 8 × 8 block of 16-bit numbers
  u32 y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
__device__ __forceinline__ float from_thread(float x, int other) { return __shfl_xor_sync(0xffffffffu, x, other); }
__device__ __forceinline__ float power(float x) {  // 2^x
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ u32 packed(float first, float second) {  // as two bfloat16
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
  return y;
}
__device__ __forceinline__ u32 packed_half(float first, float second) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
  return y;
}
__device__ __forceinline__ u32 times(u32 a, u32 b) {
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u));
  return y;
}
__device__ __forceinline__ u32 larger(u32 a, u32 b) {
  u32 y;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ __forceinline__ float of_half(u32 bits) {
  float y;
  asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(bits));
  return y;
}
#endif

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ float low_half(u32 pair) { return of_half(pair & 0xffffu); }
__device__ __forceinline__ float high_half(u32 pair) { return of_half(pair >> 16); }

// Two scores, bent where they are negative: as numbers, and what of them is summed, in one or two pairs of bfloat16.
#if HALF
#define PARTS 2
#define first low_half
#define second high_half
__device__ __forceinline__ float2 clipped(u32 scores, float slope) {
  float2 x = {first(scores), second(scores)};
  return CLIPPED ? float2{fmaxf(x.x, x.x * slope), fmaxf(x.y, x.y * slope)} : x;
}
__device__ __forceinline__ u32 summand(u32 scores, float slope, int part) {
  float2 x = clipped(scores, slope);
  x = SUM == 2 ? float2{x.x * x.x, x.y * x.y} : float2{fabsf(x.x), fabsf(x.y)};
  u32 upper = packed(x.x, x.y);
  return part ? packed(x.x - low(upper), x.y - high(upper)) : upper;
}
#else
#define PARTS 1
#define first low
#define second high
__device__ __forceinline__ u32 bent(u32 scores, float slope) {
  return CLIPPED ? larger(scores, times(scores, packed(slope, slope))) : scores;
}
__device__ __forceinline__ float2 clipped(u32 scores, float slope) {
  u32 x = bent(scores, slope);
  return {low(x), high(x)};
}
__device__ __forceinline__ u32 summand(u32 scores, float slope, int part) {
  u32 x = bent(scores, slope);
  return SUM == 2 ? times(x, x) : x & 0x7fff7fffu;
}
#endif

// Pairs of weights.
#if HALF_WEIGHTS
#define as_weights packed_half
#define first_weight low_half
#define second_weight high_half
#define multiply_weights multiply_half
#else
#define as_weights packed
#define first_weight low
#define second_weight high
#define multiply_weights multiply
#endif

__device__ __forceinline__ u32 ones(bool low_half, bool high_half) {
  return (low_half ? 0x3f80u : 0u) | (high_half ? 0x3f800000u : 0u);
}

// Of the rows of one slot and one item of the context: by four threads, each of which takes every fourth row.
__device__ __forceinline__ float over_four(float x) {
  x += from_thread(x, 1);
  return x + from_thread(x, 2);
}
__device__ __forceinline__ float largest_of_four(float x) {
  x = fmaxf(x, from_thread(x, 1));
  return fmaxf(x, from_thread(x, 2));
}
__device__ __forceinline__ float pool(const float* match, int t, int count, float sharpness) {
  float total = 0.0f, most = -1e30f;
  if (POOL == 2 || SHIFTED)
    for (int row = t; row < count; row += 4) most = fmaxf(most, POOL == 2 ? match[row] : match[row] * sharpness);
  if (POOL == 2 || SHIFTED) most = largest_of_four(most);
  if (POOL == 2) return most;
  for (int row = t; row < count; row += 4)
    total += POOL == 0 ? power((match[row] * sharpness - (SHIFTED ? most : 0.0f)) * LOG2E) : match[row];
  total = over_four(total);
  if (POOL == 0) return ((SHIFTED ? most : 0.0f) + logf(total)) / sharpness;
  return POOL == 1 ? total / count : total;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) attention_epilogue(
    const unsigned short* scores,  // [row, column]: the block's query rows with all columns, and ROWS more of any numbers
    long long score_row,           // numbers from one row to the next, even
    const int* bin_start,          // [bin]: first row, among all query rows
    const int* slot_begin,         // [bin, SLOTS + 1]: where each slot's rows begin, within the bin
    const int* slot_item,          // [bin, SLOTS]: whose rows they are, -1: nobody's
    const float* inverse,          // [row]: 1 / |q|, among all query rows
    int first_bin,
    int last_bin,
    int first_row,                 // of the block
    int last_row,
    const int* start,              // [item]: first column
    const int* length,             // [item]: columns that are its own
    const int* number,             // [item]: its column in `out`
    const uint2* gram,             // [item, tile, step, thread]: right factors
    const float* size,             // [item]: what its vectors were multiplied with for that
    int first_item,                // of this group: items of N_TILES tiles
    int last_item,
    float* out,
    long long out_row,
    long long out_column,
    float sharpness,               // of the weights, in units of log 2
    float slope,
    float pool_sharpness) {
  __shared__ float waiting[WARPS][BATCH][PITCH];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int bin = first_bin + blockIdx.y * WARPS + warp;
  if (bin >= last_bin) return;
  const int begin = first_item + blockIdx.x * CHUNK, end = min(begin + CHUNK, last_item);  // never empty
  const int* bounds = slot_begin + bin * (SLOTS + 1);

  u32 across[M_TILES][2], back[M_TILES][2];
  float unit[M_TILES];  // of row g for even t, of row g + 8 for odd ones
#pragma unroll
  for (int m = 0; m < M_TILES; m++) {
    int own_begin = bounds[g], own_end = bounds[g + 1];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int k = 16 * m + 8 * half + 2 * t, r = 16 * m + 8 * half + g;
      across[m][half] = ones(k >= own_begin && k < own_end, k + 1 >= own_begin && k + 1 < own_end);
      back[m][half] = ones(r >= bounds[2 * t] && r < bounds[2 * t + 1], r >= bounds[2 * t + 1] && r < bounds[2 * t + 2]);
      if (t % 2 == half) unit[m] = inverse[min(bin_start[bin] + r, last_row - 1)];
    }
  }
  // rows past the bin's are read and struck out: by `across` from sums, by `back` from scales, by `bounds` from pools
  const unsigned short* own = scores + (bin_start[bin] - first_row + g) * score_row + 2 * t;

  const int pitch = (int)score_row;
  int next_start = start[begin], next_width = length[begin];
  for (int item = begin; item < end; item++) {
    const unsigned short* column = own + next_start;
    const int width = next_width, next = min(item + 1, end - 1);
    next_start = start[next], next_width = length[next];
    u32 s[M_TILES][N_TILES][2];
    const int c = 8 * (N_TILES - 1) + 2 * t;  // only in the last tile may columns be another item's
    const u32 real = (c < width ? 0xffffu : 0u) | (c + 1 < width ? 0xffff0000u : 0u);
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32* place = (const u32*)(column + (16 * m + 8 * half) * pitch);
#pragma unroll
        for (int n = 0; n + 1 < N_TILES; n++) s[m][n][half] = place[4 * n];
        s[m][N_TILES - 1][half] = real ? place[4 * (N_TILES - 1)] & real : 0;
      }
    }
    uint2 factor[HELD ? N_TILES : 1][K_STEPS];
    const uint2* own_gram = gram + (long long)(item - first_item) * (N_TILES * K_STEPS * 32) + lane;
#pragma unroll
    for (int n = 0; n < N_TILES && HELD; n++)
#pragma unroll
      for (int k = 0; k < K_STEPS; k++) factor[n][k] = own_gram[(n * K_STEPS + k) * 32];

    u32 scale[N_TILES][2];
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      float total[4] = {0, 0, 0, 0};
#pragma unroll
      for (int m = 0; m < M_TILES; m++) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
          u32 upper = turned(summand(s[m][n][0], slope, part)), lower = turned(summand(s[m][n][1], slope, part));
          multiply(total, across[m][0], 0, across[m][1], 0, upper, lower);
        }
      }
      float a = SUM == 2 ? rsqrtf(total[0] + 1e-16f) : 1.0f / (total[0] + 1e-8f);
      float b = SUM == 2 ? rsqrtf(total[1] + 1e-16f) : 1.0f / (total[1] + 1e-8f);
      a *= sharpness, b *= sharpness;
      u32 upper = packed(a, b);
      scale[n][0] = turned(upper);
      scale[n][1] = turned(packed(a - low(upper), b - high(upper)));
    }

    const int place = (item - begin) % BATCH;
    const float made = size[item - first_item];
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
      u32 e[2 * K_STEPS][2];
      float found[2] = {0, 0}, squared[2] = {0, 0};
      if (N_TILES % 2) e[N_TILES][0] = e[N_TILES][1] = 0;
#pragma unroll
      for (int n = 0; n < N_TILES; n++) {
        float x[4] = {0, 0, 0, 0};
        multiply(x, back[m][0], back[m][1], back[m][0], back[m][1], scale[n][0], scale[n][1]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const u32 own_scores = s[m][n][half];
          const float2 clip = clipped(own_scores, slope);
          const u32 pair = as_weights(power(x[2 * half] * clip.x), power(x[2 * half + 1] * clip.y));
          e[n][half] = pair;
          found[half] += first_weight(pair) * first(own_scores);
          found[half] += second_weight(pair) * second(own_scores);
        }
      }
#pragma unroll
      for (int n = 0; n < N_TILES; n++) {
        float q[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
          const uint2 right = HELD ? factor[n][k] : own_gram[(n * K_STEPS + k) * 32];
          multiply_weights(q, e[2 * k][0], e[2 * k][1], e[2 * k + 1][0], e[2 * k + 1][1], right.x, right.y);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
          squared[half] += first_weight(e[n][half]) * q[2 * half];
          squared[half] += second_weight(e[n][half]) * q[2 * half + 1];
        }
      }
      // four sums over four threads: each hands half of them to its neighbour, then both halves are added up
      const bool odd = t % 2;
      float score = (odd ? found[1] : found[0]) + from_thread(odd ? found[0] : found[1], 1);
      float norm = (odd ? squared[1] : squared[0]) + from_thread(odd ? squared[0] : squared[1], 1);
      score += from_thread(score, 2);
      norm += from_thread(norm, 2);
      if (t < 2) waiting[warp][place][16 * m + 8 * t + g] = score * rsqrtf(fmaxf(norm, 1e-30f)) * made * unit[m];
    }

    if (place == BATCH - 1 || item + 1 == end) {
      __syncwarp();
      for (int slot = 0; slot < SLOTS; slot++) {  // thread 4g + t pools item g
        const int whose = slot_item[bin * SLOTS + slot], from = bounds[slot];
        if (whose < 0) break;  // slots are taken from the first on
        const float pooled = pool(&waiting[warp][g][from], t, bounds[slot + 1] - from, pool_sharpness);
        if (t == 0 && g <= place) out[whose * out_row + number[item - place + g] * out_column] = pooled;
      }
      __syncwarp();
    }
  }
}
