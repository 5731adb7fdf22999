// The kernels of one instruction set: functions for one thread; ops.cpp and step.cpp share the
// work.
#pragma once
#include "pack/layout.h"
#include "api/nk.h"

// Rows of activations as products read them. Columns are padded with zeros to a multiple of 32.
// For each 16 columns a float scale; value = q * scale. It is the largest magnitude / 127 of those
// 16, or the same for two neighbours, of those 32: what nk_activation_group_size says of the
// weights.
struct nk_act {
    const float *x;      // [tokens, columns] as they were, for the float formats
    const int8_t *q;     // [tokens, padded]
    const float *scale;  // [tokens, padded / 16]
    const int32_t *sum;  // [tokens, padded / 16] sums of q over 16 columns
    int64_t tokens, columns, padded;
};

// One attention over a cache; operands as in nk_attention.
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
    // x [columns] → q [padded], scale [padded / 16], sum [padded / 16], `group` columns at once
    void (*quantize)(const float *x, int64_t columns, int group, int8_t *q, float *scale,
                     int32_t *sum);
    // The best piece for one thread of a product of many tokens: rows and tokens
    void (*linear_piece)(int64_t format, int64_t *rows, int64_t *tokens);
    // y[t * stride + n] for the rows n of the groups first .. end; `scratch` is this thread's own.
    // `reuse_scratch`: it holds the last product's sums, of the same activations and format
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

    // one head's row x [width] → the cache's row
    void (*cache_row)(const float *x, int64_t width, int type, void *row, uint16_t *scales);
    // Attention is cut into independent items, then (after a barrier) merged where it needs to be.
    // The cut depends on the operands alone, never on the number of threads.
    int64_t (*attention_items)(const struct nk_attend *a);
    int64_t (*attention_partial_bytes)(
        const struct nk_attend *a);  // bytes of partial results, 0: no merge
    int64_t (*attention_thread_scratch)(
        const struct nk_attend *a);  // bytes of scratch for one thread
    void (*attention_item)(const struct nk_attend *a, int64_t item, void *shared, void *own);
    int64_t (*attention_merges)(const struct nk_attend *a);  // number of merge items
    void (*attention_merge)(const struct nk_attend *a, int64_t item, const void *shared);

    uint64_t (*read)(const void *memory, int64_t bytes);  // reads it all; the result is meaningless
};

// Whether this processor's hardware prefetchers are better than software prefetches; set by
// nk_detect.
extern bool nk_hardware_prefetch;

extern const struct nk_table nk_table_zen4, nk_table_avx512, nk_table_avxvnni, nk_table_avx2,
    nk_table_i8mm, nk_table_neon, nk_table_scalar;
