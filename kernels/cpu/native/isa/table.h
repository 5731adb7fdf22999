// Kernel table of one instruction set: single-threaded functions, which ops.cpp and step.cpp call
// in parallel.
#pragma once
#include "pack/layout.h"
#include "api/nk.h"

// Quantized activations of a product. Columns are padded with zeros to a multiple of 32. One scale
// for each 16 columns; value = q * scale. A scale is the largest magnitude / 127 of its group: of
// 16 columns, or of 32, with the same scale stored twice; see nk_activation_group_size.
struct nk_act {
    const float *x;      // [tokens, columns] unquantized, for the float formats
    const int8_t *q;     // [tokens, padded]
    const float *scale;  // [tokens, padded / 16]
    const int32_t *sum;  // [tokens, padded / 16] sums of q over 16 columns
    int64_t tokens, columns, padded;
};

// Arguments of an attention over a cache, as in nk_attention.
struct nk_attend {
    const float *q;
    float *y;
    int64_t tokens, heads, kv_heads, width, position;
    int type;
    struct nk_layer_kv keys, values;
    float scale, cap;
    int64_t window;
    const float *sinks;
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
    // up may be null: no factor
    void (*gated)(const float *gate, const float *up, int64_t count, int activation, float *y);
    void (*softcap)(const float *x, float cap, int64_t count, float *y);
    void (*add)(const float *x, const float *y, int64_t count, float *out);  // out may be x
    void (*multiply)(const float *x, float factor, int64_t count, float *out);

    // one head's x [width] → a row of the cache
    void (*cache_row)(const float *x, int64_t width, int type, void *row, uint16_t *scales);
    // Attention consists of independent items, whose partial results are merged after a barrier
    // where necessary. The items depend on the operands alone, not on the number of threads.
    int64_t (*attention_items)(const struct nk_attend *a);
    int64_t (*attention_partial_bytes)(const struct nk_attend *a);   // 0: no merge
    int64_t (*attention_thread_scratch)(const struct nk_attend *a);  // bytes of scratch per thread
    void (*attention_item)(const struct nk_attend *a, int64_t item, void *partials, void *scratch);
    int64_t (*attention_merges)(const struct nk_attend *a);  // number of merge items
    void (*attention_merge)(const struct nk_attend *a, int64_t item, const void *partials);

    uint64_t (*read)(const void *memory,
                     int64_t bytes);  // reads all bytes; the result has no meaning
};

// Whether hardware prefetchers outperform software prefetches on this processor; set by nk_detect.
extern bool nk_hardware_prefetch;

extern const struct nk_table nk_table_zen4, nk_table_avx512, nk_table_avxvnni, nk_table_avx2,
    nk_table_i8mm, nk_table_neon, nk_table_scalar;
