// A block of a GPU on one core: its threads are fibres, and those of a warp wait for each other where a GPU's would.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

typedef unsigned int u32;
#define __device__ static
#define __forceinline__ inline
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
using std::fmaxf;
using std::max;
using std::min;
struct uint2 {
  u32 x, y;
};
struct float2 {
  float x, y;
};
struct Place {
  int x = 0, y = 0, z = 0;
};
static Place blockIdx;

struct Fibre {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(1 << 18);
  Place thread;
  bool ended = false;
  int exchanges = 0;
};
static std::vector<Fibre> fibres;
static Fibre* running;
static ucontext_t scheduler;
#define threadIdx (running->thread)

struct Given {
  u32 words[6];
};
static Given given[2][1024];  // what a thread hands over; two of them, since the first may be read while the next is made

static const Given* exchange(const Given& own) {  // the warp's, by lane
  const int thread = running->thread.x, which = running->exchanges++ % 2;
  given[which][thread] = own;
  swapcontext(&running->context, &scheduler);
  return &given[which][thread / 32 * 32];
}

static inline float __uint_as_float(u32 x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}
static inline u32 bits_of(float x) {
  u32 y;
  std::memcpy(&y, &x, 4);
  return y;
}
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float bfloat(u32 half) { return __uint_as_float(half << 16); }
static inline u32 as_bfloat(float x) {
  u32 bits = bits_of(x);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
static inline u32 packed(float first, float second) { return as_bfloat(first) | as_bfloat(second) << 16; }
static inline u32 times(u32 a, u32 b) {
  return packed(bfloat(a & 0xffffu) * bfloat(b & 0xffffu), bfloat(a >> 16) * bfloat(b >> 16));
}
static inline u32 larger(u32 a, u32 b) {
  return packed(fmaxf(bfloat(a & 0xffffu), bfloat(b & 0xffffu)), fmaxf(bfloat(a >> 16), bfloat(b >> 16)));
}
static inline float of_half(u32 bits) {
  int exponent = bits >> 10 & 31;
  float fraction = (bits & 1023u) / 1024.0f;
  float size = exponent ? std::ldexp(1.0f + fraction, exponent - 15) : std::ldexp(fraction, -14);
  return bits & 0x8000u ? -size : size;
}
static inline u32 as_half(float x) {  // round to even by adding and taking away what is as large as its last bit
  float size = std::fabs(x);
  int exponent = size < 6.103515625e-05f ? -14 : std::ilogb(size);
  float step = std::ldexp(1.0f, exponent - 10);
  int whole = (int)std::nearbyint(size / step);
  u32 bits = exponent == -14 ? whole : ((exponent + 15) << 10) + (whole - 1024);
  return std::min<u32>(bits, 0x7c00u) | (x < 0 ? 0x8000u : 0u);
}
static inline u32 packed_half(float first, float second) { return as_half(first) | as_half(second) << 16; }
static inline float power(float x) { return std::exp2(x); }
static inline void __syncwarp() { exchange({}); }
static inline float from_thread(float x, int other) {
  const Given* all = exchange({{bits_of(x)}});
  return __uint_as_float(all[running->thread.x % 32 ^ other].words[0]);
}
static inline u32 turned(u32 x) {
  const Given* all = exchange({{x}});
  const int lane = running->thread.x % 32, row = lane / 4, column = 2 * (lane % 4);
  auto at = [&](int r, int c) { return (c % 2 ? all[4 * r + c / 2].words[0] >> 16 : all[4 * r + c / 2].words[0]) & 0xffffu; };
  return at(column, row) | at(column + 1, row) << 16;
}
template <typename Number>
static void multiply_as(Number number, float (&c)[4], const Given& own) {
  const Given* all = exchange(own);
  const int lane = running->thread.x % 32;
  auto at = [&](u32 pair, int second) { return number(second ? pair >> 16 : pair & 0xffffu); };
  auto left = [&](int r, int k) { return at(all[4 * (r % 8) + k % 8 / 2].words[(r >= 8) + 2 * (k >= 8)], k % 2); };
  auto right = [&](int k, int n) { return at(all[4 * n + k % 8 / 2].words[4 + (k >= 8)], k % 2); };
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) c[i] += left(lane / 4 + 8 * (i / 2), k) * right(k, 2 * (lane % 4) + i % 2);
}
static inline void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  multiply_as(bfloat, c, {{a0, a1, a2, a3, b0, b1}});
}
static inline void multiply_half(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  multiply_as(of_half, c, {{a0, a1, a2, a3, b0, b1}});
}

static std::function<void()> body;
static void begin_fibre() {
  body();
  running->ended = true;
  swapcontext(&running->context, &scheduler);
}
static void run_block(int threads) {
  fibres = std::vector<Fibre>(threads);
  for (int i = 0; i < threads; i++) {
    Fibre& fibre = fibres[i];
    fibre.thread.x = i;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    makecontext(&fibre.context, begin_fibre, 0);
  }
  for (bool going = true; going;) {
    going = false;
    for (Fibre& fibre : fibres) {
      if (fibre.ended) continue;
      running = &fibre;
      swapcontext(&scheduler, &fibre.context);
      going = true;
    }
  }
}
template <typename F, typename... A>
static void run_grid(int wide, int high, int threads, F kernel, A... arguments) {
  body = [=] { kernel(arguments...); };
  for (blockIdx.y = 0; blockIdx.y < high; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < wide; blockIdx.x++) run_block(threads);
}
