// The C interface of the native kernels: the only symbols the library exports.
//
// Written by kernels/cpu/schema.py from its table: change that. Every tensor is contiguous. Sizes
// are int64_t, floats are IEEE single, half is IEEE half as uint16_t. Functions that can fail
// return a status; NK_OK is 0. The library allocates nothing that it does not free, keeps one
// thread pool, and is called by one thread at a time. kernels/reference.py defines the ops.
// clang-format off
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define NK_API __declspec(dllexport)
#else
#define NK_API __attribute__((visibility("default")))
#endif

#define NK_ABI 2
#define NK_MOST_WEIGHTS 3

#ifdef __cplusplus
extern "C" {
#endif

// What a function that can fail returns.
enum nk_status {
    NK_OK = 0,
    NK_BAD_FORMAT = 1,  // no packed layout for this format id
    NK_BAD_SHAPE = 2,  // a size the kernel cannot do
    NK_NO_MEMORY = 3,  // the system refused memory
    NK_NO_THREADS = 4,  // the system refused a thread
    NK_BAD_ISA = 5,  // this processor cannot run that instruction set
};

// How keys and values are held.
enum nk_cache {
    NK_CACHE_F32 = 0,
    NK_CACHE_F16 = 1,
    NK_CACHE_Q8 = 2,  // rotated, then int8 with a half-precision scale for each 32 channels
};

// The function applied to a gate; named as in kernels.program.Activation.
enum nk_activation {
    NK_SILU = 0,
    NK_GELU_TANH = 1,
};

// What an operation of a recorded program computes, from which fields of struct nk_op.
enum nk_kind {
    NK_EMBED = 0,  // out = row ids[t] of weights[0] * scale; count 2: + position's of weights[1]
    NK_NORM = 1,  // out = norm of x; with `quantize`, out is not x, and is quantized
    NK_QUANTIZE = 2,  // x
    NK_LINEAR = 3,  // outs[i] = x * weights[i]; with `activation` only outs[0], gated; `add_to`
    NK_ANGLES = 4,  // out [T, 2 * pairs] = cosines and sines of positions * weight, times scale
    NK_ROPE = 5,  // x, y, z are q, k, v: norms of heads, rotary embedding by `out`, cache write
    NK_ATTEND = 6,  // out = attention of x over the cache; the ROPE of its x stands right before it
    NK_GATE = 7,  // out = activation(x) * y; y -1: no factor
    NK_ADD = 8,  // x += y * scale, where y is left scaled
    NK_SOFTCAP = 9,  // x = cap * tanh(x / cap)
    NK_COLUMNS = 10,  // x = x * weight [width], column by column
    NK_BIAS = 11,  // x = x + weight [width], column by column
};

// Whether threads wait for each other after an operation.
enum nk_joined {
    NK_APART = 0,  // they do
    NK_JOINED = 1,  // they do not: the next operation reads nothing of this one
    NK_COPY_ALONE = 2,  // of one token not: each thread reads its own quantized copy
};

// A matrix [rows, columns] as nk_pack lays it out; see layout.h.
struct nk_weight {
    const void *data;
    int64_t format;  // ggml's id
    int64_t rows, columns;
};

// Keys or values of one layer: [heads, capacity, width].
struct nk_rows {
    void *data;
    uint16_t *scales;  // NK_CACHE_Q8: halves [heads, capacity, (width + 31) / 32]
    int64_t capacity;  // positions there is room for
};

// One operation of a recorded program; x, y, z, out and outs are numbers of buffers.
struct nk_op {
    int32_t kind, joined;  // of nk_kind, of nk_joined
    int32_t quantize;  // NORM (or 0), QUANTIZE: columns that share a scale, 16 or 32
    int32_t x, y, z, out;
    int32_t count;  // weights
    int32_t activation;  // LINEAR: of nk_activation, or -1
    int32_t add_to;  // LINEAR: a buffer that outs[0] is added to; or -1
    int32_t interleaved, layer, pairs;  // pairs: half of the channels that rotate
    int64_t width;  // columns of x
    int64_t heads, kv_heads, head_width, window;
    float epsilon, scale, cap;
    int32_t centred;  // NORM: the layer norm
    const float *weight, *bias, *query_norm, *key_norm, *sinks;
    struct nk_weight weights[3];
    int32_t outs[4];
};

// A pass over tokens as a flat list of operations. Every operation is shared by all threads
// and ends at a barrier, unless it is joined with the next. One quantized copy of a buffer
// exists at a time (of one token, one for each thread): the operation that makes it stands
// right before the products that read it.
struct nk_program {
    const struct nk_op *ops;
    float **buffers;  // [tokens, width] each, with room for the tokens of the run
    const struct nk_rows *keys, *values;  // of every layer
    int64_t cache_type;  // of nk_cache
    int64_t op_bytes;  // sizeof(struct nk_op): two builds cannot misread each other
};

NK_API int nk_abi(void);
// instruction sets this processor runs
NK_API int nk_isa_count(void);
// 0 is the best, the last is scalar
NK_API const char *nk_isa_name(int index);
NK_API int nk_use_isa(int index);
// the caller is one of them
NK_API int nk_set_threads(int threads);
NK_API int nk_threads(void);
// let the waiting threads sleep now
NK_API void nk_idle(void);
// rows packed together; 0: no such layout
NK_API int64_t nk_group_rows(int64_t format);
// columns of activations that share a scale in products: 16 or 32; 0: products of floats
NK_API int nk_activation_group(int64_t format);
NK_API int64_t nk_packed_bytes(int64_t format, int64_t rows, int64_t columns);
// Packs rows first .. end (multiples of the group, or the last row) of `source`, which
// points at row 0 of the file's layout; `packed` points at the start of the whole matrix.
NK_API int nk_pack(int64_t format, const void *source, int64_t rows, int64_t columns, int64_t first,
    int64_t end, void *packed);
NK_API int nk_rows_of(const struct nk_weight *weight, const int64_t *ids, int64_t count, float
    *out);
NK_API int nk_linear(const struct nk_weight *weight, const float *x, int64_t tokens, float *y);
NK_API int nk_rms_norm(const float *x, const float *weight, float epsilon, int64_t tokens, int64_t
    width, float *y);
// bias [width] or null
NK_API int nk_layer_norm(const float *x, const float *weight, const float *bias, float epsilon,
    int64_t tokens, int64_t width, float *y);
NK_API int nk_rope(const float *x, const int64_t *positions, const float *frequencies, int64_t
    tokens, int64_t heads, int64_t width, int64_t pairs, int interleaved, float scale, float *y);
// up may be null: no factor
NK_API int nk_gated(const float *gate, const float *up, int64_t count, int activation, float *y);
NK_API int nk_softcap(const float *x, float cap, int64_t count, float *y);
// q [tokens, heads, width] at `position` on, over a cache that already holds these tokens
// → y [tokens, heads * width]. window 0: all; cap 0: none; sinks [heads] or null.
NK_API int nk_attention(const float *q, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t
    width, int64_t position, int type, const struct nk_rows *keys, const struct nk_rows *values,
    float scale, int64_t window, float cap, const float *sinks, float *y);
// Bytes of scratch that takes at most on so many threads, with a window or without.
NK_API int64_t nk_attention_bytes(int threads, int64_t tokens, int64_t heads, int64_t kv_heads,
    int64_t width, int64_t position, int type);
// bytes a second that all threads read of `bytes` of fresh memory, at best
NK_API double nk_read_bandwidth(int64_t bytes, int repetitions);
// zeroed, 64-byte aligned, in huge pages if it can
NK_API void *nk_huge_alloc(int64_t bytes);
NK_API void nk_huge_free(void *memory, int64_t bytes);
// Runs the operations first .. end for `tokens` tokens that stand at `position` on.
NK_API int nk_run(const struct nk_program *program, int64_t first, int64_t end, int64_t tokens,
    int64_t position, const int64_t *ids);
// gives back the memory that runs have worked in
NK_API void nk_free_scratch(void);

#ifdef __cplusplus
}
#endif
