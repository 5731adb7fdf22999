// Formats with tiles of 32 or 64 columns: GGUF block → row of a tile, and row → floats.
//
// Each struct is one format: `columns` of a block and of its tile, `put` (block → row 0 .. 15 of
// the tile) and `get` (row → f32 [columns], by the float32 operations of
// kernels/weights/decoders.py in the same order).
#pragma once
#include "pack/layout.h"
#include "pack/pack_blocks.h"
#include "pack/pack_words.h"

namespace {

// The sixteen values of IQ4_NL and IQ4_XS codes.
const int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 floats (1 sign, 2 exponent, 1 mantissa bit), doubled; minus zero is zero.
const int8_t kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct q4_0 {
    using block = block_q4_0;
    using tile = tile_q4_0;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        put4(nibbles(b.q), t.q, row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        for (int i = 0; i < 32; i++) out[i] = float(q[i] - 8) * d;
    }
};

struct iq4_nl {
    using block = block_q4_0;
    using tile = tile_q4_0;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) { q4_0::put(b, row, t); }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        for (int i = 0; i < 32; i++) out[i] = float(kIq4Values[q[i]]) * d;
    }
};

struct q4_1 {
    using block = block_q4_1;
    using tile = tile_q4_1;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        t.m[row] = load16(b.m);
        put4(nibbles(b.q), t.q, row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]), m = half_to_float(t.m[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        for (int i = 0; i < 32; i++) out[i] = float(q[i]) * d + m;
    }
};

struct q5_0 {
    using block = block_q5_0;
    using tile = tile_q5_0;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        put4(nibbles(b.q), t.q, row);
        store32(t.h + 4 * row, bit_plane(load32(b.h)));
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        get1(t.h, row, 4, q);
        for (int i = 0; i < 32; i++) out[i] = float(q[i] - 16) * d;
    }
};

struct q5_1 {
    using block = block_q5_1;
    using tile = tile_q5_1;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        t.m[row] = load16(b.m);
        put4(nibbles(b.q), t.q, row);
        store32(t.h + 4 * row, bit_plane(load32(b.h)));
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]), m = half_to_float(t.m[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        get1(t.h, row, 4, q);
        for (int i = 0; i < 32; i++) out[i] = float(q[i]) * d + m;
    }
};

struct q8_0 {
    using block = block_q8_0;
    using tile = tile_q8_0;
    static constexpr int columns = 32;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        put8(b.q, 0x80808080, t.q, row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        uint8_t q[32];
        get8(t.q, row, q);
        for (int i = 0; i < 32; i++) out[i] = float(q[i] - 128) * d;
    }
};

struct mxfp4 {
    using block = block_mxfp4;
    using tile = tile_mxfp4;
    static constexpr int columns = 32;

    // Half of 2^(e - 127) as bfloat16, which has the exponent range of float32; the smallest two,
    // 2^-128 and 2^-127, are subnormal.
    static constexpr uint16_t half_scale(int e) {
        return uint16_t(e < 2 ? 0x20 << e : (e - 1) << 7);
    }

    static void put(const block &b, int row, tile &t) {
        t.d[row] = half_scale(b.e);
        put4(nibbles(b.q), t.q, row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = bfloat_to_float(t.d[row]);
        uint8_t q[32];
        get4(t.q, row, q);
        for (int i = 0; i < 32; i++) out[i] = float(kE2M1[q[i]]) * d;
    }
};

struct q2_0 {
    using block = block_q2_0;
    using tile = tile_q2_0;
    static constexpr int columns = 64;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        for (int v = 0; v < 4; v++)
            store32(t.q[v / 2][v % 2] + 4 * row, transpose_two_bit(load32(b.q + 4 * v)));
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        uint8_t q[64];
        for (int g = 0; g < 2; g++) get2(t.q[g], row, q + 32 * g);
        for (int i = 0; i < 64; i++) out[i] = float(q[i] - 1) * d;
    }
};

}  // namespace
