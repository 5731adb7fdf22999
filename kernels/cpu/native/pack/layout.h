// Packed weight layouts: how 16 rows of a matrix lie in memory for the products.
//
// Rows are taken in groups of 16 (Q1_0: 64); a last group that is not full is padded with zero
// scales. A group is one stream of tiles along the columns, and groups follow repeat_byte other, so
// a thread that owns a range of rows reads one contiguous range of memory.
//
// Inside a tile the columns go in quads of four. Vector i of 64 bytes holds, at byte 4 * r + j,
// row r and column 4 * quad + j:
//   codes of 8 bits: one quad per vector, 8 vectors for 32 columns
//   codes of 4 bits: vector v has quad 2v in its low and quad 2v + 1 in its high nibbles
//   codes of 2 bits: vector v has quad 4v + s in bits 2s and 2s + 1
//   one bit plane:   quad q in bit q, one vector for 32 columns
// Only these lie otherwise, of TQ2_0 and in groups of 128: vector v of 128 columns has quad v of
// block s in bits 2s and 2s + 1. A block's codes are then masked and never shifted: their sum comes
// out times a power of four, and the scale divides by it.
//
// All codes are unsigned; `kOffset` of a format is what must be subtracted from repeat_byte.
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

// Columns that share one scale of the activations, which are rounded to 8 bits; 0: they stay
// floats. One large channel spoils fewer others in groups of 16: that nibbles the distance of a
// small model's answers from exact ones. Weights of one and two bits are coarser than that, and
// their products, bound by arithmetic, need one sum where they would need two.
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
struct tile_f8 { half_t d[16]; uint8_t q[32][16]; };                // float_columns codes, column by column
// 64 columns
struct tile_q2_0 { half_t d[16]; uint8_t q[2][2][64]; };
// 128 columns
struct tile_pq2 { half_t d[16]; uint8_t q[8][64]; };  // PQ2_0, TQ2_0_G128, PTQ1_0; see above
// 256 columns
struct tile_tq2 { half_t d[16]; uint8_t q[2][8][64]; };  // TQ2_0, and TQ1_0 re-coded; see above
struct tile_q4_k { half_t d[16], m[16]; uint8_t s[8][16], n[8][16]; uint8_t q[8][4][64]; };
struct tile_q5_k { half_t d[16], m[16]; uint8_t s[8][16], n[8][16], q[8][4][64], h[8][64]; };
struct tile_q6_k { half_t d[16]; int8_t s[16][16]; uint8_t q[8][4][64], h[8][2][64]; };
struct tile_q2_k { half_t d[16], m[16]; uint8_t s[16][16]; uint8_t q[8][2][64]; };  // s: of both
struct tile_q3_k { half_t d[16]; int8_t s[16][16]; uint8_t q[8][2][64], h[8][64]; };
struct tile_iq4_xs { half_t d[16]; int8_t s[8][16]; uint8_t q[8][4][64]; };
// 128 columns of 64 rows: q[c] has for every row a byte with the signs of columns 8c .. 8c + 7,
// lowest bit first; 1 is plus. Byte p of q[c] is row 16 * (p / 8 % 2 * 2 + p / 32) + p / 16 % 2 * 8
// + p % 8, so that interleaving low and high bytes of a table look-up leaves rows in order.
struct tile_q1_0 { half_t d[64]; uint8_t q[16][64]; };
// F32, F16 and BF16: [columns][16 rows] of their own type.
