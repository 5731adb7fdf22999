// KV pages, in the layout of kernels/states/kv_pages.py, and the heads that are read and written
// there.
//
// Pages lie in at most CHUNKS buffers. An entry of a page table is the number of a buffer, from bit
// 48 on, and where the page starts in it. Macros: TYPE of the cache, 0 float, 1 half, 2 char with
// scales; C channels of a head; PAIRS of channels that RoPE rotates, INTERLEAVED or not; NORM:
// heads are normed before; TURNS: RoPE positions differ between pairs; SPAN channels of a Hadamard
// transform, in ROUNDS.

#define CHUNKS 16  // as in arena.py
#define PAGE 256   // positions
#define TILE 16    // positions whose keys are next to each other
#define BLOCKS ((C + 31) / 32)
#define ROW (BLOCKS * 32)  // floats of a head in the memory of a thread group
#define LANE_PAIRS ((C / 2 + LANES) / LANES)

#if TYPE == 0
typedef float Stored;
#elif TYPE == 1
typedef half Stored;
#else
typedef char Stored;
#endif

struct Chunks { device uchar *of[CHUNKS]; };

// Where the parts of a layer start in a page, bytes.
struct Layer { ulong keys, key_scales, values, value_scales; };

inline Layer layer_of(constant long *p) {
    Layer made;
    made.keys = p[0];
    made.key_scales = p[1];
    made.values = p[2];
    made.value_scales = p[3];
    return made;
}

inline device uchar *page_at(Chunks chunks, device const long *table, uint index) {
    ulong place = ulong(table[index]);
    uint chunk = uint(place >> 48);
    device uchar *found = chunks.of[0];
    EACH (i, CHUNKS)
        if (chunk == i) found = chunks.of[i];
    return found + (place & 0xFFFFFFFFFFFFul);
}

// Place of a channel at a page's position, in elements.
inline uint key_place(uint head, uint at, uint c) {
    uint tile = head * (PAGE / TILE) + at / TILE;
    if (TYPE == 2) return tile * (ROW * TILE) + c / 4 * (TILE * 4) + at % TILE * 4 + c % 4;
    return tile * (C * TILE) + c * TILE + at % TILE;
}

inline uint value_place(uint head, uint at, uint c) {
    if (TYPE == 2) return (head * (PAGE / 4) + at / 4) * (ROW * 4) + c * 4 + at % 4;
    return (head * PAGE + at) * ((C + 15) / 16 * 16) + c;
}

inline uint scale_place(uint head, uint at, uint block) {
    return (head * BLOCKS + block) * PAGE + at;
}

// --- by a SIMD group -----------------------------------------------------------------------------

// A lane reads and writes every 32nd channel of a head in the memory of a thread group, so that one
// function can follow another without a barrier; `transform` has its own.

// What norm and RoPE of heads need.
struct Rotation {
    device const float *frequencies;  // [PAIRS]
    float epsilon, rope_scale, position;
    device const long *turns;  // [PAIRS], with TURNS: positions of the pairs
};

// y = norm and RoPE of a head x; zeros from C on.
inline void rotate(device const float *x, device const float *norm, Rotation how,
                   threadgroup float *y, uint lane) {
    float factor = 1.0f;
    if (NORM) {
        float squares = 0.0f;
        for (uint c = lane; c < C; c += LANES) squares = fma(x[c], x[c], squares);
        factor = precise::rsqrt(simd_sum(squares) / float(C) + how.epsilon);
    }
    for (uint c = lane; c < ROW; c += LANES) {
        float value = 0.0f;
        if (c < C) value = NORM ? x[c] * factor * norm[c] : x[c];
        if (c < 2 * PAIRS) {
            uint partner = INTERLEAVED ? c ^ 1 : c < PAIRS ? c + PAIRS : c - PAIRS;
            uint pair = INTERLEAVED ? c / 2 : c < PAIRS ? c : c - PAIRS;
            bool first = INTERLEAVED ? c % 2 == 0 : c < PAIRS;
            float other = NORM ? x[partner] * factor * norm[partner] : x[partner];
            float turn = TURNS ? float(how.turns[pair]) : how.position;
            float angle = turn * how.frequencies[pair];
            float cosine = precise::cos(angle) * how.rope_scale,
                  sine = precise::sin(angle) * how.rope_scale;
            value = first ? value * cosine - other * sine : value * cosine + other * sine;
        }
        y[c] = value;
    }
}

inline void copy_head(device const float *x, threadgroup float *y, uint lane) {
    for (uint c = lane; c < ROW; c += LANES) y[c] = c < C ? x[c] : 0.0f;
}

// Hadamard transform of a head, in the order of additions of kernels/states/quantized_kv.py.
//
// Its result is multiplied by `scale`, one over the square root of SPAN.
inline void transform(threadgroup float *y, float scale, uint lane) {
    const uint half_span = SPAN > 1 ? SPAN / 2 : 1;
    for (uint round = 0; round < ROUNDS; round++) {
        float first[LANE_PAIRS], second[LANE_PAIRS];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        EACH (n, LANE_PAIRS) {
            uint i = n * LANES + lane;
            if (i >= C / 2) continue;
            uint from = i / half_span * SPAN + i % half_span;
            first[n] = y[from];
            second[n] = y[from + half_span];
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        EACH (n, LANE_PAIRS) {
            uint i = n * LANES + lane;
            if (i >= C / 2) continue;
            uint to = i / half_span * SPAN + i % half_span * 2;
            y[to] = first[n] + second[n];
            y[to + 1] = first[n] - second[n];
        }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = lane; c < C; c += LANES) y[c] *= scale;
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Write a head y to the position `at` of a page, rounded to the cache's type; y is changed.
inline void store_head(threadgroup float *y, bool is_key, device uchar *page, Layer layer,
                       uint head, uint at, float span_scale, uint lane) {
    device Stored *part = (device Stored *)(page + (is_key ? layer.keys : layer.values));
#if TYPE == 2
    device half *scales = (device half *)(page + (is_key ? layer.key_scales : layer.value_scales));
    for (uint c = lane; c < ROW; c += LANES) y[c] = min(max(y[c], -65504.0f), 65504.0f);
    transform(y, span_scale, lane);
    EACH (block, BLOCKS) {
        uint c = block * 32 + lane;
        float x = y[c];
        // The least scale with which codes from -128 to 127 cover a block.
        float size = max(simd_max(x) / 127.0f, simd_max(-x) / 128.0f);
        half rounded = half(fabs(min(size, 65504.0f)));
        float exact = float(rounded), step = exact > 0.0f ? 1.0f / exact : 0.0f;
        float code = min(max(rint(x * step), -128.0f), 127.0f);
        part[is_key ? key_place(head, at, c) : value_place(head, at, c)] = char(int(code));
        if (lane == 0) scales[scale_place(head, at, block)] = rounded;
    }
#else
    uint count = is_key ? C : (C + 15) / 16 * 16;
    for (uint c = lane; c < count; c += LANES) {
        float x = y[c];
        if (TYPE == 1)  // an infinity would stay
            x = min(max(x, -65504.0f), 65504.0f);
        part[is_key ? key_place(head, at, c) : value_place(head, at, c)] = Stored(x);
    }
#endif
}
