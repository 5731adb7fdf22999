// Single operations: checks of shapes, then parallel execution over rows, tokens or items.
//
// Operands as in nk.h: contiguous, f32 unless stated. Limits: every size below 2^31, elements of a
// tensor below 2^46. Results do not depend on the number of threads. Small operations run on the
// calling thread alone, because waking the workers would take longer.
#include "api/ops.h"

#include <math.h>

#include "isa/current.h"
#include "run/attention_plan.h"
#include "run/pool.h"
#include "run/recurrence_parts.h"
#include "run/route.h"

namespace {

constexpr int64_t kMaxSize = (int64_t)1 << 31, kMaxElements = (int64_t)1 << 46;
constexpr int64_t kParallelBytes = 256 << 10;  // bytes of work; smaller operations are not parallel
constexpr int64_t kPassTokens = 512;           // tokens quantized in one pass: bounds the scratch
constexpr int64_t kLine = 64;

int64_t rounded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Whether all sizes are positive and their product is within the limits.
bool valid_sizes(int64_t a, int64_t b = 1, int64_t c = 1) {
    if (a < 1 || b < 1 || c < 1 || a >= kMaxSize || b >= kMaxSize || c >= kMaxSize) return false;
    return a <= kMaxElements / b && a * b <= kMaxElements / c;
}

void run(nk_job job, void *context, int64_t bytes) {
    if (bytes < kParallelBytes) nk_pool_run_serial(job, context);
    else nk_pool_run(job, context);
}

// Scratch memory, kept between operations; it grows on demand.
struct Scratch {
    uint8_t *memory = nullptr;
    int64_t bytes = 0;

    uint8_t *take(int64_t wanted) {
        if (wanted <= bytes) return memory;
        nk_ops_free_scratch();
        memory = (uint8_t *)nk_huge_alloc(wanted);
        if (memory) bytes = wanted;
        return memory;
    }
} scratch;

// --- linear

struct Linear {
    const nk_table *table;
    const nk_weight *weight;
    const float *x;
    float *y;
    int64_t tokens, padded, group, groups;
    bool quantized;
    int8_t *q;
    float *scale;
    int32_t *sum;
    uint8_t *thread_scratch;
    int64_t thread_scratch_bytes;
};

void quantize(const Linear &op, int64_t start, int64_t tokens, int thread, int threads) {
    int64_t first, end;
    nk_split_range(tokens, 1, thread, threads, &first, &end);
    for (int64_t t = first; t < end; ++t)
        op.table->quantize(op.x + (start + t) * op.weight->columns, op.weight->columns,
                           nk_activation_group_size(op.weight->format), op.q + t * op.padded,
                           op.scale + t * (op.padded / 16), op.sum + t * (op.padded / 16));
}

void multiply(const Linear &op, int64_t start, int64_t tokens, int thread, int threads) {
    const nk_weight &w = *op.weight;
    const nk_act act = {
        op.x + start * w.columns, op.q, op.scale, op.sum, tokens, w.columns, op.padded};
    int64_t first, end;
    nk_split_range(op.groups, 1, thread, threads, &first, &end);
    if (first < end)
        op.table->linear(&w, first, end, &act, op.y + start * w.rows, w.rows,
                         op.thread_scratch + thread * op.thread_scratch_bytes, false);
}

void linear_job(void *context, int thread, int threads) {
    const Linear &op = *(Linear *)context;
    for (int64_t start = 0; start < op.tokens; start += kPassTokens) {
        const int64_t tokens = smaller(kPassTokens, op.tokens - start);
        if (op.quantized) {
            quantize(op, start, tokens, thread, threads);
            threads = nk_pool_barrier(thread);
            if (thread >= threads) return;
        }
        multiply(op, start, tokens, thread, threads);
        if (start + kPassTokens >= op.tokens) return;
        threads = nk_pool_barrier(thread);  // the next pass overwrites the quantized activations
        if (thread >= threads) return;
    }
}

// --- rows and elements

struct Norm {
    const nk_table *table;
    bool centred;
    const float *x, *weight, *bias;
    float epsilon, *y;
    int64_t tokens, width;
};

void norm_job(void *context, int thread, int threads) {
    const Norm &op = *(Norm *)context;
    int64_t first, end;
    nk_split_range(op.tokens, 1, thread, threads, &first, &end);
    for (int64_t t = first; t < end; ++t) {
        const float *x = op.x + t * op.width;
        float *y = op.y + t * op.width;
        if (op.centred) op.table->layer_norm(x, op.weight, op.bias, op.epsilon, op.width, y);
        else op.table->rms_norm(x, op.weight, op.epsilon, op.width, y);
    }
}

struct Rope {
    const nk_table *table;
    const float *x;
    const int64_t *positions;
    const float *frequencies;
    int64_t tokens, heads, width, pairs;
    int interleaved;
    float scale, *y, *thread_scratch;  // thread_scratch: [threads, 2 * pairs]
};

void rope_job(void *context, int thread, int threads) {
    const Rope &op = *(Rope *)context;
    float *cosine = op.thread_scratch + thread * 2 * op.pairs, *sine = cosine + op.pairs;
    int64_t first, end;
    nk_split_range(op.tokens, 1, thread, threads, &first, &end);
    for (int64_t t = first; t < end; ++t) {
        for (int64_t i = 0; i < op.pairs; ++i) {
            const float angle = (float)op.positions[t] * op.frequencies[i];
            cosine[i] = cosf(angle) * op.scale;
            sine[i] = sinf(angle) * op.scale;
        }
        const int64_t at = t * op.heads * op.width;
        op.table->rope(op.x + at, cosine, sine, op.heads, op.width, op.pairs, op.interleaved,
                       op.y + at);
    }
}

struct Elements {
    const nk_table *table;
    const float *x, *up;
    int64_t count;
    int activation;
    float limit, cap, *y;  // cap 0: a gate or xIELU, else a softcap
    const float *factors;  // of xIELU
};

void elements_job(void *context, int thread, int threads) {
    const Elements &op = *(Elements *)context;
    int64_t first, end;
    nk_split_range(op.count, kLine, thread, threads, &first, &end);
    if (first >= end) return;
    if (op.factors) return op.table->xielu(op.x + first, op.factors, end - first, op.y + first);
    if (op.cap != 0) return op.table->softcap(op.x + first, op.cap, end - first, op.y + first);
    op.table->gated(op.x + first, op.up ? op.up + first : nullptr, end - first, op.activation,
                    op.limit, op.y + first);
}

// --- states of fixed size

struct ShortConv {
    const nk_table *table;
    const float *x, *weight, *bias, *before;
    int64_t tokens, width, taps;
    float *y, *after;
};

void short_conv_job(void *context, int thread, int threads) {
    const ShortConv &op = *(ShortConv *)context;
    int64_t first, end;
    nk_split_range(op.width, 16, thread, threads, &first, &end);
    if (first >= end) return;
    op.table->short_conv(op.x, op.weight, op.bias, op.before, op.tokens, op.width, op.taps, first,
                         end, op.y, op.after);
}

struct Recurrent {
    const nk_table *table;
    const nk_recurrence_args &r;
    const float *before;
    int64_t tokens, parts;
    float *after;
    uint8_t *thread_scratch;
    int64_t thread_scratch_bytes;
};

void recurrence_job(void *context, int thread, int threads) {
    const Recurrent &op = *(Recurrent *)context;
    int64_t first_item, end_item;
    nk_split_range(op.r.heads * op.parts, 1, thread, threads, &first_item, &end_item);
    for (int64_t item = first_item; item < end_item; ++item) {
        const int64_t head = item / op.parts, at = head * op.r.key_width * op.r.value_width;
        int64_t first, end;
        nk_split_range(op.r.value_width, 16, (int)(item % op.parts), (int)op.parts, &first, &end);
        op.table->recurrence(&op.r, head, first, end, 0, op.tokens, op.before + at, op.after + at,
                             op.thread_scratch + thread * op.thread_scratch_bytes);
    }
}

// --- attention

struct Attention {
    const AttentionPlan &plan;
    const nk_table *table;
    const nk_attend &attend;
    int64_t items, merges, claimed;
    uint8_t *partials, *thread_scratch;
    int64_t thread_scratch_bytes;
};

void attention_job(void *context, int thread, int threads) {
    Attention &op = *(Attention *)context;
    // Items differ in size, the largest first: threads claim them dynamically.
    for (;;) {
        const int64_t index = __atomic_fetch_add(&op.claimed, 1, __ATOMIC_RELAXED);
        if (index >= op.items) break;
        const nk_attend_item item = op.plan.item(index, op.partials);
        const bool last = index + 1 >= op.items;
        const nk_attend_item following = last ? item : op.plan.item(index + 1, op.partials);
        op.table->attention_item(&op.attend, &item, last ? nullptr : &following,
                                 op.thread_scratch + thread * op.thread_scratch_bytes);
    }
    if (op.merges == 0) return;
    threads = nk_pool_barrier(thread);
    if (thread >= threads) return;
    int64_t first, end;
    nk_split_range(op.merges, 1, thread, threads, &first, &end);
    for (int64_t i = first; i < end; ++i) {
        const nk_attend_item item = op.plan.merge(i, op.partials);
        op.table->attention_merge(&op.attend, &item);
    }
}

struct FullAttention {
    Attention attention;
    const float *k, *v;
    int64_t tokens, kv_heads, width;
};

void full_attention_job(void *context, int thread, int threads) {
    FullAttention &op = *(FullAttention *)context;
    const nk_attend &a = op.attention.attend;
    const nk_table *table = op.attention.table;
    int64_t first, end;
    nk_split_range(op.tokens, NK_PAGE_TILE, thread, threads, &first, &end);
    for (int64_t t = first; t < end; ++t) {
        uint8_t *page = a.segments->tables[0][t / NK_PAGE_TOKENS];
        for (int64_t head = 0; head < op.kv_heads; ++head) {
            const nk_head_page to = nk_head_of_page(page, a.layer, a.type, op.width, head);
            const int64_t at = (t * op.kv_heads + head) * op.width, row = t % NK_PAGE_TOKENS;
            table->page_row(op.k + at, op.width, a.type, row, false, to.keys, nullptr);
            table->page_row(op.v + at, op.width, a.type, row, true, to.values, nullptr);
        }
    }
    threads = nk_pool_barrier(thread);
    if (thread < threads) attention_job(&op.attention, thread, threads);
}

bool valid_segments(const nk_segment *segments, int64_t count, int64_t group) {
    if (count < 1 || count >= kMaxSize) return false;
    for (int64_t i = 0; i < count; ++i) {
        const nk_segment &one = segments[i];
        if (!valid_sizes(one.tokens) || one.position < 0 || one.position >= kMaxSize) return false;
        if (!one.tables || !one.tables[group]) return false;
    }
    return true;
}

}  // namespace

void nk_ops_free_scratch(void) {
    nk_huge_free(scratch.memory, scratch.bytes);
    scratch.memory = nullptr;
    scratch.bytes = 0;
}

int nk_linear(const nk_weight *weight, const float *x, int64_t tokens, float *y) {
    const int64_t group = nk_group_rows(weight->format), rows = weight->rows,
                  columns = weight->columns;
    if (group <= 0) return NK_BAD_FORMAT;
    if (tokens == 0) return NK_OK;
    if (!valid_sizes(tokens, columns) || !valid_sizes(tokens, rows) || !valid_sizes(rows, columns))
        return NK_BAD_SHAPE;
    if (nk_packed_bytes(weight->format, rows, columns) <= 0) return NK_BAD_SHAPE;
    const nk_table *table = nk_current();
    const int64_t padded = (columns + 31) / 32 * 32, pass = smaller(tokens, kPassTokens);
    Linear op = {
        table, weight,  x,       y,       tokens,  padded, group, (rows + group - 1) / group,
        true,  nullptr, nullptr, nullptr, nullptr, 0};
    op.quantized = nk_activation_group_size(weight->format) > 0;
    op.thread_scratch_bytes = rounded(table->linear_scratch(weight->format, columns, pass));
    // The last pass may be shorter, and one token may need more scratch than many.
    const int64_t last = rounded(
        table->linear_scratch(weight->format, columns, (tokens - 1) % kPassTokens + 1));
    if (last > op.thread_scratch_bytes) op.thread_scratch_bytes = last;
    const int64_t code_bytes = op.quantized ? pass * padded : 0;
    const int64_t q = rounded(code_bytes), scale = rounded(code_bytes / 4),
                  sum = rounded(code_bytes / 4);
    uint8_t *memory = scratch.take(q + scale + sum + nk_pool_size() * op.thread_scratch_bytes);
    if (!memory) return NK_NO_MEMORY;
    op.q = (int8_t *)memory;
    op.scale = (float *)(memory + q);
    op.sum = (int32_t *)(memory + q + scale);
    op.thread_scratch = memory + q + scale + sum;
    run(linear_job, &op, rows * columns / 4 * smaller(tokens, 16));
    return NK_OK;
}

int nk_rms_norm(const float *x, const float *weight, float epsilon, int64_t tokens, int64_t width,
                float *y) {
    if (tokens == 0) return NK_OK;
    if (!valid_sizes(tokens, width)) return NK_BAD_SHAPE;
    Norm op = {nk_current(), false, x, weight, nullptr, epsilon, y, tokens, width};
    run(norm_job, &op, 8 * tokens * width);
    return NK_OK;
}

int nk_layer_norm(const float *x, const float *weight, const float *bias, float epsilon,
                  int64_t tokens, int64_t width, float *y) {
    if (tokens == 0) return NK_OK;
    if (!valid_sizes(tokens, width)) return NK_BAD_SHAPE;
    Norm op = {nk_current(), true, x, weight, bias, epsilon, y, tokens, width};
    run(norm_job, &op, 8 * tokens * width);
    return NK_OK;
}

int nk_rope(const float *x, const int64_t *positions, const float *frequencies, int64_t tokens,
            int64_t heads, int64_t width, int64_t pairs, int interleaved, float scale, float *y) {
    if (tokens == 0) return NK_OK;
    if (!valid_sizes(tokens, heads, width) || pairs < 0 || 2 * pairs > width) return NK_BAD_SHAPE;
    float *thread_scratch = (float *)scratch.take(nk_pool_size() * (2 * pairs + 1) *
                                                  (int64_t)sizeof(float));
    if (!thread_scratch) return NK_NO_MEMORY;
    Rope op = {nk_current(), x,     positions,   frequencies, tokens, heads,
               width,        pairs, interleaved, scale,       y,      thread_scratch};
    run(rope_job, &op, 8 * tokens * (heads * width + 16 * pairs));
    return NK_OK;
}

int nk_gated(const float *gate, const float *up, int64_t count, int activation, float limit,
             float *y) {
    if (count == 0) return NK_OK;
    if (!valid_sizes(count) || activation < NK_SILU || activation > NK_GELU) return NK_BAD_SHAPE;
    Elements op = {nk_current(), gate, up, count, activation, limit, 0, y, nullptr};
    run(elements_job, &op, 16 * count);
    return NK_OK;
}

int nk_route(const float *scores, int64_t tokens, const struct nk_routing *routing, float *shares) {
    if (tokens == 0) return NK_OK;
    const int64_t experts = routing->experts, chosen = routing->chosen;
    if (!valid_sizes(tokens, experts) || !nk_valid_routing(*routing)) return NK_BAD_SHAPE;
    int32_t numbers[NK_MAX_EXPERTS];
    float some[NK_MAX_EXPERTS];
    for (int64_t t = 0; t < tokens; t++, scores += experts, shares += experts) {
        nk_route_token(scores, *routing, numbers, some);
        for (int64_t e = 0; e < experts; e++) shares[e] = 0;
        for (int64_t i = 0; i < chosen; i++) shares[numbers[i]] = some[i];
    }
    return NK_OK;
}

int nk_xielu(const float *x, const float *factors, int64_t count, float *y) {
    if (count == 0) return NK_OK;
    if (!valid_sizes(count)) return NK_BAD_SHAPE;
    Elements op = {nk_current(), x, nullptr, count, 0, 0, 0, y, factors};
    run(elements_job, &op, 16 * count);
    return NK_OK;
}

int nk_short_conv(const float *x, const float *weight, const float *bias, const float *before,
                  int64_t tokens, int64_t width, int64_t taps, float *y, float *after) {
    if (!valid_sizes(tokens, width) || taps < 1 || taps > NK_MAX_TAPS) return NK_BAD_SHAPE;
    ShortConv op = {nk_current(), x, weight, bias, before, tokens, width, taps, y, after};
    run(short_conv_job, &op, 8 * tokens * width);
    return NK_OK;
}

int nk_recurrence(const struct nk_recurrence_args *recurrence, const float *before, int64_t tokens,
                  float *after) {
    const struct nk_recurrence_args &r = *recurrence;
    if (!valid_sizes(tokens, r.heads, r.value_width) || !valid_sizes(r.heads, r.key_width))
        return NK_BAD_SHAPE;
    if (!valid_sizes(r.key_heads) || r.heads % r.key_heads) return NK_BAD_SHAPE;
    if (r.decays != r.heads && (r.decays != r.heads * r.key_width || !r.strength))
        return NK_BAD_SHAPE;
    const nk_table *table = nk_current();
    const int64_t bytes = rounded(table->recurrence_scratch(&r));
    uint8_t *memory = scratch.take(nk_pool_size() * bytes);
    if (!memory) return NK_NO_MEMORY;
    const int64_t parts = nk_recurrence_parts(r, 1, nk_pool_size());
    Recurrent op = {table, r, before, tokens, parts, after, memory, bytes};
    run(recurrence_job, &op, 8 * tokens * r.heads * r.key_width * r.value_width);
    return NK_OK;
}

int nk_softcap(const float *x, float cap, int64_t count, float *y) {
    if (count == 0) return NK_OK;
    if (!valid_sizes(count) || cap == 0) return NK_BAD_SHAPE;
    Elements op = {nk_current(), x, nullptr, count, 0, 0, cap, y, nullptr};
    run(elements_job, &op, 16 * count);
    return NK_OK;
}

int nk_attention(const float *q, int64_t heads, int64_t kv_heads, int64_t width,
                 const nk_segment *segments, int64_t count, int type, const nk_kv_layer *layer,
                 float scale, int64_t window, float cap, const float *sinks, float *y) {
    if (!valid_sizes(heads, width) || kv_heads < 1 || heads % kv_heads != 0 || window < 0)
        return NK_BAD_SHAPE;
    if (type != NK_CACHE_F32 && type != NK_CACHE_F16 && type != NK_CACHE_Q8) return NK_BAD_SHAPE;
    if (!valid_segments(segments, count, layer->group)) return NK_BAD_SHAPE;
    const nk_table *table = nk_current();
    const int64_t threads = nk_pool_size();
    const nk_attend attend = {q,    y,      heads, kv_heads, width,  segments, count,
                              type, *layer, scale, cap,      window, sinks,    false};
    const AttentionPlan plan(table, attend, threads);
    const int64_t partials = rounded(plan.partial_bytes());
    const int64_t thread_scratch = rounded(table->attention_scratch(&attend, plan.rows()));
    uint8_t *memory = scratch.take(partials + threads * thread_scratch + kLine);
    if (!memory) return NK_NO_MEMORY;
    Attention op = {plan,          table, attend, plan.items(),
                    plan.merges(), 0,     memory, memory + partials,
                    thread_scratch};
    int64_t work = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t end = segments[i].position + segments[i].tokens;
        work += segments[i].tokens * heads * (window && window < end ? window : end) * width;
    }
    run(attention_job, &op, work);
    return NK_OK;
}

int nk_full_attention(const float *q, const float *k, const float *v, int64_t tokens, int64_t heads,
                      int64_t kv_heads, int64_t width, float scale, int64_t window, float *y) {
    if (tokens == 0) return NK_OK;
    if (!valid_sizes(tokens, heads, width) || kv_heads < 1 || heads % kv_heads != 0 || window < 0)
        return NK_BAD_SHAPE;
    const nk_table *table = nk_current();
    const int64_t threads = nk_pool_size(), page_bytes = nk_text_page_bytes(kv_heads, width);
    nk_segment text = {tokens, 0, nullptr};
    nk_attend attend = {};
    attend.q = q, attend.y = y;
    attend.heads = heads, attend.kv_heads = kv_heads, attend.width = width;
    attend.segments = &text, attend.count = 1;
    attend.type = NK_CACHE_F32, attend.layer = nk_text_layer(kv_heads, width);
    attend.scale = scale, attend.window = window, attend.full = true;
    const AttentionPlan plan(table, attend, threads);
    const int64_t partials = rounded(plan.partial_bytes());
    const int64_t thread_scratch = rounded(table->attention_scratch(&attend, plan.rows()));
    const int64_t pages = rounded(nk_text_bytes(tokens, page_bytes));
    uint8_t *memory = scratch.take(pages + partials + threads * thread_scratch + kLine);
    if (!memory) return NK_NO_MEMORY;
    text = nk_text_at(memory, tokens, page_bytes);
    memory += pages;
    FullAttention op = {{plan, table, attend, plan.items(), plan.merges(), 0, memory,
                         memory + partials, thread_scratch},
                        k,
                        v,
                        tokens,
                        kv_heads,
                        width};
    run(full_attention_job, &op, tokens * heads * tokens * width);
    return NK_OK;
}

int64_t nk_attention_bytes(int threads, int64_t tokens, int64_t heads, int64_t kv_heads,
                           int64_t width, int64_t position, int type) {
    if (!valid_sizes(tokens, heads, width) || kv_heads < 1 || heads % kv_heads != 0 || position < 0)
        return 0;
    const nk_table *table = nk_current();
    nk_attend attend = {};  // a layer without stored keys, whose scratch is larger
    attend.heads = heads, attend.kv_heads = kv_heads, attend.width = width, attend.type = type;
    const int64_t rows = smaller(tokens * (heads / kv_heads), NK_TILE_ROWS);
    const int64_t partials = AttentionPlan::most_partial_bytes(
        tokens, heads, kv_heads, position, table->partial_floats(&attend), threads);
    return rounded(partials) + threads * rounded(table->attention_scratch(&attend, rows)) + kLine;
}
