// Softmax attention of up to R queries, which share keys, by the SIMD groups of a thread group.
//
// A SIMD group has every SIMDGROUPS-th tile of 16 keys. Its lanes are positions times two halves of
// the channels while keys are read, and channels while values are. Macros: R rows of queries.
#include "pages.metal"

#define SIMDGROUPS 4

// Sums of the values of the keys seen so far, not yet divided by `total`; lane: every 32nd channel.
struct Attended { float most[R], total[R], sums[R][BLOCKS]; };

// How scores are limited, and the positions of the queries.
struct Limits {
    float scale, cap;
    uint window;  // 0: unlimited
    uint positions[R];
    uint span;  // where the span of the queries begins, if they are in one
    uint last;  // the highest position that any of them sees
};

inline void start(thread Attended &rows) {
    EACH (r, R) {
        rows.most[r] = -INFINITY;
        rows.total[r] = 0.0f;
        EACH (j, BLOCKS) rows.sums[r][j] = 0.0f;
    }
}

// Products of queries [R, ROW] with the key at a page's position `at`; both halves have the sums.
inline void multiply_key(thread float *scores, threadgroup const float *queries,
                         device const uchar *page, Layer layer, uint head, uint at, uint part) {
    EACH (r, R) scores[r] = 0.0f;
#if TYPE == 2
    device const char4 *codes = (device const char4 *)(page + layer.keys + key_place(head, at, 0));
    device const half *scales = (device const half *)(page + layer.key_scales);
    EACH (j, BLOCKS) {
        float sums[R];
        EACH (r, R) sums[r] = 0.0f;
        EACH (i, 4) {
            uint quad = j * 8 + part * 4 + i;
            float4 key = float4(codes[quad * TILE]);
            EACH (r, R) {
                float4 q = *(threadgroup const float4 *)(queries + r * ROW + quad * 4);
                sums[r] = fma(q.x, key.x,
                              fma(q.y, key.y, fma(q.z, key.z, fma(q.w, key.w, sums[r]))));
            }
        }
        float size = float(scales[scale_place(head, at, j)]);
        EACH (r, R) scores[r] = fma(size, sums[r], scores[r]);
    }
#else
    device const Stored *keys = (device const Stored *)(page + layer.keys) + key_place(head, at, 0);
    for (uint c = part * 4; c < C; c += 8) {
        float4 key;
        EACH (i, 4) key[i] = c + i < C ? float(keys[(c + i) * TILE]) : 0.0f;
        EACH (r, R) {
            float4 q = *(threadgroup const float4 *)(queries + r * ROW + c);
            scores[r] = fma(q.x, key.x,
                            fma(q.y, key.y, fma(q.z, key.z, fma(q.w, key.w, scores[r]))));
        }
    }
#endif
    EACH (r, R) scores[r] += simd_shuffle_xor(scores[r], 16);
}

// Add the values of a tile times `shares`, which lane i has of position i.
inline void add_values(thread Attended &rows, thread const float *shares, device const uchar *page,
                       Layer layer, uint head, uint at, uint count, uint lane) {
#if TYPE == 2
    device const half *scales = (device const half *)(page + layer.value_scales);
    for (uint i = 0; i < count; i += 4) {
        device const char4 *codes = (device const char4 *)(page + layer.values +
                                                           value_place(head, at + i, 0));
        char4 some[BLOCKS];
        EACH (j, BLOCKS) some[j] = codes[j * 32 + lane];
        EACH (n, 4) {
            if (i + n >= count) break;
            float mine[R];
            EACH (r, R) mine[r] = simd_shuffle(shares[r], ushort(i + n));
            EACH (j, BLOCKS) {
                float value = float(some[j][n]) * float(scales[scale_place(head, at + i + n, j)]);
                EACH (r, R) rows.sums[r][j] = fma(mine[r], value, rows.sums[r][j]);
            }
        }
    }
#else
    for (uint i = 0; i < count; i++) {
        device const Stored *values = (device const Stored *)(page + layer.values) +
                                      value_place(head, at + i, 0);
        float mine[R];
        EACH (r, R) mine[r] = simd_shuffle(shares[r], ushort(i));
        EACH (j, BLOCKS) {
            uint c = j * 32 + lane;
            float value = c < C ? float(values[c]) : 0.0f;
            EACH (r, R) rows.sums[r][j] = fma(mine[r], value, rows.sums[r][j]);
        }
    }
#endif
}

// Attend to the tile of keys from position `first` on. KIND of a span: as `Spans` of the ops.
template <int KIND>
inline void attend_tile(thread Attended &rows, threadgroup const float *queries,
                        device const uchar *page, Layer layer, uint head, uint first,
                        thread const Limits &limits, uint lane) {
    uint at = first % PAGE, key = first + lane % TILE;
    float scores[R];
    multiply_key(scores, queries, page, layer, head, at + lane % TILE, lane / TILE);
    EACH (r, R) {
        float score = scores[r] * limits.scale;
        if (limits.cap > 0.0f) score = limits.cap * hyperbolic_tangent(score / limits.cap);
        bool seen = key <= limits.positions[r];
        if (limits.window) seen = seen && key + limits.window > limits.positions[r];
        if (KIND) {
            uint begin = KIND == 1 ? limits.span : limits.positions[r];
            seen = seen || (key >= begin && key <= limits.last);
        }
        score = seen ? score : -INFINITY;
        float most = max(rows.most[r], simd_max(score));
        float base = most == -INFINITY ? 0.0f : most;  // no key was seen yet
        float kept = precise::exp(rows.most[r] - base);
        scores[r] = precise::exp(score - base);
        rows.most[r] = most;
        rows.total[r] = fma(rows.total[r], kept, simd_sum(lane < TILE ? scores[r] : 0.0f));
        EACH (j, BLOCKS) rows.sums[r][j] *= kept;
    }
    // Rows of a page that no token was written to may hold anything, NaN too.
    uint count = min(limits.last - first + 1, uint(TILE));
    add_values(rows, scores, page, layer, head, at, count, lane);
}

// The sums of all SIMD groups: `sums` and `parts` of the first one get those of the thread group.
//
// sums [SIMDGROUPS, R, ROW], parts [SIMDGROUPS, 2, R]: maximum and total.
inline void join(thread const Attended &rows, threadgroup float *sums, threadgroup float *parts,
                 uint simdgroup, uint lane) {
    EACH (r, R) {
        EACH (j, BLOCKS) sums[(simdgroup * R + r) * ROW + j * 32 + lane] = rows.sums[r][j];
        if (lane == 0) {
            parts[simdgroup * 2 * R + r] = rows.most[r];
            parts[(simdgroup * 2 + 1) * R + r] = rows.total[r];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = simdgroup; r < R; r += SIMDGROUPS) {
        float most = -INFINITY, total = 0.0f, kept[SIMDGROUPS];
        EACH (s, SIMDGROUPS) most = max(most, parts[s * 2 * R + r]);
        float base = most == -INFINITY ? 0.0f : most;
        EACH (s, SIMDGROUPS) {
            kept[s] = precise::exp(parts[s * 2 * R + r] - base);
            total = fma(parts[(s * 2 + 1) * R + r], kept[s], total);
        }
        for (uint c = lane; c < ROW; c += LANES) {
            float sum = 0.0f;
            EACH (s, SIMDGROUPS) sum = fma(sums[(s * R + r) * ROW + c], kept[s], sum);
            sums[r * ROW + c] = sum;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (lane == 0) {
            parts[r] = most;
            parts[R + r] = total;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// out [C] = the result of a row from its sums; `sums` is changed. By a SIMD group.
inline void finish(threadgroup float *sums, float total, float span_scale, device float *out,
                   uint lane) {
    for (uint c = lane; c < C; c += LANES) sums[c] = sums[c] / total;
    if (TYPE == 2) transform(sums, span_scale, lane);
    for (uint c = lane; c < C; c += LANES) out[c] = sums[c];
}
