// Formats of 2-bit codes with tiles of 128 columns: GGUF block → row of a tile, and row → floats.
// Structs as in pack_32.h.
#pragma once
#include "pack/layout.h"
#include "pack/pack_blocks.h"
#include "pack/pack_words.h"

namespace {

// 32 bytes of four adjacent columns each: vector v gets quad v of the four blocks of 32 columns.
inline void put_neighbours(const uint8_t *bytes, int row, tile_pq2 &t) {
    for (int v = 0; v < 8; v++) {
        const uint8_t four[4] = {bytes[v], bytes[8 + v], bytes[16 + v], bytes[24 + v]};
        store32(t.q[v] + 4 * row, transpose_two_bit(load32(four)));
    }
}

inline void get_neighbours(const tile_pq2 &t, int row, float *out) {
    get_interleaved(t.q, row, half_to_float(t.d[row]), out);
}

struct pq2_0 {
    using block = block_pq2_0;
    using tile = tile_pq2;
    static constexpr int columns = 128;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        put_neighbours(b.q, row, t);
    }

    static void get(const tile &t, int row, float *out) { get_neighbours(t, row, out); }
};

struct tq2_0_g128 {
    using block = block_tq2_0_g128;
    using tile = tile_pq2;
    static constexpr int columns = 128;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        uint8_t q[32];
        for (int i = 0; i < 32; i += 8) {
            const uint64_t word = load64(b.q + i);
            store64(q + i, word ^ (word & word >> 1 & repeat_byte(0x55))
                                      << 1);  // codes 1 and 3 both mean 0
        }
        put_neighbours(q, row, t);
    }

    static void get(const tile &t, int row, float *out) { get_neighbours(t, row, out); }
};

struct ptq1_0 {
    using block = block_ptq1_0;
    using tile = tile_pq2;
    static constexpr int columns = 128;

    // Base-3 digits of `count` bytes: the first digits of all bytes, then the second ones, and so
    // on.
    static void digits(const uint8_t *bytes, int count, int each_has, uint8_t *codes) {
        for (int m = 0; m < count; m++) {
            uint8_t left = bytes[m];
            for (int n = 0; n < each_has; n++, left = uint8_t(left * 3))
                codes[n * count + m] = uint8_t(left * 3 >> 8);
        }
    }

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        uint8_t codes[128], q[32];
        digits(b.q, 16, 5, codes);
        digits(b.q + 16, 8, 5, codes + 80);
        digits(b.h, 2, 4, codes + 120);
        for (int i = 0; i < 32; i++)
            q[i] = uint8_t(codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 |
                           codes[4 * i + 3] << 6);
        put_neighbours(q, row, t);
    }

    static void get(const tile &t, int row, float *out) { get_neighbours(t, row, out); }
};

}  // namespace
