// Tests ROPE and ATTEND operations while the pool drops threads at the barrier between them: every
// head must be rotated once, and its keys and values stored once. Exits with 0 when all pass.
//
// The pool is replaced by a fake that runs the threads sequentially, the last first: dropped
// threads have finished their part before thread 0 passes the barrier.
#include "run/step.cpp"

#include <stdio.h>
#include <stdlib.h>

namespace {

constexpr int kHeads = 4, kKvHeads = 2, kWidth = 16;

int rotated[kHeads + kKvHeads], stored[2 * kKvHeads], attended[kKvHeads];
float query[kHeads * kWidth], key[kKvHeads * kWidth], value[kKvHeads * kWidth];
float angle[kWidth], result[kHeads * kWidth];
constexpr int64_t kHeadBytes = NK_PAGE_TOKENS * 16 * 4, kPart = kKvHeads * kHeadBytes;
uint8_t page[2 * kPart];  // keys, then values

int threads_before, threads_after;  // the barrier

void count_rope(const float *x, const float *, const float *, int64_t, int64_t, int64_t, int,
                float *) {
    if (x >= key && x < key + kKvHeads * kWidth) rotated[kHeads + (x - key) / kWidth]++;
    else rotated[(x - query) / kWidth]++;
}

void count_row(const float *, int64_t, int, int64_t, bool, void *codes, uint16_t *) {
    stored[((uint8_t *)codes - page) / kHeadBytes]++;
}

int64_t none(const nk_attend *) { return 0; }
int64_t no_scratch(const nk_attend *, int64_t) { return 0; }
void count_item(const nk_attend *, const nk_attend_item *item, const nk_attend_item *, void *) {
    attended[item->kv]++;
}

nk_table table_of_counters() {
    nk_table table = {};
    table.rope = count_rope;
    table.page_row = count_row;
    table.partial_floats = none;
    table.attention_scratch = no_scratch;
    table.attention_item = count_item;
    return table;
}

bool all_once(const char *what, const int *counts, int count) {
    bool good = true;
    for (int i = 0; i < count; i++) {
        if (counts[i] == 1) continue;
        printf("%d threads, then %d: %s %d: %d times\n", threads_before, threads_after, what, i,
               counts[i]);
        good = false;
    }
    return good;
}

bool run_once() {
    for (int &count : rotated) count = 0;
    for (int &count : stored) count = 0;
    for (int &count : attended) count = 0;
    nk_op ops[2] = {};
    for (nk_op &op : ops) {
        op.heads = kHeads, op.kv_heads = kKvHeads, op.head_width = kWidth;
        op.x = 0, op.y = 1, op.z = 2, op.out = 3;
        op.activation = op.add_to = -1;
        op.pairs = kWidth / 2;
    }
    ops[0].kind = NK_ROPE;
    ops[1].kind = NK_ATTEND, ops[1].out = 4;
    float *buffers[] = {query, key, value, angle, result};
    const nk_kv_layer layer = {0, 0, 0, kPart, 0};
    const nk_program program = {ops, buffers, &layer, NK_CACHE_F32, (int64_t)sizeof(nk_op)};
    uint8_t *pages[] = {page}, **tables[] = {pages};
    const nk_segment segment = {1, 0, tables};
    const int64_t id = 0;
    if (nk_run(&program, 0, 2, &segment, 1, &id) != NK_OK) return false;
    const bool heads = all_once("head", rotated, kHeads + kKvHeads);
    const bool rows = all_once("row", stored, 2 * kKvHeads);
    return all_once("item", attended, kKvHeads) && heads && rows;
}

}  // namespace

// --- fakes of the functions that step.cpp calls

const nk_table *nk_current(void) {
    static const nk_table table = table_of_counters();
    return &table;
}
void nk_pool_run(nk_job run_program, void *context) {
    for (int thread = threads_before - 1; thread >= 0; thread--)
        run_program(context, thread, threads_before);
}
int nk_pool_barrier(int) { return threads_after; }
int nk_pool_size(void) { return threads_before; }
void *nk_huge_alloc(int64_t bytes) { return calloc(1, (size_t)bytes); }
void nk_huge_free(void *memory, int64_t) { free(memory); }
int64_t nk_group_rows(int64_t) { return 1; }
int64_t nk_packed_bytes(int64_t, int64_t, int64_t) { return 0; }
bool nk_has_rows(const nk_weight &, const int64_t *, int64_t) { return true; }
void nk_decode_rows(const nk_weight &, const int64_t *, int64_t, float *) {}

int main() {
    bool good = true;
    for (threads_before = 1; threads_before <= 6; threads_before++) {
        // Only thread 0 continues, so that the fake need not interleave threads.
        threads_after = 1;
        good = run_once() && good;
    }
    return good ? 0 : 1;
}
