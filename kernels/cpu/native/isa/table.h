// Kernel table of one instruction set: single-threaded functions, which step.cpp calls in
// parallel.
#pragma once
#include "pack/layout.h"
#include "api/nk.h"

// Most tokens whose product reads packed weights directly (generic/few.inc), bound by memory as
// that of one token is; more tokens share panels (generic/prefill.inc).
constexpr int64_t NK_FEW_TOKENS = 16;

// Quantized activations of a product. Columns are padded with zeros to a multiple of 32. One scale
// for each 16 columns; value = q * scale. A scale is the largest magnitude / 127 of its group: of
// 16 columns, or of 32, with the same scale stored twice; see nk_activation_group.
struct nk_act {
    const float *x;      // [tokens, columns] unquantized, for the float formats
    const int8_t *q;     // [tokens, padded]
    const float *scale;  // [tokens, padded / 16]
    const int32_t *sum;  // [tokens, padded / 16] sums of q over 16 columns
    int64_t tokens, columns, padded;
};

enum { NK_TILE_ROWS = 64 };  // most query rows of an attention item

// Arguments of an attention over KV pages, as in the op attention. Causal, or `full`: a query sees
// all positions of its segment, or those at most window / 2 away.
struct nk_attend {
    const float *q;
    float *y;
    int64_t heads, kv_heads, width;
    const struct nk_segment *segments;
    int64_t count;
    int type;
    struct nk_kv_layer layer;
    float scale, cap;
    int64_t window;
    const float *sinks;
    bool full;
    int spans;  // what tokens of a span see: 1 all of it, 2 its later tokens
};

// Part of an attention: query rows of one segment and key/value head against a range of pages, cut
// to those that a row sees. Row r is head r % group of the key/value head's group, of token r /
// group of the segment.
struct nk_attend_item {
    const struct nk_segment *segment;
    int64_t token;  // of the batch: the segment's first
    int64_t kv, row, rows;
    int64_t first_page, end_page;
    // Null: the item has all pages and writes y. Else results of each page are stored for a merge:
    // [rows][partial_pages], from page partial_first on; partial_floats each.
    float *partials;
    int64_t partial_first, partial_pages;
};

// A gated linear recurrence, as in kernels/ops/recurrence.py, whose fields it has.
struct nk_recurrence_args {
    const float *q, *k, *v;         // [T, key_heads * key_width] twice, [T, heads * value_width]
    const float *decay, *strength;  // [T, decays]; [T, heads], or null: the time step
    const float *rate, *decay_bias, *skip;  // [heads], [decays], [heads] or null
    float *y;                               // [T, heads * value_width]; no operand
    int64_t heads, key_heads, key_width, value_width;
    int64_t decays;               // heads, or heads * key_width
    float scale, epsilon, floor;  // floor 0: none; else it needs a strength
    int32_t corrected, tiled;
};

struct nk_table {
    const char *name;
    // x [columns] → q [padded], scale [padded / 16], sum [padded / 16], `group` columns per scale
    void (*quantize)(const float *x, int64_t columns, int group, int8_t *q, float *scale,
                     int32_t *sum);
    // fastest piece of a product of many tokens for one thread: rows and tokens
    void (*linear_piece)(int64_t format, int64_t *rows, int64_t *tokens);
    // y[t * stride + n] for the rows n of the groups first .. end; `scratch` belongs to the thread.
    // `reuse_scratch`: it still contains the sums of the same activations and format
    int64_t (*linear_scratch)(int64_t format, int64_t columns, int64_t tokens);  // bytes
    void (*linear)(const struct nk_weight *w, int64_t first, int64_t end, const struct nk_act *act,
                   float *y, int64_t stride, void *scratch, bool reuse_scratch);

    void (*rms_norm)(const float *x, const float *weight, float epsilon, int64_t width, float *y);
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float epsilon,
                       int64_t width, float *y);
    // one token: x [heads, width] → y; cosine and sine [pairs], already scaled; x may be y
    void (*rope)(const float *x, const float *cosine, const float *sine, int64_t heads,
                 int64_t width, int64_t pairs, int interleaved, float *y);
    // up may be null: no factor; limit 0: none
    void (*gated)(const float *gate, const float *up, int64_t count, int activation, float limit,
                  float *y);
    // instructions that change x in place: elements, or for some a whole row; y or null
    void (*change)(const struct nk_op *op, const float *x, const float *y, int64_t count,
                   float *out);
    void (*add)(const float *x, const float *y, int64_t count, float *out);  // out may be x
    void (*multiply)(const float *x, float factor, int64_t count, float *out);
    void (*multiply_rows)(const float *x, const float *y, int64_t count, float *out);
    // out = x + y * factor
    void (*add_scaled)(const float *x, const float *y, float factor, int64_t count, float *out);

    // Normalized transform of a block of x, a power of two; y may be x.
    void (*hadamard)(const float *x, int64_t block, float *y);
    // Of one token, see kernels/ops/mix_streams.py; y may be x. Columns first .. end of all streams
    // of x [streams, width]; first: a multiple of 16.
    void (*mix_streams)(const float *x, const float *coefficients, int64_t streams, int64_t width,
                        int64_t first, int64_t end, float *y);

    // Columns first .. end of a causal convolution of consecutive rows x, y [tokens, width];
    // states before (null: zeros) and after [taps - 1, width]; x may be y.
    void (*short_conv)(const float *x, const float *weight, const float *bias, const float *before,
                       int64_t tokens, int64_t width, int64_t taps, int64_t first, int64_t end,
                       float *y, float *after);
    // Value columns first .. end of one head, for the rows token .. token + tokens: states of this
    // head, before [key_width, value_width] (null: zeros) and after. `first`: a multiple of 16.
    void (*recurrence)(const struct nk_recurrence_args *r, int64_t head, int64_t first, int64_t end,
                       int64_t token, int64_t tokens, const float *before, float *after,
                       void *scratch);
    int64_t (*recurrence_scratch)(const struct nk_recurrence_args *r);  // bytes per thread

    // Stores the key or value x [width] of one head, at a position of a page.
    void (*page_row)(const float *x, int64_t width, int type, int64_t position, bool value,
                     void *codes, uint16_t *scales);
    // Attention: items are independent; stored results of pages are merged after a barrier. The
    // results do not depend on how rows and pages are split into items.
    int64_t (*partial_floats)(const struct nk_attend *a);
    int64_t (*attention_scratch)(const struct nk_attend *a, int64_t rows);  // bytes per thread
    // `following`: the item whose pages this thread prefetches at the end, or null
    void (*attention_item)(const struct nk_attend *a, const struct nk_attend_item *item,
                           const struct nk_attend_item *following, void *scratch);
    // Merges the pages of one row: `item` has it as row 0, and all pages in its partials.
    void (*attention_merge)(const struct nk_attend *a, const struct nk_attend_item *item);

    uint64_t (*read)(const void *memory,
                     int64_t bytes);  // reads all bytes; the result has no meaning
};

// Whether hardware prefetchers outperform software prefetches on this processor; set by nk_detect.
extern bool nk_hardware_prefetch;

extern const struct nk_table nk_table_zen4, nk_table_avx512, nk_table_avxvnni, nk_table_avx2,
    nk_table_i8mm, nk_table_neon, nk_table_scalar;
