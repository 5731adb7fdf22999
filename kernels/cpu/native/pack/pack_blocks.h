// Quantization blocks in the byte layout of GGUF files.
//
// All fields are bytes, so blocks need no alignment; numbers are little-endian. Names follow ggml:
// d scale, m minimum, q codes, ql and qh their low and high bits.
#pragma once
#include <stdint.h>

// 32 columns; byte i of `q` has column i in its low and column i + 16 in its high nibble
struct block_q4_0 { uint8_t d[2], q[16]; };  // Q4_0, IQ4_NL
struct block_q4_1 { uint8_t d[2], m[2], q[16]; };
struct block_q5_0 { uint8_t d[2], h[4], q[16]; };  // h: bit i is the fifth bit of column i
struct block_q5_1 { uint8_t d[2], m[2], h[4], q[16]; };
struct block_mxfp4 { uint8_t e, q[16]; };    // e: exponent of two, 127 is one
struct block_q8_0 { uint8_t d[2], q[32]; };  // signed
struct block_f8 { uint8_t q[32], d[2]; };
// 64 columns, four adjacent columns per byte
struct block_q2_0 { uint8_t d[2], q[16]; };
// 128 columns, eight adjacent columns per byte
struct block_q1_0 { uint8_t d[2], q[16]; };
// 128 columns: four adjacent columns per byte, or five or four base-3 digits per byte
struct block_pq2_0 { uint8_t d[2], q[32]; };
struct block_tq2_0_g128 { uint8_t q[32], d[2]; };
struct block_ptq1_0 { uint8_t q[24], h[2], d[2]; };
// 256 columns; 32 bytes contain four groups of 32 2-bit codes, or two groups of 32 4-bit codes
struct block_tq1_0 { uint8_t q[48], h[4], d[2]; };  // five or four base-3 digits per byte
struct block_tq2_0 { uint8_t q[64], d[2]; };
struct block_q2_k { uint8_t s[16], q[64], d[2], m[2]; };  // s: scale low, minimum high
struct block_q3_k { uint8_t h[32], q[64], s[12], d[2]; };
struct block_q4_k { uint8_t d[2], m[2], s[12], q[128]; };
struct block_q5_k { uint8_t d[2], m[2], s[12], h[32], q[128]; };
struct block_q6_k { uint8_t ql[128], qh[64], s[16], d[2]; };
struct block_iq4_xs { uint8_t d[2], sh[2], sl[4], q[128]; };

static_assert(sizeof(block_q4_0) == 18, "Q4_0, IQ4_NL");
static_assert(sizeof(block_q4_1) == 20, "Q4_1");
static_assert(sizeof(block_q5_0) == 22, "Q5_0");
static_assert(sizeof(block_q5_1) == 24, "Q5_1");
static_assert(sizeof(block_mxfp4) == 17, "MXFP4");
static_assert(sizeof(block_q8_0) == 34, "Q8_0");
static_assert(sizeof(block_f8) == 34, "F8_E4M3, F8_E5M2");
static_assert(sizeof(block_q2_0) == 18, "Q2_0");
static_assert(sizeof(block_q1_0) == 18, "Q1_0");
static_assert(sizeof(block_pq2_0) == 34 && sizeof(block_tq2_0_g128) == 34, "groups of 128");
static_assert(sizeof(block_ptq1_0) == 28, "PTQ1_0");
static_assert(sizeof(block_tq1_0) == 54, "TQ1_0");
static_assert(sizeof(block_tq2_0) == 66, "TQ2_0");
static_assert(sizeof(block_q2_k) == 84, "Q2_K");
static_assert(sizeof(block_q3_k) == 110, "Q3_K");
static_assert(sizeof(block_q4_k) == 144, "Q4_K");
static_assert(sizeof(block_q5_k) == 176, "Q5_K");
static_assert(sizeof(block_q6_k) == 210, "Q6_K");
static_assert(sizeof(block_iq4_xs) == 136, "IQ4_XS");
