// Layout of KV pages as in kernels/states/kv_pages.py: sizes, and the parts of one key/value head.
//
//   keys    f32, f16: [16 tiles][width][16 positions]; Q8: [16 tiles][quads][16 positions][4]
//   values  f32, f16: [256 positions][padded width];   Q8: [64 quads][padded width][4 positions]
//   scales  Q8: [blocks of 32 channels][256 positions] f16
//
// Static functions: each instruction set has a separate copy, see generic/body.inc.
#pragma once
#include "api/nk.h"

enum { NK_PAGE_TILE = 16, NK_PAGE_BLOCK = 32 };

static constexpr int64_t nk_element_bytes(int type) {
    return type == NK_CACHE_F32 ? 4 : type == NK_CACHE_F16 ? 2 : 1;
}
static inline int64_t nk_blocks(int64_t width) {
    return (width + NK_PAGE_BLOCK - 1) / NK_PAGE_BLOCK;
}
// Stored channels of a key and of a value.
static inline int64_t nk_key_width(int type, int64_t width) {
    return type == NK_CACHE_Q8 ? nk_blocks(width) * NK_PAGE_BLOCK : width;
}
static inline int64_t nk_value_width(int type, int64_t width) {
    return type == NK_CACHE_Q8 ? nk_key_width(type, width)
                               : (width + NK_PAGE_TILE - 1) / NK_PAGE_TILE * NK_PAGE_TILE;
}

// Whether a layer stores keys besides values. Latent attention stores one row of a position, which
// is both key and value, in the layout of values; the offsets of both are equal then.
static inline bool nk_has_keys(const nk_kv_layer &layer) { return layer.keys != layer.values; }

// Keys and values of one key/value head in a page; scales: Q8 only. Where the layer stores no keys,
// only the pointers to values are valid.
struct nk_head_page {
    uint8_t *keys, *values;
    uint16_t *key_scales, *value_scales;
};

static inline nk_head_page nk_head_of_page(uint8_t *page, const nk_kv_layer &layer, int type,
                                           int64_t width, int64_t kv) {
    const int64_t rows = kv * NK_PAGE_TOKENS, bytes = nk_element_bytes(type);
    const int64_t scales = 2 * rows * nk_blocks(width);
    return {page + layer.keys + rows * nk_key_width(type, width) * bytes,
            page + layer.values + rows * nk_value_width(type, width) * bytes,
            (uint16_t *)(page + layer.key_scales + scales),
            (uint16_t *)(page + layer.value_scales + scales)};
}

// A text that is read in both directions has pages too, of one layer in f32, only while it is read:
// a segment, its page table, and the pages are in memory of the caller.
static inline nk_kv_layer nk_text_layer(int64_t kv_heads, int64_t width) {
    const int64_t keys = nk_key_width(NK_CACHE_F32, width);
    return {0, 0, 0, 4 * kv_heads * NK_PAGE_TOKENS * keys, 0};
}
static inline int64_t nk_text_page_bytes(int64_t kv_heads, int64_t width) {
    const int64_t values = 4 * kv_heads * NK_PAGE_TOKENS * nk_value_width(NK_CACHE_F32, width);
    return (nk_text_layer(kv_heads, width).values + values + 63) / 64 * 64;
}
static inline int64_t nk_text_table_bytes(int64_t tokens) {
    const int64_t pages = (tokens + NK_PAGE_TOKENS - 1) / NK_PAGE_TOKENS;
    return ((pages + 1) * (int64_t)sizeof(uint8_t *) + 63) / 64 * 64;
}
static inline int64_t nk_text_bytes(int64_t tokens, int64_t page_bytes) {
    const int64_t pages = (tokens + NK_PAGE_TOKENS - 1) / NK_PAGE_TOKENS;
    return nk_text_table_bytes(tokens) + pages * page_bytes;
}
static inline nk_segment nk_text_at(uint8_t *memory, int64_t tokens, int64_t page_bytes) {
    uint8_t **table = (uint8_t **)memory + 1, *page = memory + nk_text_table_bytes(tokens);
    *(uint8_t ***)memory = table;  // of the only group
    for (int64_t at = 0; at < tokens; at += NK_PAGE_TOKENS, page += page_bytes) *table++ = page;
    return {tokens, 0, (uint8_t ***)memory, nullptr};
}
