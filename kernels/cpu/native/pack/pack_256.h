// Formats with tiles of 256 columns: GGUF block → row of a tile, and row → floats.
//
// Each struct is one format, as in pack_32.h. g: group of 32 columns. Scales of 4 or 6 bits are
// unpacked to bytes, those with an offset to signed ones.
#pragma once
#include "pack/layout.h"
#include "pack/pack_32.h"
#include "pack/pack_blocks.h"
#include "pack/pack_words.h"

namespace {

// Group g of 64 bytes of 2-bit codes: 32 bytes contain four groups.
inline codes two_bit_codes(const uint8_t *q, int g) { return masked(q + g / 4 * 32, g % 4 * 2, 3); }
// Group g of 128 bytes of 4-bit codes: 32 bytes contain two groups.
inline codes nibbles(const uint8_t *q, int g) { return masked(q + g / 2 * 32, g % 2 * 4, 15); }

// Unpacks the 6-bit scales and minimums of eight groups from 12 bytes (as in ggml's K-quants): four
// scales, four minimums, then the low 4 bits of the others, whose high 2 bits are in the top bits
// of the first eight bytes.
inline void put_scales(const uint8_t *s, int row, uint8_t (*scale)[16], uint8_t (*minimum)[16]) {
    const uint32_t a = load32(s), b = load32(s + 4), c = load32(s + 8);
    uint8_t all[16];
    store32(all, a & 0x3f3f3f3f);
    store32(all + 4, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030));
    store32(all + 8, b & 0x3f3f3f3f);
    store32(all + 12, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030));
    for (int g = 0; g < 8; g++) scale[g][row] = all[g];
    for (int g = 0; g < 8; g++) minimum[g][row] = all[8 + g];
}

// Codes 0, 1, 2 are -1, 0, 1. Bytes of TQ2_0 already have the tile's order of the codes of four
// blocks.
inline void put_ternary(const uint8_t *bytes, int row, uint8_t (*q)[64]) {
    for (int v = 0; v < 8; v++) memcpy(q[v] + 4 * row, bytes + 4 * v, 4);
}

inline void get_ternary(const tile_tq2 &t, int row, float *out) {
    const float d = half_to_float(t.d[row]);
    for (int h = 0; h < 2; h++) get_interleaved(t.q[h], row, d, out + 128 * h);
}

struct tq2_0 {
    using block = block_tq2_0;
    using tile = tile_tq2;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        for (int h = 0; h < 2; h++) put_ternary(b.q + 32 * h, row, t.q[h]);
    }

    static void get(const tile &t, int row, float *out) { get_ternary(t, row, out); }
};

struct tq1_0 {
    using block = block_tq1_0;
    using tile = tile_tq2;
    static constexpr int columns = 256;

    // Decodes base-3 digits of eight bytes. A byte is a fraction of 256: multiplied by 3, the carry
    // is its next digit. Even and odd bytes are separate words so that the carry fits.
    struct digits {
        uint64_t even, odd;

        explicit digits(uint64_t bytes) : even(bytes & kLow), odd(bytes >> 8 & kLow) {}

        uint64_t next() {
            even *= 3;
            odd *= 3;
            const uint64_t found = (even >> 8 & kLow) | (odd & ~kLow);
            even &= kLow;
            odd &= kLow;
            return found;
        }

        static constexpr uint64_t kLow = 0x00ff00ff00ff00ff;
    };

    // Columns in order: the first digits of 32 bytes, then their second ones, ..., then likewise of
    // 16 and of 4 bytes.
    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        codes c[8];
        for (int v = 0; v < 4; v++) {
            digits run(load64(b.q + 8 * v));
            for (int n = 0; n < 5; n++) c[n].word[v] = run.next();
        }
        for (int v = 0; v < 2; v++) {
            digits run(load64(b.q + 32 + 8 * v));
            for (int n = 0; n < 5; n++) c[5 + n / 2].word[n % 2 * 2 + v] = run.next();
        }
        digits run(load32(b.h));
        for (int v = 2; v < 4; v++) {
            const uint64_t first = run.next();
            c[7].word[v] = first | run.next() << 32;
        }
        for (int h = 0; h < 2; h++) {
            uint64_t bytes[4];
            for (int v = 0; v < 4; v++) {
                bytes[v] = 0;
                for (int s = 0; s < 4; s++) bytes[v] |= c[4 * h + s].word[v] << 2 * s;
            }
            put_ternary((const uint8_t *)bytes, row, t.q[h]);
        }
    }

    static void get(const tile &t, int row, float *out) { get_ternary(t, row, out); }
};

struct q2_k {
    using block = block_q2_k;
    using tile = tile_q2_k;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        t.m[row] = load16(b.m);
        for (int k = 0; k < 16; k++) t.s[k][row] = b.s[k];
        for (int g = 0; g < 8; g++) put2(two_bit_codes(b.q, g), t.q[g], row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]), m = half_to_float(t.m[row]);
        for (int g = 0; g < 8; g++) {
            uint8_t q[32];
            get2(t.q[g], row, q);
            for (int k = 2 * g; k < 2 * g + 2; k++) {
                const float scale = float(t.s[k][row] & 15) * d;
                const float minimum = float(t.s[k][row] >> 4) * m;
                for (int i = 0; i < 16; i++)
                    out[16 * k + i] = float(q[k % 2 * 16 + i]) * scale - minimum;
            }
        }
    }
};

struct q3_k {
    using block = block_q3_k;
    using tile = tile_q3_k;
    static constexpr int columns = 256;

    // Unpacks sixteen 6-bit scales: low 4 bits in the nibbles of eight bytes, low nibbles first;
    // high 2 bits in four bytes, lowest bit pairs first.
    static void put_signed(const uint8_t *s, int row, int8_t (*scale)[16]) {
        const uint32_t a = load32(s), b = load32(s + 4), high = load32(s + 8);
        uint8_t all[16];
        store32(all, (a & 0x0f0f0f0f) | (high << 4 & 0x30303030));
        store32(all + 4, (b & 0x0f0f0f0f) | (high << 2 & 0x30303030));
        store32(all + 8, (a >> 4 & 0x0f0f0f0f) | (high & 0x30303030));
        store32(all + 12, (b >> 4 & 0x0f0f0f0f) | (high >> 2 & 0x30303030));
        for (int k = 0; k < 16; k++) scale[k][row] = int8_t(all[k] - 32);
    }

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        put_signed(b.s, row, t.s);
        for (int g = 0; g < 8; g++) {
            put2(two_bit_codes(b.q, g), t.q[g], row);
            put1(masked(b.h, g, 1), t.h[g], row);
        }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        for (int g = 0; g < 8; g++) {
            uint8_t q[32];
            get2(t.q[g], row, q);
            get1(t.h[g], row, 2, q);
            const float scale[2] = {float(t.s[2 * g][row]) * d, float(t.s[2 * g + 1][row]) * d};
            for (int i = 0; i < 32; i++) out[32 * g + i] = float(q[i] - 4) * scale[i / 16];
        }
    }
};

struct q4_k {
    using block = block_q4_k;
    using tile = tile_q4_k;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        t.m[row] = load16(b.m);
        put_scales(b.s, row, t.s, t.n);
        for (int g = 0; g < 8; g++) put4(nibbles(b.q, g), t.q[g], row);
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]), m = half_to_float(t.m[row]);
        for (int g = 0; g < 8; g++) {
            const float scale = float(t.s[g][row]) * d, minimum = float(t.n[g][row]) * m;
            uint8_t q[32];
            get4(t.q[g], row, q);
            for (int i = 0; i < 32; i++) out[32 * g + i] = float(q[i]) * scale - minimum;
        }
    }
};

struct q5_k {
    using block = block_q5_k;
    using tile = tile_q5_k;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        t.m[row] = load16(b.m);
        put_scales(b.s, row, t.s, t.n);
        for (int g = 0; g < 8; g++) {
            put4(nibbles(b.q, g), t.q[g], row);
            put1(masked(b.h, g, 1), t.h[g], row);
        }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]), m = half_to_float(t.m[row]);
        for (int g = 0; g < 8; g++) {
            const float scale = float(t.s[g][row]) * d, minimum = float(t.n[g][row]) * m;
            uint8_t q[32];
            get4(t.q[g], row, q);
            get1(t.h[g], row, 4, q);
            for (int i = 0; i < 32; i++) out[32 * g + i] = float(q[i]) * scale - minimum;
        }
    }
};

struct q6_k {
    using block = block_q6_k;
    using tile = tile_q6_k;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        for (int k = 0; k < 16; k++) t.s[k][row] = int8_t(b.s[k]);
        // 64 bytes of low bits contain four groups: low nibbles of the first and second 32 bytes,
        // then high nibbles.
        for (int g = 0; g < 8; g++) {
            put4(masked(b.ql + g / 4 * 64 + g % 2 * 32, g / 2 % 2 * 4, 15), t.q[g], row);
            put2(two_bit_codes(b.qh, g), t.h[g], row);
        }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        for (int g = 0; g < 8; g++) {
            uint8_t q[32], high[32];
            get4(t.q[g], row, q);
            get2(t.h[g], row, high);
            const float scale[2] = {float(t.s[2 * g][row]) * d, float(t.s[2 * g + 1][row]) * d};
            for (int i = 0; i < 32; i++)
                out[32 * g + i] = float((q[i] | high[i] << 4) - 32) * scale[i / 16];
        }
    }
};

struct iq4_xs {
    using block = block_iq4_xs;
    using tile = tile_iq4_xs;
    static constexpr int columns = 256;

    static void put(const block &b, int row, tile &t) {
        t.d[row] = load16(b.d);
        const uint32_t low = load32(b.sl), high = load16(b.sh);
        for (int g = 0; g < 8; g++) {
            t.s[g][row] = int8_t((low >> 4 * g & 15) + (high >> 2 * g & 3) * 16 - 32);
            put4(nibbles(b.q + 16 * g), t.q[g], row);
        }
    }

    static void get(const tile &t, int row, float *out) {
        const float d = half_to_float(t.d[row]);
        for (int g = 0; g < 8; g++) {
            const float scale = float(t.s[g][row]) * d;
            uint8_t q[32];
            get4(t.q[g], row, q);
            for (int i = 0; i < 32; i++) out[32 * g + i] = float(kIq4Values[q[i]]) * scale;
        }
    }
};

}  // namespace
