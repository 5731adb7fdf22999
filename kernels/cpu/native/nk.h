// The C interface of the native kernels: the only symbols the library exports.
//
// Every tensor is contiguous. Sizes are int64_t, floats are IEEE single, half is IEEE half as
// uint16_t. Functions that can fail return a status; NK_OK is 0. The library allocates nothing
// that it does not free, keeps one thread pool, and is called by one thread at a time.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define NK_API __declspec(dllexport)
#else
#define NK_API __attribute__((visibility("default")))
#endif

#define NK_ABI 1

#ifdef __cplusplus
extern "C" {
#endif

enum nk_status {
    NK_OK = 0,
    NK_BAD_FORMAT = 1,  // no packed layout for this format id
    NK_BAD_SHAPE = 2,   // a size the kernel cannot do
    NK_NO_MEMORY = 3,
    NK_NO_THREADS = 4,  // the system refused a thread
    NK_BAD_ISA = 5,     // this processor cannot run that instruction set
};

// A matrix [rows, columns] as nk_pack has laid it out; see layout.h.
struct nk_weight {
    const void *data;
    int64_t format;  // ggml's id
    int64_t rows;
    int64_t columns;
};

// Bytes of one cache row of one head: how keys and values are held.
enum nk_cache { NK_CACHE_F32 = 0, NK_CACHE_F16 = 1, NK_CACHE_Q8 = 2 };

// Keys or values of one layer: [heads, capacity, width]; scales only for NK_CACHE_Q8,
// halves [heads, capacity, (width + 31) / 32], each for 32 channels.
struct nk_rows {
    void *data;
    uint16_t *scales;
    int64_t capacity;  // positions there is room for
};

NK_API int nk_abi(void);

// --- instruction sets: index 0 is the best this processor runs
NK_API int nk_isa_count(void);
NK_API const char *nk_isa_name(int index);  // "zen4", "avx512", "avxvnni", "avx2", "i8mm", "neon", "scalar"
NK_API int nk_use_isa(int index);

// --- threads: the caller is one of them
NK_API int nk_set_threads(int threads);
NK_API int nk_threads(void);
NK_API int nk_active_threads(void);  // of the last run: fewer when a core was found busy
NK_API void nk_idle(void);           // let the waiting threads sleep now

// --- weights
NK_API int64_t nk_group_rows(int64_t format);  // rows that are packed together; 0: no such layout
// Columns of activations that share a scale in products with that format: 16 or 32.
NK_API int nk_activation_group(int64_t format);
NK_API int64_t nk_packed_bytes(int64_t format, int64_t rows, int64_t columns);
// Packs rows first .. end (multiples of the group, or the last row) of `source`, which points at
// row 0 of the file's layout; `packed` points at the start of the whole matrix.
NK_API int nk_pack(int64_t format, const void *source, int64_t rows, int64_t columns,
                   int64_t first, int64_t end, void *packed);
NK_API int nk_rows_of(const struct nk_weight *weight, const int64_t *ids, int64_t count, float *out);

// --- ops on float tensors, as kernels/reference.py defines them
NK_API int nk_linear(const struct nk_weight *weight, const float *x, int64_t tokens, float *y);
NK_API int nk_rms_norm(const float *x, const float *weight, float epsilon, int64_t tokens,
                       int64_t width, float *y);
// bias [width] or null
NK_API int nk_layer_norm(const float *x, const float *weight, const float *bias, float epsilon,
                         int64_t tokens, int64_t width, float *y);
NK_API int nk_rope(const float *x, const int64_t *positions, const float *frequencies,
                   int64_t tokens, int64_t heads, int64_t width, int64_t pairs, int interleaved,
                   float scale, float *y);
// up may be null: no factor
NK_API int nk_gated(const float *gate, const float *up, int64_t count, int activation, float *y);
NK_API int nk_softcap(const float *x, float cap, int64_t count, float *y);
// Writes keys or values [tokens, heads, width] at `position` on.
NK_API int nk_cache_write(const float *x, int64_t tokens, int64_t heads, int64_t width,
                          int64_t position, int type, const struct nk_rows *cache);
// q [tokens, heads, width] at `position` on, over the cache, which holds them already
// → y [tokens, heads * width]. window 0: all; cap 0: none; sinks [heads] or null.
NK_API int nk_attention(const float *q, int64_t tokens, int64_t heads, int64_t kv_heads,
                        int64_t width, int64_t position, int type, const struct nk_rows *keys,
                        const struct nk_rows *values, float scale, int64_t window, float cap,
                        const float *sinks, float *y);
// Bytes of scratch that takes at most on so many threads, with a window or without.
NK_API int64_t nk_attention_bytes(int threads, int64_t tokens, int64_t heads, int64_t kv_heads,
                                  int64_t width, int64_t position, int type);
NK_API int64_t nk_argmax(const float *x, int64_t count);  // the lowest index of the largest

// --- what the machine can do: bytes read per second by all threads from `bytes` of fresh memory
NK_API double nk_read_bandwidth(int64_t bytes, int repetitions);
NK_API void *nk_huge_alloc(int64_t bytes);  // zeroed, 64-byte aligned, huge pages where there are
NK_API void nk_huge_free(void *memory, int64_t bytes);

#ifdef __cplusplus
}
#endif
