// Operands for tests of native code: random bits, memory that ends at a guard page, and float16
// conversions by definition, independent of the tested ones.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

inline uint32_t random_bits() {  // xorshift
    static uint64_t state = 0x9e3779b97f4a7c15ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

inline int random_between(int low, int high) {
    return low + (int)(random_bits() % (uint32_t)(high - low + 1));
}

inline float float_from(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline bool same(float a, float b) {  // bit-identical, or both NaN
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, 4) == 0;
}

// `count` values directly before an inaccessible page.
template <class T> class Edge {
  public:
    explicit Edge(size_t count) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        void *two = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                         0);
        if (two == MAP_FAILED || mprotect((char *)two + page, page, PROT_NONE) != 0) {
            printf("the system gives no pages\n");
            exit(1);
        }
        start_ = two;
        size_ = 2 * page;
        values_ = (T *)((char *)two + page) - count;
    }
    ~Edge() { munmap(start_, size_); }
    Edge(const Edge &) = delete;
    Edge &operator=(const Edge &) = delete;
    operator T *() { return values_; }

  private:
    void *start_;
    size_t size_;
    T *values_;
};

// The value of a float16, exactly.
inline float half_value(uint32_t half) {
    const int exponent = (int)(half >> 10 & 31);
    const double mantissa = (double)(half & 1023), sign = half & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31) { return mantissa > 0 ? NAN : (float)(sign * INFINITY); }
    const double size = exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24);
    return (float)(sign * size);
}

// The nearest float16, ties to even, by bisection.
inline uint32_t nearest_half(float value) {
    const uint32_t sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs((double)value);
    uint32_t low = 0, high = 0x7c00;  // infinity counts as 65536, the next step
    const auto step = [](uint32_t half) {
        return half == 0x7c00 ? 65536.0 : (double)half_value(half);
    };
    if (size >= step(high)) return sign | high;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        (step(middle) <= size ? low : high) = middle;
    }
    const double below = size - step(low), above = step(high) - size;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}
