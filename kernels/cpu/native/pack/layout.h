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
// All codes are unsigned; `kOffset` of a format is subtracted from each.
//
// formats/ has the formats: a file for those of alike tiles. Its first half is included here: the
// blocks in the byte layout of GGUF files (numbers are little-endian; names follow ggml: d scale, m
// minimum, q codes, ql and qh their low and high bits), the tiles, and for each format a struct of
//   columns                of a block and of its tile
//   put(block, row, tile)  of by_rows: a block becomes row 0 .. 15 of a tile
//   put_group(rows, tile)  of by_groups: all `group` rows; a missing row points to a zero block
//   get(tile, row, out)    f32 [columns] of a row, by the float32 operations of
//                          kernels/weights/decoders.py in the same order
// The second half, which generic/formats.inc includes, unpacks tiles for products.
#pragma once
#include <stdint.h>
#include "formats/words.h"

typedef uint16_t half_t;

namespace {

// activation_group: columns per scale of 8-bit activations; 0: activations stay floats. With groups
// of 16 an outlier channel affects fewer others, which halves the error of a small model's logits.
// Weights of one and two bits have larger errors than that, and their products, bound by
// arithmetic, need half the sums with groups of 32.
struct by_rows {
    static constexpr int group = 16, activation_group = 16;
    static constexpr bool transposed = false;

    // Missing rows of the last group: scale zero and weight zero.
    template <class Tile> static void clear(Tile &t) { memset(&t, 0, sizeof t); }
};

struct by_groups { static constexpr bool transposed = true; };

struct no_format { static constexpr int group = 0; };

// The struct of a format; NK_FORMAT, beside the struct, says which.
template <int64_t> struct FormatOf { typedef no_format type; };
#define NK_FORMAT(name, found) \
    template <> struct FormatOf<NK_##name> { typedef found type; };

}  // namespace

#include "formats/all.inc"
