// Packed weight layouts: tiles of 16 interleaved rows, in the order in which products read them.
//
// Rows form groups of 16 (Q1_0: 64); an incomplete last group is padded with zero scales. A group
// is a sequence of tiles along the columns, and groups are consecutive, so a range of rows is one
// contiguous range of memory.
//
// Inside a tile four columns form a quad. Byte 4 * r + j of a vector of 64 bytes is row r, column 4
// * quad + j:
//   codes of 8 bits: one quad per vector, 8 vectors for 32 columns
//   codes of 4 bits: vector v has quad 2v in its low and quad 2v + 1 in its high nibbles
//   codes of 2 bits: vector v has quad 4v + s in bits 2s and 2s + 1
//   one bit plane:   quad q in bit q, one vector for 32 columns
// Except for TQ2_0 and formats with groups of 128: vector v of 128 columns has quad v of block s in
// bits 2s and 2s + 1. Decoding masks these codes without shifting: their sum is multiplied by a
// power of four, by which the scale is divided.
//
// All codes are unsigned; `kOffset` of a format (formats.inc) is subtracted from each.
#pragma once
#include <stdint.h>

// clang-format off
enum nk_format : int64_t {
    NK_F32 = 0, NK_F16 = 1, NK_Q4_0 = 2, NK_Q4_1 = 3, NK_Q5_0 = 6, NK_Q5_1 = 7, NK_Q8_0 = 8,
    NK_Q2_K = 10, NK_Q3_K = 11, NK_Q4_K = 12, NK_Q5_K = 13, NK_Q6_K = 14, NK_IQ4_NL = 20,
    NK_IQ4_XS = 23, NK_BF16 = 30, NK_TQ1_0 = 34, NK_TQ2_0 = 35, NK_MXFP4 = 39, NK_Q1_0 = 41,
    NK_Q2_0 = 42, NK_F8_E4M3 = 43, NK_F8_E5M2 = 44, NK_PQ2_0 = 142, NK_PTQ1_0 = 143,
    NK_TQ2_0_G128 = 1042,
};
// clang-format on

typedef uint16_t half_t;

// Columns per scale of 8-bit activations; 0: activations stay floats. With groups of 16 an outlier
// channel affects fewer others, which halves the error of a small model's logits. Weights of one
// and two bits have larger errors than that, and their products, bound by arithmetic, need half the
// sums with groups of 32.
static inline int nk_activation_group_size(int64_t format) {
    // clang-format off
    switch (format) {
    case NK_F32: case NK_F16: case NK_BF16: case NK_F8_E4M3: case NK_F8_E5M2: return 0;
    case NK_Q1_0: case NK_Q2_0: case NK_TQ1_0: case NK_TQ2_0:
    case NK_PQ2_0: case NK_PTQ1_0: case NK_TQ2_0_G128: return 32;
    default: return 16;
    }
    // clang-format on
}

// clang-format off
// 32 columns
struct tile_q4_0 { half_t d[16]; uint8_t q[4][64]; };               // Q4_0, IQ4_NL
struct tile_q4_1 { half_t d[16], m[16]; uint8_t q[4][64]; };
struct tile_q5_0 { half_t d[16]; uint8_t q[4][64], h[64]; };
struct tile_q5_1 { half_t d[16], m[16]; uint8_t q[4][64], h[64]; };
struct tile_q8_0 { half_t d[16]; uint8_t q[8][64]; };               // value + 128
struct tile_mxfp4 { uint16_t d[16]; uint8_t q[4][64]; };            // d: bfloat16, halved
struct tile_f8 { half_t d[16]; uint8_t q[32][16]; };                // FP8 codes, column by column
// 64 columns
struct tile_q2_0 { half_t d[16]; uint8_t q[2][2][64]; };
// 128 columns
struct tile_pq2 { half_t d[16]; uint8_t q[8][64]; };  // PQ2_0, TQ2_0_G128, PTQ1_0; see above
// 256 columns
struct tile_tq2 { half_t d[16]; uint8_t q[2][8][64]; };  // TQ2_0, TQ1_0; see above
struct tile_q4_k { half_t d[16], m[16]; uint8_t s[8][16], n[8][16]; uint8_t q[8][4][64]; };
struct tile_q5_k { half_t d[16], m[16]; uint8_t s[8][16], n[8][16], q[8][4][64], h[8][64]; };
struct tile_q6_k { half_t d[16]; int8_t s[16][16]; uint8_t q[8][4][64], h[8][2][64]; };
struct tile_q2_k { half_t d[16], m[16]; uint8_t s[16][16]; uint8_t q[8][2][64]; };  // s: d, m
struct tile_q3_k { half_t d[16]; int8_t s[16][16]; uint8_t q[8][2][64], h[8][64]; };
struct tile_iq4_xs { half_t d[16]; int8_t s[8][16]; uint8_t q[8][4][64]; };
// 128 columns of 64 rows: q[c] has for every row a byte with the signs of columns 8c .. 8c + 7,
// lowest bit first; 1 is positive. Byte p of q[c] is row
// 16 * (p / 8 % 2 * 2 + p / 32) + p / 16 % 2 * 8 + p % 8, so that rows are in order after
// interleaving low and high bytes of a table look-up.
struct tile_q1_0 { half_t d[64]; uint8_t q[16][64]; };
// F32, F16 and BF16: [columns][16 rows] elements.
