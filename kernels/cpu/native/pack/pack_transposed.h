// Formats with tiles of transposed rows: one-bit signs, FP8, and floats (F32, F16, BF16).
//
// Each struct is one format: `columns` of a block and of its tile, `group` rows, `put_group` (all
// rows of a tile; a missing row points to a zero block) and `get` (row → f32 [columns], by the
// float operations of kernels/weights/decoders.py).
#pragma once
#include "pack/layout.h"
#include "pack/pack_blocks.h"
#include "pack/pack_words.h"

namespace {

struct q1_0 {
    using block = block_q1_0;
    using tile = tile_q1_0;
    static constexpr int columns = 128, group = 64;

    // Byte position of a row in a vector: bits 5 4 3 of the row are bits 3 5 4 of the position.
    static constexpr int place(int row) {
        return (row >> 5 & 1) * 8 + (row >> 4 & 1) * 32 + (row >> 3 & 1) * 16 + row % 8;
    }

    static void put_group(const block *const *rows, tile &t) {
        for (int r = 0; r < 64; r++) t.d[r] = load16(rows[r]->d);
        for (int r = 0; r < 64; r += 8)
            for (int c = 0; c < 16; c += 8) {
                uint64_t x[8];
                for (int i = 0; i < 8; i++) x[i] = load64(rows[r + i]->q + c);
                transpose(x);
                for (int i = 0; i < 8; i++) store64(t.q[c + i] + place(r), x[i]);
            }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        for (int c = 0; c < 16; c++)
            for (int i = 0; i < 8; i++)
                out[8 * c + i] = float((t.q[c][place(row)] >> i & 1) * 2 - 1) * d;
    }
};

inline float e4m3_to_float(uint8_t code) {
    const uint32_t sign = uint32_t(code & 0x80) << 24, magnitude = code & 0x7f;
    const float small = float(int32_t(magnitude)) * 0x1p-9f;
    uint32_t bits;
    memcpy(&bits, &small, 4);
    if (magnitude >= 8) bits = (magnitude << 20) + (120u << 23);
    if (magnitude == 0x7f) bits = 0x7fc00000;
    return as_float(sign | bits);
}

inline float e5m2_to_float(uint8_t code) { return half_to_float(uint16_t(code << 8)); }

template <float (*to_float)(uint8_t)>
struct f8 {
    using block = block_f8;
    using tile = tile_f8;
    static constexpr int columns = 32, group = 16;

    static void put_group(const block *const *rows, tile &t) {
        for (int r = 0; r < 16; r++) t.d[r] = load16(rows[r]->d);
        for (int r = 0; r < 16; r += 8)
            for (int c = 0; c < 32; c += 8) {
                uint64_t x[8];
                for (int i = 0; i < 8; i++) x[i] = load64(rows[r + i]->q + c);
                transpose(x);
                for (int i = 0; i < 8; i++) store64(t.q[c + i] + r, x[i]);
            }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        for (int i = 0; i < 32; i++) out[i] = to_float(t.q[i][row]) * d;
    }
};

// Float formats; a tile is one column.
template <class T, float (*to_float)(T)>
struct float_columns {
    struct block { uint8_t x[sizeof(T)]; };
    struct tile { T x[16]; };
    static constexpr int columns = 1, group = 16;

    static void put_group(const block *const *rows, tile &t) {
        for (int r = 0; r < 16; r++) memcpy(&t.x[r], rows[r]->x, sizeof(T));
    }

    static void get(const tile &t, int row, float *out) { *out = to_float(t.x[row]); }
};

}  // namespace
