// Bit manipulation of the codes of 32 columns of a row: GGUF words → vectors of a tile, and back.
//
// `codes` are 32 bytes in column order, one code each, as four words of two quads: a shift by
// slightly less than 32 moves the second quad's bits beside the first's. Operands: `q` the vectors
// of 64 bytes of layout.h, `row` 0 .. 15 within the group.
#pragma once
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and tiles are little-endian");

namespace {

inline uint16_t load16(const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return x;
}
inline uint32_t load32(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}
inline uint64_t load64(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}
inline void store32(uint8_t *p, uint32_t x) { memcpy(p, &x, 4); }
inline void store64(uint8_t *p, uint64_t x) { memcpy(p, &x, 8); }

struct codes { uint64_t word[4]; };

// A word with every byte set to `byte`.
constexpr uint64_t repeat_byte(uint64_t byte) { return byte * 0x0101010101010101u; }

// --- reading GGUF words

// 32 bytes, each shifted right and masked.
inline codes masked(const uint8_t *bytes, int shift, uint64_t mask) {
    codes c;
    for (int v = 0; v < 4; v++) c.word[v] = load64(bytes + 8 * v) >> shift & repeat_byte(mask);
    return c;
}

// Nibbles of 16 bytes: all low nibbles, then all high nibbles.
inline codes nibbles(const uint8_t *bytes) {
    const uint64_t a = load64(bytes), b = load64(bytes + 8), low = repeat_byte(15);
    return {{a & low, b & low, a >> 4 & low, b >> 4 & low}};
}

// --- writing a tile

inline void put8(const uint8_t *bytes, uint32_t flip, uint8_t (*q)[64], int row) {
    for (int v = 0; v < 8; v++) store32(q[v] + 4 * row, load32(bytes + 4 * v) ^ flip);
}

inline void put4(const codes &c, uint8_t (*q)[64], int row) {
    for (int v = 0; v < 4; v++) store32(q[v] + 4 * row, uint32_t(c.word[v] | c.word[v] >> 28));
}

inline void put2(const codes &c, uint8_t (*q)[64], int row) {
    for (int v = 0; v < 2; v++) {
        const uint64_t a = c.word[2 * v], b = c.word[2 * v + 1];
        store32(q[v] + 4 * row, uint32_t((a | a >> 30) | (b | b >> 30) << 4));
    }
}

inline void put1(const codes &c, uint8_t *h, int row) {
    uint64_t all = 0;
    for (int v = 0; v < 4; v++) all |= (c.word[v] | c.word[v] >> 31) << 2 * v;
    store32(h + 4 * row, uint32_t(all));
}

// --- bit permutations: swaps the bits under `mask` with those `shift` above them

constexpr uint32_t swapped(uint32_t x, int shift, uint32_t mask) {
    const uint32_t t = (x >> shift ^ x) & mask;
    return x ^ t ^ t << shift;
}

// Bit i of column i → bit i / 4 of byte i % 4, the order of a row of a bit plane.
constexpr uint32_t bit_plane(uint32_t bits) {
    return swapped(swapped(swapped(swapped(bits, 14, 0xcccc), 7, 0xaa00aa), 2, 0xc0c0c0c), 1,
                   0x22222222);
}
static_assert(bit_plane(0x0000000f) == 0x01010101 && bit_plane(0xf0000000) == 0x80808080, "quads");
static_assert(bit_plane(0x11111111) == 0x000000ff && bit_plane(0x00000020) == 0x00000200, "bytes");

// 4 bytes of 4 codes of two bits: code j of byte s ↔ code s of byte j.
constexpr uint32_t transpose_two_bit(uint32_t x) {
    return swapped(swapped(x, 12, 0xf0f0), 6, 0xcc00cc);
}
static_assert(transpose_two_bit(0x000000ff) == 0x03030303 &&
                  transpose_two_bit(0x0000c000) == 0x0c000000,
              "");

// 8 rows of 8 bytes → 8 columns of 8 bytes.
inline void transpose(uint64_t x[8]) {
    for (int distance = 4; distance; distance /= 2) {
        const uint64_t mask = distance == 4   ? 0xffffffffu
                              : distance == 2 ? 0x0000ffff0000ffffu
                                              : 0x00ff00ff00ff00ffu;
        for (int i = 0; i < 8; i++) {
            if (i & distance) continue;
            const uint64_t t = (x[i] >> 8 * distance ^ x[i + distance]) & mask;
            x[i + distance] ^= t;
            x[i] ^= t << 8 * distance;
        }
    }
}

// --- reading a tile: 32 bytes, one code each

inline void get8(const uint8_t (*q)[64], int row, uint8_t *out) {
    for (int v = 0; v < 8; v++) store32(out + 4 * v, load32(q[v] + 4 * row));
}

inline void get4(const uint8_t (*q)[64], int row, uint8_t *out) {
    for (int quad = 0; quad < 8; quad++)
        store32(out + 4 * quad, load32(q[quad / 2] + 4 * row) >> 4 * (quad % 2) & 0x0f0f0f0f);
}

inline void get2(const uint8_t (*q)[64], int row, uint8_t *out) {
    for (int quad = 0; quad < 8; quad++)
        store32(out + 4 * quad, load32(q[quad / 4] + 4 * row) >> 2 * (quad % 4) & 0x03030303);
}

// 128 columns of four blocks whose codes share bytes: (code - 1) * d.
inline void get_interleaved(const uint8_t (*q)[64], int row, float d, float *out) {
    for (int v = 0; v < 8; v++) {
        const uint8_t *four = q[v] + 4 * row;
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 4; i++)
                out[32 * s + 4 * v + i] = float((four[i] >> 2 * s & 3) - 1) * d;
    }
}

// Adds one bit plane, shifted left, to codes read before.
inline void get1(const uint8_t *h, int row, int shift, uint8_t *out) {
    const uint32_t all = load32(h + 4 * row);
    for (int quad = 0; quad < 8; quad++)
        store32(out + 4 * quad, load32(out + 4 * quad) | (all >> quad & 0x01010101) << shift);
}

// --- floats

// The sixteen values of IQ4_NL and IQ4_XS codes.
const int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

inline float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// Exact; selects instead of branches, so that loops vectorize.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t infinite = magnitude >= 0x7c00 ? 112u << 23 : 0;
    const float small = float(int32_t(magnitude)) * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &small, 4);
    if (magnitude >= 0x0400) bits = (magnitude << 13) + (112u << 23) + infinite;
    return as_float(sign | bits);
}

inline float bfloat_to_float(uint16_t upper) { return as_float(uint32_t(upper) << 16); }

}  // namespace
