// Runs recorded programs: one call executes all operations of a forward pass on all threads.
//
// Decoding (products of one or a few tokens, bound by memory): each thread gets one long contiguous
// range of rows, because with interleaved small ranges the hardware prefetchers of the cores fetch
// each other's lines. Cores differ in speed, so the last eighth of a large product is split into
// pieces that threads claim dynamically. Prefill (products of many tokens, bound by arithmetic):
// all work is claimed dynamically, in pieces of rows and (where faster) tokens.
#include "api/nk.h"

#include <math.h>

#include "isa/current.h"
#include "pack/rows.h"
#include "run/attention_plan.h"
#include "run/pool.h"
#include "run/route.h"
#include "isa/table.h"

namespace {

// Minimum bytes of weights in a piece: smaller pieces cost more by claiming them and by
// interrupting sequential reads than they save at the barrier.
constexpr int64_t kPieceBytes = 128 << 10;
// Products with fewer bytes of weights are split by tokens: a core reads them from its own cache,
// and tokens stay on the core that computed them. At least so many tokens are in a piece.
constexpr int64_t kCachedBytes = 1 << 20, kPieceTokens = 32;

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t padded(int64_t width) { return (width + 31) / 32 * 32; }

// Memory of a run: places of its rows, quantized activations, partial results of attention, scratch
// of each thread.
struct Scratch {
    uint8_t *memory;
    int64_t bytes;

    void free() {
        if (memory) nk_huge_free(memory, bytes);
        memory = nullptr;
        bytes = 0;
    }
};

// Where a row of the batch is.
struct Row {
    int64_t position;
    const nk_segment *segment;
};

struct Run {
    const nk_program *program;
    const nk_table *table;
    int64_t first, end, tokens;  // tokens of all segments
    const nk_segment *segments;
    int64_t count, threads;   // segments; threads that attention is planned for
    Row *rows;                // [tokens]
    const nk_segment *texts;  // [count] the segments with pages of this run, for `full` operations
    const int64_t *ids;
    uint8_t *quantized, *partials, *thread_scratch;
    int64_t quantized_bytes, thread_scratch_bytes;
    int64_t *claimed;  // number of claimed pieces of each operation

    float *buffer(int32_t number) const { return program->buffers[number]; }
    uint8_t *scratch_of(int thread) const { return thread_scratch + thread * thread_scratch_bytes; }
};

// Quantized activations: q [tokens, padded], scale and sum [tokens, padded / 16].
struct QuantizedTokens {
    int8_t *q;
    float *scale;
    int32_t *sum;
};

int64_t quantized_bytes(int64_t tokens, int64_t padded) {
    return rounded(tokens * padded) + 2 * rounded(tokens * padded / 4);
}

QuantizedTokens quantized_at(uint8_t *at, int64_t tokens, int64_t padded) {
    uint8_t *scale = at + rounded(tokens * padded), *sum = scale + rounded(tokens * padded / 4);
    return {(int8_t *)at, (float *)scale, (int32_t *)sum};
}

// For a single token every thread quantizes a private copy: a row is short, so this costs less than
// a barrier and moving cache lines between cores.
QuantizedTokens quantized_of(const Run &run, int thread, int64_t padded) {
    return quantized_at(run.quantized + (run.tokens == 1 ? thread * run.quantized_bytes : 0),
                        run.tokens, padded);
}

nk_kv_layer layer_of(const Run &run, const nk_op &op) {
    return op.full ? nk_text_layer(op.kv_heads, op.head_width) : run.program->layers[op.layer];
}

int type_of(const Run &run, const nk_op &op) {
    return op.full ? (int)NK_CACHE_F32 : (int)run.program->cache_type;
}

nk_attend attention_of(const Run &run, const nk_op &op) {
    nk_attend a = {};
    a.q = run.buffer(op.x);
    a.y = run.buffer(op.out);
    a.heads = op.heads;
    a.kv_heads = op.kv_heads;
    a.width = op.head_width;
    a.segments = op.full ? run.texts : run.segments;
    a.count = run.count;
    a.type = type_of(run, op);
    a.layer = layer_of(run, op);
    a.scale = op.scale;
    a.cap = op.cap;
    a.window = op.window;
    a.sinks = op.sinks;
    a.full = op.full;
    a.spans = op.spans;
    return a;
}

AttentionPlan plan_of(const Run &run, const nk_op &op) {
    return AttentionPlan(run.table, attention_of(run, op), run.threads);
}

// --- one thread's part of each operation ---------------------------------------------------------

// Quantizes rows first .. end of x into the copy that `thread` reads.
void quantize_tokens(Run &run, const nk_op &op, const float *x, int thread, int64_t first,
                     int64_t end) {
    const int64_t width = padded(op.width);
    const QuantizedTokens to = quantized_of(run, thread, width);
    for (int64_t t = first; t < end; t++)
        run.table->quantize(x + t * op.width, op.width, op.quantize, to.q + t * width,
                            to.scale + t * (width / 16), to.sum + t * (width / 16));
}

void norm_row(const Run &run, const nk_op &op, const float *x, float *y) {
    if (op.centred) run.table->layer_norm(x, op.weight, op.bias, op.epsilon, op.width, y);
    else run.table->rms_norm(x, op.weight, op.epsilon, op.width, y);
    if (op.bias && !op.centred)
        for (int64_t i = 0; i < op.width; i++) y[i] += op.bias[i];
}

void norm(Run &run, const nk_op &op, int thread, int threads) {
    const float *x = run.buffer(op.x);
    float *out = run.buffer(op.out);
    if (run.tokens == 1 && op.quantize) {
        float *row = (float *)run.scratch_of(thread);
        norm_row(run, op, x, row);
        quantize_tokens(run, op, row, thread, 0, 1);
        int64_t first, end;
        nk_split_range(op.width, 16, thread, threads, &first, &end);
        __builtin_memcpy(out + first, row + first, 4 * (end - first));
        return;
    }
    int64_t first, end;
    nk_split_range(run.tokens, 1, thread, threads, &first, &end);
    for (int64_t t = first; t < end; t++) norm_row(run, op, x + t * op.width, out + t * op.width);
    if (op.quantize) quantize_tokens(run, op, out, thread, first, end);
}

void quantize(Run &run, const nk_op &op, int thread, int threads) {
    int64_t first = 0, end = 1;
    if (run.tokens > 1) nk_split_range(run.tokens, 1, thread, threads, &first, &end);
    quantize_tokens(run, op, run.buffer(op.x), thread, first, end);
}

// A block of a matrix product, computed by one thread.
struct Piece {
    int64_t first, end;     // rows
    int64_t token, tokens;  // first token, and number of tokens
};

// Key of the activation sums cached in a thread's scratch: format and tokens.
struct Prepared { int64_t format = -1, token = -1, tokens = 0; };

// Computes a piece of every product, then adds biases, and applies the gate or adds the residual.
void linear_piece(Run &run, const nk_op &op, int thread, const Piece &piece, Prepared &prepared) {
    const int64_t width = padded(op.width), token = piece.token, tokens = piece.tokens;
    const QuantizedTokens copy = quantized_of(run, thread, width);
    const nk_act act = {run.buffer(op.x) + token * op.width,
                        copy.q + token * width,
                        copy.scale + token * (width / 16),
                        copy.sum + token * (width / 16),
                        tokens,
                        op.width,
                        width};
    for (int i = 0; i < op.count; i++) {
        const nk_weight &w = op.weights[i];
        const int64_t group = nk_group_rows(w.format), groups = (w.rows + group - 1) / group;
        const int64_t last = smaller((piece.end + group - 1) / group, groups);
        if (piece.first / group >= last) continue;
        const bool reuse_scratch = prepared.format == w.format && prepared.token == token &&
                                   prepared.tokens == tokens;
        run.table->linear(&w, piece.first / group, last, &act,
                          run.buffer(op.outs[i]) + token * w.rows, w.rows, run.scratch_of(thread),
                          reuse_scratch);
        prepared.format = w.format, prepared.token = token, prepared.tokens = tokens;
    }
    const int64_t rows = op.weights[0].rows, count = smaller(piece.end, rows) - piece.first;
    for (int64_t t = token; t < token + tokens && count > 0; t++) {
        for (int i = 0; i < op.count; i++) {
            float *y = run.buffer(op.outs[i]) + t * rows + piece.first;
            if (op.biases[i]) run.table->add(y, op.biases[i] + piece.first, count, y);
        }
        float *y = run.buffer(op.outs[0]) + t * rows + piece.first;
        const float *up = op.count > 1 ? run.buffer(op.outs[1]) + t * rows + piece.first : nullptr;
        if (op.activation >= 0) run.table->gated(y, up, count, op.activation, op.limit, y);
        if (op.add_to >= 0) {
            float *x = run.buffer(op.add_to) + t * rows + piece.first;
            run.table->add(x, y, count, x);
        }
    }
}

// Work distribution of products with equal numbers of rows: rows below `static_rows` in one static
// range per thread, the rows after them in pieces that threads claim dynamically.
struct Partition {
    nk_op op;
    int64_t static_rows, step, rows, tokens, pieces;  // rows, tokens: size of a piece
    bool by_tokens;                                   // a piece is all rows of some tokens
};

Partition partition_of(const Run &run, const nk_op &op, int first, int count, int threads) {
    Partition s = {op, 0, 16, INT64_MAX, run.tokens, 0, false};
    s.op.count = count;
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const nk_weight &w = s.op.weights[i] = op.weights[first + i];
        s.op.outs[i] = op.outs[first + i];
        s.op.biases[i] = op.biases[first + i];
        s.step = larger(s.step, nk_group_rows(w.format));
        bytes += nk_packed_bytes(w.format, w.rows, w.columns);
        int64_t piece_rows, piece_tokens;
        run.table->linear_piece(w.format, &piece_rows, &piece_tokens);
        s.rows = smaller(s.rows, piece_rows), s.tokens = smaller(s.tokens, piece_tokens);
    }
    const int64_t rows = s.op.weights[0].rows, claims = 2 * threads;
    const bool any_tokens = s.tokens >= run.tokens;  // a piece can have
    if (any_tokens && run.tokens >= 2 * kPieceTokens && threads > 1 && bytes <= kCachedBytes) {
        s.by_tokens = true, s.rows = rows;
        s.pieces = smaller(claims, run.tokens / kPieceTokens);
        return s;
    }
    if (run.tokens > NK_FEW_TOKENS) {
        const int64_t each = rows * ((run.tokens + s.tokens - 1) / s.tokens) / (2 * claims);
        s.rows = larger(larger(smaller(s.rows, each), 128) / s.step * s.step, s.step);
    } else {
        s.tokens = run.tokens;
        s.static_rows = threads == 1 || bytes / 8 < claims * kPieceBytes
                            ? rows
                            : (rows - rows / 8) / s.step * s.step;
        s.rows = larger(s.step, (rows - s.static_rows) / claims / s.step * s.step);
    }
    s.pieces = (rows - s.static_rows + s.rows - 1) / s.rows *
               ((run.tokens + s.tokens - 1) / s.tokens);
    return s;
}

// Piece number `index`; pieces of the same rows are consecutive.
Piece piece_of(const Run &run, const Partition &s, int64_t index) {
    if (s.by_tokens) {
        int64_t token, end;
        nk_split_range(run.tokens, 16, (int)index, (int)s.pieces, &token, &end);
        return {0, s.rows, token, end - token};
    }
    const int64_t across = (run.tokens + s.tokens - 1) / s.tokens;
    const int64_t first = s.static_rows + index / across * s.rows,
                  token = index % across * s.tokens;
    return {first, smaller(first + s.rows, s.op.weights[0].rows), token,
            smaller(s.tokens, run.tokens - token)};
}

// Claims the next of `items`, or returns -1. The first half of the threads claims from the front,
// the others from the back, so most heads and tokens stay on the core that computed them.
int64_t claim(int64_t *claimed, int64_t items, bool back) {
    constexpr int64_t kFromBack = int64_t(1) << 32;
    const int64_t before = __atomic_fetch_add(claimed, back ? kFromBack : 1, __ATOMIC_RELAXED);
    const int64_t first = before % kFromBack, last = items - 1 - before / kFromBack;
    return first > last ? -1 : back ? last : first;
}

void linear(Run &run, const nk_op &op, int64_t *claimed, int thread, int threads) {
    bool same_rows = true;  // else query, key and value products: one after the other
    for (int i = 0; i < op.count; i++)
        same_rows = same_rows && op.weights[i].rows == op.weights[0].rows;
    Partition partitions[NK_MAX_WEIGHTS];
    const int count = same_rows ? 1 : op.count;
    int64_t pieces = 0;
    bool by_tokens = true;
    Prepared prepared;
    for (int i = 0; i < count; i++) {
        const Partition &s = partitions[i] = partition_of(run, op, i, same_rows ? op.count : 1,
                                                          threads);
        Piece assigned = {0, 0, 0, run.tokens};
        nk_split_range(s.static_rows, s.step, thread, threads, &assigned.first, &assigned.end);
        if (assigned.first < assigned.end) linear_piece(run, s.op, thread, assigned, prepared);
        pieces += s.pieces;
        by_tokens = by_tokens && s.by_tokens;
    }
    while (pieces) {
        int64_t piece = claim(claimed, pieces, by_tokens && 2 * thread >= threads);
        if (piece < 0) return;
        const Partition *s = partitions;
        for (; piece >= s->pieces; s++) piece -= s->pieces;
        linear_piece(run, s->op, thread, piece_of(run, *s, piece), prepared);
    }
}

void angles(Run &run, const nk_op &op, int thread, int threads) {
    int64_t first, end;
    nk_split_range(run.tokens, 1, thread, threads, &first, &end);
    for (int64_t t = first; t < end; t++) {
        float *cosine = run.buffer(op.out) + t * 2 * op.pairs;
        const Row &row = run.rows[t];
        const nk_images *images = op.axes ? row.segment->images : nullptr;
        const int64_t *positions = images ? images->positions : nullptr;
        if (positions) positions += (row.position - row.segment->position) * images->axes;
        for (int64_t i = 0; i < op.pairs; i++) {
            const int64_t position = positions ? positions[op.axes[i]] : row.position;
            const float angle = (float)position * op.weight[i];
            cosine[i] = cosf(angle) * op.scale;
            cosine[op.pairs + i] = sinf(angle) * op.scale;
        }
    }
}

// Stores a key or value of row t in its page; a key where values are if these are the keys.
void store(Run &run, const nk_op &op, bool value, int64_t head, int64_t t, const float *x) {
    const nk_kv_layer layer = layer_of(run, op);
    value |= !nk_has_keys(layer);
    const int type = type_of(run, op);
    const Row &row = run.rows[t];
    const nk_segment &segment = op.full ? run.texts[row.segment - run.segments] : *row.segment;
    uint8_t *page = segment.tables[layer.group][row.position / NK_PAGE_TOKENS];
    const nk_head_page to = nk_head_of_page(page, layer, type, op.head_width, head);
    run.table->page_row(x, op.head_width, type, row.position % NK_PAGE_TOKENS, value,
                        value ? to.values : to.keys, value ? to.value_scales : to.key_scales);
}

// Unit u of a token: a query head, a key head or a value head, in that order.
void rope_unit(Run &run, const nk_op &op, int64_t t, int64_t u) {
    const int64_t width = op.head_width;
    if (u >= op.heads + op.kv_heads) {
        const int64_t head = u - op.heads - op.kv_heads;
        store(run, op, true, head, t, run.buffer(op.z) + (t * op.kv_heads + head) * width);
        return;
    }
    const bool query = u < op.heads;
    const int64_t head = query ? u : u - op.heads;
    float *x = query ? run.buffer(op.x) + (t * op.heads + head) * width
                     : run.buffer(op.y) + (t * op.kv_heads + head) * width;
    const float *weight = query ? op.query_norm : op.key_norm;
    if (weight && !op.norms_rotated) run.table->rms_norm(x, weight, op.epsilon, width, x);
    const float *cosine = run.buffer(op.out) + t * 2 * op.pairs;
    if (op.pairs)
        run.table->rope(x, cosine, cosine + op.pairs, 1, width, op.pairs, op.interleaved, x);
    if (weight && op.norms_rotated) run.table->rms_norm(x, weight, op.epsilon, width, x);
    if (!query) store(run, op, false, head, t, x);
}

// Whether rotary embedding is fused into the attention after it: where an attention item is a whole
// key head, the thread that claims the item applies RoPE to its inputs, which saves a barrier.
bool fused_with_attention(const Run &run, const nk_op *op, int threads) {
    if (run.tokens > 1 || op->kv_heads < threads) return false;
    return plan_of(run, op[1]).items_are_heads();
}

// RoPE and page write of the query, key and value heads that one attention item reads.
void rope_head(Run &run, const nk_op &op, int64_t head) {
    const int64_t group = op.heads / op.kv_heads;
    for (int64_t i = 0; i < group; i++) rope_unit(run, op, 0, head * group + i);
    if (op.y < 0) return;  // keys and values are those of an earlier layer
    rope_unit(run, op, 0, op.heads + head);
    if (op.z >= 0) rope_unit(run, op, 0, op.heads + op.kv_heads + head);
}

void rope(Run &run, const nk_op &op, int thread, int threads) {
    const int64_t units = op.heads + ((op.y >= 0) + (op.z >= 0)) * op.kv_heads;
    int64_t first, end;
    nk_split_range(run.tokens * units, run.tokens == 1 ? 1 : units, thread, threads, &first, &end);
    for (int64_t i = first; i < end; i++) rope_unit(run, op, i / units, i % units);
}

// `fused_rope`: also executes the preceding ROPE operation.
void attend(Run &run, const nk_op &op, int64_t *claimed, int thread, int threads, bool fused_rope) {
    const nk_attend a = attention_of(run, op);
    const AttentionPlan plan = plan_of(run, op);
    const nk_op &before = *(&op - 1);
    const int64_t items = plan.items();
    const bool back = 2 * thread >= threads;
    for (;;) {
        const int64_t index = claim(claimed, items, back);
        if (index < 0) return;
        const nk_attend_item item = plan.item(index, run.partials);
        if (fused_rope) rope_head(run, before, item.kv);
        const int64_t next = back ? index - 1 : index + 1;
        const bool last = next < 0 || next >= items;
        const nk_attend_item following = last ? item : plan.item(next, run.partials);
        run.table->attention_item(&a, &item, last ? nullptr : &following, run.scratch_of(thread));
    }
}

void merge(Run &run, const nk_op &op, int thread, int threads) {
    const nk_attend a = attention_of(run, op);
    const AttentionPlan plan = plan_of(run, op);
    int64_t first, end;
    nk_split_range(plan.merges(), 1, thread, threads, &first, &end);
    for (int64_t i = first; i < end; i++) {
        const nk_attend_item item = plan.merge(i, run.partials);
        run.table->attention_merge(&a, &item);
    }
}

#include "run/elementwise.inc"
#include "run/experts.inc"
#include "run/heads.inc"
#include "run/states.inc"
#include "run/streams.inc"

void run_op(Run &run, int64_t index, int thread, int threads, bool fused_rope) {
    const nk_op &op = run.program->ops[index];
    int64_t *claimed = &run.claimed[index - run.first];
    switch (op.kind) {
    case NK_EMBED: return embed(run, op, thread, threads);
    case NK_NORM: return norm(run, op, thread, threads);
    case NK_QUANTIZE:
        return op.chosen ? quantize_pairs(run, op, thread, threads)
                         : quantize(run, op, thread, threads);
    case NK_LINEAR: return linear(run, op, claimed, thread, threads);
    case NK_ANGLES: return angles(run, op, thread, threads);
    case NK_ROPE: return rope(run, op, thread, threads);
    case NK_ATTEND: return attend(run, op, claimed, thread, threads, fused_rope);
    case NK_HEAD_NORM: return head_norm(run, op, thread, threads);
    case NK_HEAD_GATE: return head_gate(run, op, thread, threads);
    case NK_COLUMNS: return copy_columns(run, op, thread, threads);
    case NK_JOIN: return join(run, op, thread, threads);
    case NK_POSITION_SCALE: return position_scale(run, op, thread, threads);
    case NK_HEAD_ROWS: return head_rows(run, op, thread, threads);
    case NK_HEAD_COLUMNS: return head_columns(run, op, thread, threads);
    case NK_SHORT_CONV: return short_conv(run, op, thread, threads);
    case NK_RECURRENCE: return recurrence(run, op, claimed, thread, threads);
    case NK_ROUTE: return route(run, op, thread, threads);
    case NK_ORDER_PAIRS:
        if (thread == 0 && run.tokens > 1) order_pairs(run, op);
        return;
    case NK_GATHER: return gather(run, op, thread, threads);
    case NK_EXPERT_LINEAR: return expert_linear(run, op, claimed, thread, threads);
    case NK_COMBINE: return combine(run, op, thread, threads);
    case NK_ROTATE: return rotate(run, op, thread, threads);
    case NK_MIX_STREAMS: return mix_streams(run, op, thread, threads);
    case NK_ADD_TO_STREAMS: return add_to_streams(run, op, thread, threads);
    case NK_GIVEN_ROWS: return given_rows(run, op, thread, threads);
    case NK_MATCH_MAGNITUDE:
    case NK_GAUSSIAN_TOP_K: return change_rows(run, op, thread, threads);
    default: return elementwise(run, op, thread, threads);
    }
}

void run_program(void *context, int thread, int threads) {
    Run &run = *(Run *)context;
    // Decided once, at the ROPE operation: the thread count may shrink at the barrier between the
    // two, and a second decision could apply RoPE twice.
    bool fused_rope = false;
    for (int64_t i = run.first; i < run.end; i++) {
        const nk_op &op = run.program->ops[i];
        if (op.kind == NK_ROPE) {
            fused_rope = fused_with_attention(run, &op, threads);
            if (fused_rope) continue;
        }
        run_op(run, i, thread, threads, fused_rope);
        if (op.barrier == NK_BARRIER_NEVER || (op.barrier == NK_BARRIER_BATCH && run.tokens == 1))
            continue;
        threads = nk_pool_barrier(thread);
        if (thread >= threads) return;
        if (op.kind != NK_ATTEND) continue;
        if (!plan_of(run, op).merges()) continue;
        merge(run, op, thread, threads);
        threads = nk_pool_barrier(thread);
        if (thread >= threads) return;
    }
}

// --- memory --------------------------------------------------------------------------------------

int64_t thread_scratch_bytes(const Run &run, const nk_op &op) {
    int64_t bytes = op.kind == NK_NORM || op.kind == NK_EMBED ? 4 * op.width : 0;
    if (op.kind == NK_LINEAR)
        for (int i = 0; i < op.count; i++)
            bytes = larger(bytes,
                           run.table->linear_scratch(op.weights[i].format, op.width, run.tokens));
    if (op.kind == NK_EXPERT_LINEAR) bytes = expert_scratch_bytes(run, op);
    if (op.kind == NK_RECURRENCE) {
        const nk_recurrence_args r = recurrence_of(run, op);
        bytes = run.table->recurrence_scratch(&r);
    }
    if (op.kind == NK_ATTEND) {
        const nk_attend a = attention_of(run, op);
        bytes = run.table->attention_scratch(&a, plan_of(run, op).rows());
    }
    return bytes;
}

// Bytes of `run.texts` with their tables and pages, of `page_bytes` each; 0: there are none.
int64_t texts_bytes(const Run &run, int64_t page_bytes) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < run.count; i++)
        bytes += nk_text_bytes(run.segments[i].tokens, page_bytes);
    return page_bytes ? rounded(run.count * (int64_t)sizeof(nk_segment)) + bytes : 0;
}

void set_texts(Run &run, uint8_t *memory, int64_t page_bytes) {
    nk_segment *texts = (nk_segment *)memory;
    memory += rounded(run.count * (int64_t)sizeof(nk_segment));
    for (int64_t i = 0; i < run.count; i++) {
        texts[i] = nk_text_at(memory, run.segments[i].tokens, page_bytes);
        memory += nk_text_bytes(run.segments[i].tokens, page_bytes);
    }
    run.texts = texts;
}

int reserve(Run &run, Scratch &scratch, int threads) {
    int64_t width = 0, partials = 0, thread_bytes = 0, pairs = 0, text_page = 0;  // bytes
    run.texts = run.segments;  // only their sizes count until there is memory
    for (int64_t i = run.first; i < run.end; i++) {
        const nk_op &op = run.program->ops[i];
        if (op.kind == NK_QUANTIZE && op.chosen)
            pairs = larger(pairs, quantized_bytes(run.tokens * op.chosen, padded(op.width)));
        else if (op.kind == NK_NORM || op.kind == NK_QUANTIZE)
            width = larger(width, padded(op.width));
        if (op.kind == NK_EMBED && !has_rows(run, op)) return NK_BAD_ID;
        if (!fits_images(run, op)) return NK_BAD_SHAPE;
        thread_bytes = larger(thread_bytes, thread_scratch_bytes(run, op));
        if (op.kind == NK_ATTEND) partials = larger(partials, plan_of(run, op).partial_bytes());
        if (!op.full) continue;
        text_page = larger(text_page, nk_text_page_bytes(op.kv_heads, op.head_width));
        for (int64_t k = 0; k < run.count; k++)
            if (run.segments[k].position) return NK_BAD_SHAPE;  // a text is read as a whole
    }
    run.quantized_bytes = quantized_bytes(run.tokens, width);
    run.thread_scratch_bytes = rounded(thread_bytes) + 64;
    const int64_t quantized = larger((run.tokens == 1 ? threads : 1) * run.quantized_bytes, pairs);
    const int64_t rows = rounded(run.tokens * (int64_t)sizeof(Row));
    const int64_t claims = rounded((run.end - run.first) * (int64_t)sizeof(int64_t));
    const int64_t needed = claims + rows + quantized + rounded(partials) +
                           threads * run.thread_scratch_bytes + texts_bytes(run, text_page);
    if (needed > scratch.bytes) {
        scratch.free();
        const int64_t bytes = needed + needed / 4;  // headroom: the context grows with each token
        scratch.memory = (uint8_t *)nk_huge_alloc(bytes);
        if (!scratch.memory) return NK_NO_MEMORY;
        scratch.bytes = bytes;
    }
    run.claimed = (int64_t *)scratch.memory;
    run.rows = (Row *)(scratch.memory + claims);
    run.quantized = scratch.memory + claims + rows;
    run.partials = run.quantized + quantized;
    run.thread_scratch = run.partials + rounded(partials);
    uint8_t *texts = run.thread_scratch + threads * run.thread_scratch_bytes;
    if (text_page) set_texts(run, texts, text_page);
    return NK_OK;
}

// Of the one call at a time.
Run shared;
Scratch memory;

// Fills in the run of the operations first .. end on so many threads.
int prepare(const nk_program *program, int64_t first, int64_t end, const nk_segment *segments,
            int64_t count, const int64_t *ids, int threads) {
    Run &run = shared;
    if (program->op_bytes != (int64_t)sizeof(nk_op)) return NK_BAD_SHAPE;
    if (count < 1 || first < 0) return NK_BAD_SHAPE;
    run.tokens = 0;
    for (int64_t i = 0; i < count; i++) {
        if (segments[i].tokens < 1 || segments[i].position < 0) return NK_BAD_SHAPE;
        run.tokens += segments[i].tokens;
    }
    if (end <= first) return NK_OK;
    run.program = program;
    run.table = nk_current();
    run.first = first, run.end = end;
    run.segments = segments, run.count = count, run.threads = threads;
    run.ids = ids;
    const int status = reserve(run, memory, threads);
    if (status != NK_OK) return status;
    for (int64_t i = 0; i < end - first; i++) run.claimed[i] = 0;
    Row *row = run.rows;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < segments[i].tokens; t++)
            *row++ = {segments[i].position + t, &segments[i]};
    return NK_OK;
}

}  // namespace

int nk_run(const nk_program *program, int64_t first, int64_t end, const nk_segment *segments,
           int64_t count, const int64_t *ids) {
    const int status = prepare(program, first, end, segments, count, ids, nk_pool_size());
    if (status == NK_OK && end > first) nk_pool_run(run_program, &shared);
    return status;
}

void nk_free_scratch(void) { memory.free(); }

int64_t nk_attention_bytes(int threads, int64_t tokens, int64_t heads, int64_t kv_heads,
                           int64_t width, int64_t position, int type) {
    if (tokens < 1 || kv_heads < 1 || heads % kv_heads || width < 1 || position < 0) return 0;
    nk_attend attend = {};  // a layer without stored keys, whose scratch is larger
    attend.heads = heads, attend.kv_heads = kv_heads, attend.width = width, attend.type = type;
    const nk_table *table = nk_current();
    const int64_t rows = smaller(tokens * (heads / kv_heads), NK_TILE_ROWS);
    const int64_t partials = AttentionPlan::most_partial_bytes(
        tokens, heads, kv_heads, position, table->partial_floats(&attend), threads);
    return rounded(partials) + threads * rounded(table->attention_scratch(&attend, rows)) + 64;
}
