// Recorded programs: a whole pass over tokens as one flat list of operations on numbered buffers.
//
// A buffer holds a row of floats for each token. Every operation is shared by all threads and ends
// at a barrier, unless it is `joined` with the next. One quantized copy of a buffer exists at a
// time, of one token one for each thread: the operation that makes it stands right before the
// products that read it.
#pragma once
#include "nk.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NK_MOST_WEIGHTS 3

enum nk_kind {
    NK_EMBED = 0,     // out = row ids[t] of weights[0] * scale; count 2: + row `position` of weights[1]
    NK_NORM = 1,      // out = norm of x with weight, epsilon; where `quantize`, out is another buffer, and quantized
    NK_QUANTIZE = 2,  // x
    NK_LINEAR = 3,    // outs[i] = x * weights[i]; with `activation` only outs[0], gated; `add_to`
    NK_ANGLES = 4,    // out [T, 2 * pairs] = cosines and sines of positions * weight, times scale
    NK_TURN = 5,      // x, y, z are q, k, v: norms of heads, rotation by `out`, cache write
    NK_ATTEND = 6,    // out = attention of x over the cache; the NK_TURN of its x stands right before it
    NK_GATE = 7,      // out = activation(x) * y; y -1: no factor
    NK_ADD = 8,       // x += y * scale, where y is left scaled
    NK_SOFTCAP = 9,   // x = cap * tanh(x / cap)
    NK_COLUMNS = 10,  // x = x * weight [width], column by column
    NK_BIAS = 11,     // x = x + weight [width], column by column
};

enum nk_joined {
    NK_APART = 0,
    NK_JOINED = 1,      // no barrier after: the next reads nothing of this
    NK_COPY_ALONE = 2,  // none when it is one token: the next reads nothing but the quantized copy
};

struct nk_op {
    int32_t kind;
    int32_t joined;      // of nk_joined
    int32_t quantize;    // NK_NORM (or 0), NK_QUANTIZE: columns at once, 16 or 32
    int32_t x, y, z, out;
    int32_t count;       // weights
    int32_t activation;  // NK_LINEAR: of nk_activation, or -1
    int32_t add_to;      // NK_LINEAR: a buffer that takes up the sum of itself and outs[0]; or -1
    int32_t interleaved, layer, pairs;
    int64_t width;       // columns of x
    int64_t heads, kv_heads, head_width, window;
    float epsilon, scale, cap;
    int32_t centred;     // NK_NORM: the layer norm
    const float *weight, *bias, *query_norm, *key_norm, *sinks;
    struct nk_weight weights[NK_MOST_WEIGHTS];
    int32_t outs[4];
};

struct nk_program {
    const struct nk_op *ops;
    float **buffers;            // [tokens, width] each, with room for the tokens of the run
    const struct nk_rows *keys;  // of every layer
    const struct nk_rows *values;
    int64_t cache_type;
    int64_t op_bytes;           // sizeof(struct nk_op), so that two builds cannot misread each other
};

// Runs the operations first .. end for `tokens` tokens that stand at `position` on.
NK_API int nk_run(const struct nk_program *program, int64_t first, int64_t end, int64_t tokens,
                  int64_t position, const int64_t *ids);
// Bytes the last runs have grown their scratch to, and giving it back.
NK_API int64_t nk_scratch_bytes(void);
NK_API void nk_free_scratch(void);

#ifdef __cplusplus
}
#endif
