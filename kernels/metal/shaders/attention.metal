// Attention over KV pages: of one token for each sequence, and of the tokens of a prompt.
//
// Macros, beside those of attending.metal: G heads of queries share keys and values, and WRITE: k
// and v are given. Lengths, positions and pages are read from memory, so that a launch that was
// prepared once serves any of them.
#include "attending.metal"

#define ROW_BLOCKS ((G + R - 1) / R)

// Attention of one token of each sequence, from q, k and v as products left them.
//
// Norm and RoPE of q and k, k and v to their page, softmax over the pages. Thread groups: splits of
// the keys, kv heads times blocks of R query heads, sequences. With one split the result goes to
// `out` [B, H * C], else the sums of each, its maximum and total to `partial` [B, H, splits, C +
// 2].
kernel void attend_step(
    device const float *q, device const float *k, device const float *v, device float *out,
    device float *partial, device const long *positions, device const long *turns,
    device const long *tables, device const float *query_norm, device const float *key_norm,
    device const float *frequencies, device uchar *a0, device uchar *a1, device uchar *a2,
    device uchar *a3, device uchar *a4, device uchar *a5, device uchar *a6, device uchar *a7,
    device uchar *a8, device uchar *a9, device uchar *a10, device uchar *a11, device uchar *a12,
    device uchar *a13, device uchar *a14, device uchar *a15, constant long *p, constant float *f,
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 held[R * ROW / 4];  // aligned for loads of four
    threadgroup float *queries = (threadgroup float *)held;
    threadgroup float sums[SIMDGROUPS * R * ROW];
    threadgroup float parts[SIMDGROUPS * 2 * R];
    Chunks chunks = {{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15}};
    Layer layer = layer_of(p);
    uint window = uint(p[4]), width = uint(p[5]);
    uint sequence = group.z, head = group.y / ROW_BLOCKS, first_row = group.y % ROW_BLOCKS * R;
    uint kv_heads = groups.y / ROW_BLOCKS, splits = groups.x;
    uint position = uint(positions[sequence]);
    device const long *table = tables + sequence * width;
    Rotation how = {frequencies, f[0], f[1], float(position), turns + sequence * PAIRS};
    float span_scale = f[4];

    uint first = window && position >= window ? (position - window + 1) / TILE : 0,
         end = position / TILE + 1;
    uint share = (end - first + splits - 1) / splits;
    uint from = first + group.x * share, to = min(from + share, end);
    // Whoever reads the last tile writes its last row; the blocks of a head write the same bits.
    if (WRITE && from < end && to == end && simdgroup < 2) {
        device const float *row = (simdgroup == 0 ? k : v) + (sequence * kv_heads + head) * C;
        threadgroup float *made = sums + simdgroup * ROW;
        if (simdgroup == 0) rotate(row, key_norm, how, made, lane);
        else copy_head(row, made, lane);
        device uchar *page = page_at(chunks, table, position / PAGE);
        store_head(made, simdgroup == 0, page, layer, head, position % PAGE, span_scale, lane);
    }
    for (uint r = simdgroup; r < R; r += SIMDGROUPS) {
        uint row = (sequence * kv_heads + head) * G + min(first_row + r, uint(G - 1));
        rotate(q + row * C, query_norm, how, queries + r * ROW, lane);
        if (TYPE == 2) transform(queries + r * ROW, span_scale, lane);
    }
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);

    Limits limits;
    limits.scale = f[2];
    limits.cap = f[3];
    limits.window = window;
    limits.last = position;
    EACH (r, R) limits.positions[r] = position;
    Attended rows;
    start(rows);
    for (uint tile = from + simdgroup; tile < to; tile += SIMDGROUPS) {
        device const uchar *page = page_at(chunks, table, tile * TILE / PAGE);
        attend_tile<0>(rows, queries, page, layer, head, tile * TILE, limits, lane);
    }
    join(rows, sums, parts, simdgroup, lane);
    for (uint r = simdgroup; r < R && first_row + r < G; r += SIMDGROUPS) {
        uint row = (sequence * kv_heads + head) * G + first_row + r;
        if (splits == 1) {
            finish(sums + r * ROW, parts[R + r], span_scale, out + row * C, lane);
            continue;
        }
        device float *mine = partial + (row * splits + group.x) * (C + 2);
        for (uint c = lane; c < C; c += LANES) mine[c] = sums[r * ROW + c];
        if (lane < 2) mine[C + lane] = parts[lane * R + r];
    }
}

// out [rows, C] from the parts of each row; one SIMD group a row.
kernel void combine(device const float *partial, device float *out, constant long &splits,
                    constant float &span_scale, uint row [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums[ROW];
    device const float *parts = partial + row * uint(splits) * (C + 2);
    float most = -INFINITY, total = 0.0f;
    for (uint i = 0; i < uint(splits); i++) most = max(most, parts[i * (C + 2) + C]);
    for (uint c = lane; c < C; c += LANES) sums[c] = 0.0f;
    for (uint i = 0; i < uint(splits); i++) {
        device const float *one = parts + i * (C + 2);
        float kept = precise::exp(one[C] - most);
        total = fma(one[C + 1], kept, total);
        for (uint c = lane; c < C; c += LANES) sums[c] = fma(one[c], kept, sums[c]);
    }
    finish(sums, total, span_scale, out + row * C, lane);
}

// Norm and RoPE of the queries of a segment, in place; its keys and values to their pages.
//
// A SIMD group for each head of queries and then of keys, of each token from `start` on.
kernel void append_rows(device float *q, device const float *k, device const float *v,
                        device const long *turns, device const long *table,
                        device const float *query_norm, device const float *key_norm,
                        device const float *frequencies, device uchar *a0, device uchar *a1,
                        device uchar *a2, device uchar *a3, device uchar *a4, device uchar *a5,
                        device uchar *a6, device uchar *a7, device uchar *a8, device uchar *a9,
                        device uchar *a10, device uchar *a11, device uchar *a12, device uchar *a13,
                        device uchar *a14, device uchar *a15, constant long *p, constant float *f,
                        uint2 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float row[ROW];
    Chunks chunks = {{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15}};
    Layer layer = layer_of(p);
    uint heads = uint(p[5]), kv_heads = heads / G, token = group.y, position = uint(p[4]) + token;
    Rotation how = {frequencies, f[0], f[1], float(position), turns + ulong(token) * PAIRS};
    if (group.x < heads) {
        device float *x = q + (ulong(token) * heads + group.x) * C;
        rotate(x, query_norm, how, row, lane);
        simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        for (uint c = lane; c < C; c += LANES) x[c] = row[c];
        return;
    }
    uint number = group.x - heads;
    ulong at = (ulong(token) * kv_heads + number) * C;
    device uchar *page = page_at(chunks, table, position / PAGE);
    rotate(k + at, key_norm, how, row, lane);
    store_head(row, true, page, layer, number, position % PAGE, f[4], lane);
    copy_head(v + at, row, lane);
    store_head(row, false, page, layer, number, position % PAGE, f[4], lane);
}

// Attention of a segment's queries, rotated, whose keys are in their pages → out [tokens, H * C].
//
// Thread groups: blocks of R rows, kv heads; row r is head r % G of token r / G.
kernel void attend_rows(device const float *q, device float *out, device const long *table,
                        device uchar *a0, device uchar *a1, device uchar *a2, device uchar *a3,
                        device uchar *a4, device uchar *a5, device uchar *a6, device uchar *a7,
                        device uchar *a8, device uchar *a9, device uchar *a10, device uchar *a11,
                        device uchar *a12, device uchar *a13, device uchar *a14, device uchar *a15,
                        constant long *p, constant float *f,
                        uint2 group [[threadgroup_position_in_grid]],
                        uint2 groups [[threadgroups_per_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 held[R * ROW / 4];  // aligned for loads of four
    threadgroup float *queries = (threadgroup float *)held;
    threadgroup float sums[SIMDGROUPS * R * ROW];
    threadgroup float parts[SIMDGROUPS * 2 * R];
    Chunks chunks = {{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15}};
    Layer layer = layer_of(p);
    uint start_position = uint(p[4]), window = uint(p[5]), rows_of_head = uint(p[6]) * G;
    uint head = group.y, kv_heads = groups.y, first_row = group.x * R;
    Limits limits;
    limits.scale = f[2];
    limits.cap = f[3];
    limits.window = window;
    EACH (r, R) limits.positions[r] = start_position + min(first_row + r, rows_of_head - 1) / G;
    limits.span = start_position;
    limits.last = SPANS ? start_position + uint(p[6]) - 1 : limits.positions[R - 1];
    for (uint r = simdgroup; r < R; r += SIMDGROUPS) {
        uint row = min(first_row + r, rows_of_head - 1);
        ulong at = (ulong(row / G) * kv_heads + head) * G + row % G;
        copy_head(q + at * C, queries + r * ROW, lane);
        if (TYPE == 2) transform(queries + r * ROW, f[4], lane);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint position = limits.positions[0];
    uint first = window && position >= window ? (position - window + 1) / TILE : 0;
    if (SPANS == 1) first = min(first, start_position / TILE);
    Attended rows;
    start(rows);
    for (uint tile = first + simdgroup; tile <= limits.last / TILE; tile += SIMDGROUPS) {
        device const uchar *page = page_at(chunks, table, tile * TILE / PAGE);
        attend_tile<SPANS>(rows, queries, page, layer, head, tile * TILE, limits, lane);
    }
    join(rows, sums, parts, simdgroup, lane);
    for (uint r = simdgroup; r < R && first_row + r < rows_of_head; r += SIMDGROUPS) {
        uint row = first_row + r;
        ulong at = (ulong(row / G) * kv_heads + head) * G + row % G;
        finish(sums + r * ROW, parts[R + r], f[4], out + at * C, lane);
    }
}
