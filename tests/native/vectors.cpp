// Checks every function of one vector file against scalar arithmetic, on edge and random operands.
//
// Built once per instruction set with NK_VECTORS defined as the quoted file name; exits with 0 when
// all agree, else prints the first mismatches. Operands in memory end at a guard page, so that an
// access behind them crashes.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "operands.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

int failures = 0;
long checks = 0;

void expect(bool good, const char *what, int lane, double wanted, double got) {
    ++checks;
    if (good || ++failures > 20) return;
    printf("%s, lane %d: wanted %.9g, got %.9g\n", what, lane, wanted, got);
}

}  // namespace

namespace tested {
#include NK_VECTORS
#include "generic/runs.inc"

static_assert(kTokens >= 1 && kTokens <= 16, "columns of a tile");
static_assert(kWideShift == 0 || kWideShift == 128, "shifts that decode.inc supports");

namespace {

void expect_bytes(const char *what, u8x64 got, const uint8_t *wanted) {
    Edge<uint8_t> stored(64);
    store_u8(stored, got);
    for (int i = 0; i < 64; ++i) expect(stored[i] == wanted[i], what, i, wanted[i], stored[i]);
}

void expect_ints(const char *what, i32x16 got, const int32_t *wanted) {
    Edge<int32_t> stored(16);
    store_i32(stored, got);
    for (int i = 0; i < 16; ++i) expect(stored[i] == wanted[i], what, i, wanted[i], stored[i]);
}

void expect_floats(const char *what, f32x16 got, const float *wanted) {
    Edge<float> stored(16);
    store_f32(stored, got);
    for (int i = 0; i < 16; ++i) expect(same(stored[i], wanted[i]), what, i, wanted[i], stored[i]);
}

i32x16 ints_of(const int32_t *values) {  // magnitudes below 2^24
    float floats[16];
    for (int i = 0; i < 16; ++i) floats[i] = (float)values[i];
    return to_int(load_f32(floats));
}

template <int N> void check_shifts(const uint8_t *bytes) {
    uint8_t right[64], left[64];
    for (int i = 0; i < 64; ++i) {
        right[i] = (uint8_t)(bytes[i] >> N);
        left[i] = (uint8_t)(bytes[i] << N);
    }
    const u8x64 v = load_u8(bytes);
    expect_bytes("shift_right", bit_and(shift_right<N>(v), splat_u8((uint8_t)(255 >> N))), right);
    expect_bytes("shift_left", bit_and(shift_left<N>(v), splat_u8((uint8_t)(255 << N))), left);
}

void check_bytes() {
    Edge<uint8_t> a(64), b(64), table(16);
    Edge<int8_t> quad(4);
    uint8_t wanted[8][64];
    for (int i = 0; i < 64; ++i) {
        a[i] = (uint8_t)random_bits();
        b[i] = (uint8_t)random_bits();
    }
    for (int i = 0; i < 16; ++i) table[i] = (uint8_t)random_bits();
    for (int i = 0; i < 4; ++i) quad[i] = (int8_t)random_between(-127, 127);
    for (int i = 0; i < 64; ++i) {
        wanted[0][i] = a[i] & b[i];
        wanted[1][i] = a[i] | b[i];
        wanted[2][i] = a[i] < b[i] ? a[i] : b[i];
        wanted[3][i] = table[a[i] & 15];
        wanted[4][i] = table[i / 4];
        wanted[5][i] = (uint8_t)quad[i % 4];
        wanted[6][i] = a[0];
        wanted[7][i] = (uint8_t)(a[i] + b[i]);
    }
    const u8x64 x = load_u8(a), y = load_u8(b);
    expect_bytes("bit_and", bit_and(x, y), wanted[0]);
    expect_bytes("bit_or", bit_or(x, y), wanted[1]);
    expect_bytes("min_u8", min_u8(x, y), wanted[2]);
    expect_bytes("look_up", look_up(table, bit_and(x, splat_u8(15))), wanted[3]);
    expect_bytes("spread_bytes", spread_bytes(table), wanted[4]);
    expect_bytes("splat_quad", splat_quad(quad), wanted[5]);
    expect_bytes("splat_u8", splat_u8(a[0]), wanted[6]);
    expect_bytes("add_u8", add_u8(x, y), wanted[7]);
    check_shifts<0>(a);
    check_shifts<1>(a);
    check_shifts<2>(a);
    check_shifts<3>(a);
    check_shifts<4>(a);
    check_shifts<6>(a);
    check_shifts<7>(a);
}

void check_dots(const uint8_t *codes, const int8_t *quad, const char *what, bool wide) {
    int32_t before[16], wanted[16];
    for (int r = 0; r < 16; ++r) {
        before[r] = wanted[r] = random_between(-1000000, 1000000);
        for (int j = 0; j < 4; ++j) {
            wanted[r] += (codes[4 * r + j] - (wide ? kWideShift : 0)) * quad[j];
        }
    }
    const i32x16 sum = ints_of(before);
    const u8x64 x = load_u8(codes), y = splat_quad(quad);
    expect_ints(what, wide ? dot_wide(sum, x, y) : dot(sum, x, y), wanted);
    if (wide) expect_ints("run of one", end_run(sum, begin_run<true>(sum, x, y)), wanted);
}

// A run of the maximum number of quads with codes up to `largest`; `extreme`: only the largest.
void check_run(int largest, bool extreme) {
    const int count = quads_in_run(largest);
    const int8_t sign = random_bits() % 2 ? 127 : -127;
    Edge<uint8_t> codes(64);
    Edge<int8_t> quad(4);
    int32_t before[16], wanted[16];
    for (int r = 0; r < 16; ++r) before[r] = wanted[r] = random_between(-1000000, 1000000);
    const i32x16 sum = ints_of(before);
    RunSum run = {};
    for (int i = 0; i < count; ++i) {
        for (int j = 0; j < 64; ++j)
            codes[j] = (uint8_t)(extreme ? largest : random_between(0, largest));
        for (int j = 0; j < 4; ++j) quad[j] = extreme ? sign : (int8_t)random_between(-127, 127);
        for (int j = 0; j < 64; ++j) wanted[j / 4] += codes[j] * quad[j % 4];
        const u8x64 x = load_u8(codes), y = splat_quad(quad);
        run = i ? extend_run<false>(run, x, y) : begin_run<false>(sum, x, y);
    }
    expect_ints("run", end_run(sum, run), wanted);
}

void check_signed_dots(const uint8_t *codes, const int8_t *quad) {
    int32_t before[16], wanted[16];
    for (int r = 0; r < 16; ++r) {
        before[r] = wanted[r] = random_between(-1000000, 1000000);
        for (int j = 0; j < 4; ++j)
            wanted[r] += ((int8_t)codes[4 * r + j] + kSignedShift) * quad[j];
    }
    expect_ints("dot_signed", dot_signed(ints_of(before), load_u8(codes), splat_quad(quad)),
                wanted);
}

// Checks interleave_rows, byte by byte.
void check_interleaving() {
    Edge<uint8_t> first(64), second(64), third(64), fourth(64);
    const uint8_t *rows[4] = {first, second, third, fourth};
    for (int i = 0; i < 64; ++i)
        first[i] = (uint8_t)i, second[i] = (uint8_t)(64 + i), third[i] = (uint8_t)(128 + i),
        fourth[i] = (uint8_t)(192 + i);
    u8x64 got[4];
    interleave_rows(rows, got);
    for (int d = 0; d < 4; ++d) {
        uint8_t wanted[64];
        for (int i = 0; i < 64; ++i)
            wanted[i] = (uint8_t)(64 * (i % 4) + 16 * (i / 16) + 4 * d + i / 4 % 4);
        expect_bytes("interleave_rows", got[d], wanted);
    }
}

void check_products() {
    static const uint8_t kCodes[] = {0, 1, 15, 127, 128, 254, 255};
    static const int8_t kActivations[] = {-127, -1, 0, 1, 127};
    Edge<uint8_t> codes(64);
    Edge<int8_t> quad(4);
    for (uint8_t code : kCodes) {
        for (int8_t activation : kActivations) {
            memset(codes, code, 64);
            for (int j = 0; j < 4; ++j) quad[j] = activation;
            check_dots(codes, quad, "dot_wide of one value", true);
            check_signed_dots(codes, quad);
            if (code < 128) check_dots(codes, quad, "dot of one value", false);
            for (int j = 0; j < 4; j += 3) quad[j] = (int8_t)-activation;
            check_dots(codes, quad, "dot_wide of two signs", true);
            if (code < 128) check_dots(codes, quad, "dot of two signs", false);
        }
    }
    static const int kLargest[] = {1, 2, 3, 7, 12, 15, 31, 48, 63, 127};
    for (int largest : kLargest) {
        check_run(largest, true);
        for (int round = 0; round < 50; ++round) check_run(largest, round % 2);
    }
    for (int round = 0; round < 500; ++round) {
        for (int i = 0; i < 64; ++i) codes[i] = (uint8_t)random_bits();
        for (int j = 0; j < 4; ++j) quad[j] = (int8_t)random_between(-127, 127);
        check_dots(codes, quad, "dot_wide", true);
        check_signed_dots(codes, quad);
        for (int i = 0; i < 64; ++i) codes[i] &= 127;
        check_dots(codes, quad, "dot", false);
    }
}

void check_ints() {
    int32_t a[16], b[16], sums[16], differences[16], shifted[16];
    float floats[16];
    Edge<uint8_t> low(16);
    for (int i = 0; i < 16; ++i) {
        a[i] = random_between(-16000000, 16000000);
        b[i] = random_between(-16000000, 16000000);
        sums[i] = a[i] + b[i];
        differences[i] = a[i] - b[i];
        floats[i] = (float)a[i];
        shifted[i] = a[i] >> 5;
    }
    const i32x16 x = ints_of(a), y = ints_of(b);
    expect_ints("to_int", x, a);
    expect_ints("add_i32", add_i32(x, y), sums);
    expect_ints("sub_i32", sub_i32(x, y), differences);
    expect_floats("to_float", to_float(x), floats);
    expect_ints("shift_right_i32", shift_right_i32<5>(x), shifted);
    expect_ints("shift_right_i32 by none", shift_right_i32<0>(x), a);
    for (int i = 0; i < 16; ++i) shifted[i] = (int32_t)((uint32_t)a[i] << 5);
    expect_ints("shift_left_i32", shift_left_i32<5>(x), shifted);
    store_low_bytes(low, x);
    for (int i = 0; i < 16; ++i)
        expect(low[i] == (a[i] & 255), "store_low_bytes", i, a[i] & 255, low[i]);
    const int32_t one = (int32_t)random_bits();
    for (int i = 0; i < 16; ++i) sums[i] = one;
    expect_ints("splat_i32", splat_i32(one), sums);
}

void check_store_signed() {
    static const int32_t kEdges[16] = {-16000000, -32769, -32768, -129,    -128, -127,
                                       -1,        0,      1,      126,     127,  128,
                                       32767,     32768,  65535,  16000000};
    Edge<int8_t> stored(16);
    for (int round = 0; round < 100; ++round) {
        int32_t values[16];
        for (int i = 0; i < 16; ++i) values[i] = round ? random_between(-200, 200) : kEdges[i];
        store_signed(stored, ints_of(values));
        for (int i = 0; i < 16; ++i) {
            const int wanted = values[i] < -128 ? -128 : values[i] > 127 ? 127 : values[i];
            expect(stored[i] == wanted, "store_signed", i, wanted, stored[i]);
        }
    }
}

#include "vectors_float.inc"

// The row of tile_q1_0 whose signs are in byte p.
int row_of(int p) { return 16 * (p / 8 % 2 * 2 + p / 32) + p / 16 % 2 * 8 + p % 8; }

void check_table_sums() {
    int32_t wanted[64];
    Edge<uint8_t> low(64), high(64);
    const int bias = random_between(0, 8128);
    for (int p = 0; p < 64; ++p) {
        low[p] = (uint8_t)random_bits();
        high[p] = (uint8_t)random_bits();
        wanted[row_of(p)] = low[p] + 32 * high[p] - bias;
    }
    const i16x64 sums = join_sums(load_u8(low), load_u8(high), bias);
    expect_ints("sums_of_rows<0>", sums_of_rows<0>(sums), wanted);
    expect_ints("sums_of_rows<1>", sums_of_rows<1>(sums), wanted + 16);
    expect_ints("sums_of_rows<2>", sums_of_rows<2>(sums), wanted + 32);
    expect_ints("sums_of_rows<3>", sums_of_rows<3>(sums), wanted + 48);
}

}  // namespace
}  // namespace tested

int main() {
    using namespace tested;
    for (int round = 0; round < 200; ++round) {
        check_bytes();
        check_ints();
        check_loads();
        check_tails();
        check_table_sums();
    }
    check_interleaving();
    check_products();
    check_only_lanes();
    check_store_signed();
    check_halves_in();
    check_halves_out();
    check_floats();
    check_products_rounded_once();
    check_sums();
    check_rounding();
    check_powers();
    prefetch(&failures);
    prefetch_far(&failures);
    printf("%s: %ld checks, %d failures\n", NK_VECTORS, checks, failures);
    return failures != 0;
}
