// Test driver: runs kernels on operands that end at a guard page, and returns their results.
//
// Reads a file of cases and writes a file of results, both int64 numbers and raw bytes in the order
// of `read_case` and `write_result`. Every operand, packed weight, cache and result ends at an
// inaccessible page and follows bytes 0xFF, NaN in every float type: accesses behind it crash,
// reads before it make results NaN, and writes before it are detected. `--names` prints the
// instruction sets instead.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pack/layout.h"
#include "api/nk.h"

namespace {

constexpr int kMaxParameters = 16, kMaxOperands = 14, kMaxBlocks = 64, kMaxPages = 16,
              kMaxTokens = 64;
constexpr uint8_t kPoison = 0xFF;
enum Op { LINEAR, ROWS_OF, RMS_NORM, ROPE, GATED, SOFTCAP, ATTENTION, RUN, FULL_ATTENTION };

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "driver: %s\n", what);
    exit(2);
}

// --- memory that ends at a guard page

struct Block {
    uint8_t *whole;
    size_t mapped, before;  // bytes; `before` bytes are poisoned
    uint8_t *data;
};

Block blocks[kMaxBlocks];
int block_count = 0;

void *guarded(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t usable = (bytes + page - 1) / page * page + page;  // at least one page of poison
    if (block_count == kMaxBlocks) fail("too many blocks");
    Block &b = blocks[block_count++];
    b.mapped = usable + page;
    b.whole = (uint8_t *)mmap(nullptr, b.mapped, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.whole == MAP_FAILED) fail("no memory");
    if (mprotect(b.whole + usable, page, PROT_NONE) != 0) fail("no guard page");
    memset(b.whole, kPoison, usable);
    b.before = usable - bytes;
    b.data = b.whole + b.before;
    return b.data;
}

void free_blocks() {
    for (int i = 0; i < block_count; i++) {
        for (size_t at = 0; at < blocks[i].before; at++)
            if (blocks[i].whole[at] != kPoison) fail("a kernel wrote before a tensor");
        munmap(blocks[i].whole, blocks[i].mapped);
    }
    block_count = 0;
}

// --- files

struct Case {
    int64_t op, isa, threads;
    int64_t p[kMaxParameters];  // floats as their bits
    void *operand[kMaxOperands];
    int64_t bytes[kMaxOperands];
};

int64_t read_number(FILE *file) {
    int64_t number;
    if (fread(&number, sizeof number, 1, file) != 1) fail("a case ends early");
    return number;
}

bool read_case(FILE *file, Case &c) {
    memset(&c, 0, sizeof c);
    if (fread(&c.op, sizeof c.op, 1, file) != 1) return false;
    c.isa = read_number(file);
    c.threads = read_number(file);
    const int64_t parameters = read_number(file);
    if (parameters < 0 || parameters > kMaxParameters) fail("too many parameters");
    for (int64_t i = 0; i < parameters; i++) c.p[i] = read_number(file);
    const int64_t operands = read_number(file);
    if (operands < 0 || operands > kMaxOperands) fail("too many operands");
    for (int64_t i = 0; i < operands; i++) {
        c.bytes[i] = read_number(file);
        c.operand[i] = guarded((size_t)c.bytes[i]);
        if (fread(c.operand[i], 1, (size_t)c.bytes[i], file) != (size_t)c.bytes[i])
            fail("an operand ends early");
    }
    return true;
}

void write_result(FILE *file, int status, const void *data, int64_t bytes) {
    const int64_t head[2] = {status, bytes};
    if (fwrite(head, sizeof head, 1, file) != 1) fail("cannot write");
    if (bytes && fwrite(data, (size_t)bytes, 1, file) != 1) fail("cannot write");
}

float float_of(int64_t bits) {
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

// --- operations: each returns a status and its result

struct Result {
    void *data;
    int64_t bytes;
};

Result floats(int64_t count) { return {guarded((size_t)(4 * count)), 4 * count}; }

// parameters: format, rows, columns; operand 0: rows in GGUF layout
int pack(const Case &c, nk_weight &weight) {
    const int64_t format = c.p[0], rows = c.p[1], columns = c.p[2];
    const int64_t bytes = nk_packed_bytes(format, rows, columns);
    if (bytes <= 0) return NK_BAD_SHAPE;
    void *packed = guarded((size_t)bytes);
    weight = {packed, format, rows, columns};
    const int64_t half = rows / 2 / nk_group_rows(format) * nk_group_rows(format);
    const int status = nk_pack(format, c.operand[0], rows, columns, half, rows, packed);
    return status ? status : nk_pack(format, c.operand[0], rows, columns, 0, half, packed);
}

nk_op op_of(int kind, int x, int out, int64_t width) {
    nk_op op = {};
    op.kind = kind;
    op.x = x;
    op.out = out;
    op.width = width;
    op.activation = op.add_to = -1;
    op.epsilon = 1e-5f;
    op.scale = 1;
    return op;
}

// Runs few operations on these buffers, over segments or so many rows.
int run_ops(const nk_op *ops, int count, float **buffers, const nk_segment *segments,
            int64_t segment_count, const nk_kv_layer *layer = nullptr, int64_t type = 0) {
    const nk_program program = {ops, buffers, layer, type, (int64_t)sizeof(nk_op)};
    return nk_run(&program, 0, count, segments, segment_count, nullptr);
}

int run_rows(const nk_op *ops, int count, float **buffers, int64_t rows) {
    const nk_segment segment = {rows, 0, nullptr};
    return run_ops(ops, count, buffers, &segment, 1);
}

Result copy(const void *data, int64_t count) {
    const Result made = floats(count);
    memcpy(made.data, data, (size_t)made.bytes);
    return made;
}

// parameters of pack and tokens; operand 1: x
int linear(const Case &c, Result &y) {
    nk_weight weight;
    const int status = pack(c, weight);
    y = floats(c.p[3] * c.p[1]);
    if (status) return status;
    float *buffers[] = {(float *)c.operand[1], (float *)y.data};
    nk_op ops[] = {op_of(NK_QUANTIZE, 0, -1, c.p[2]), op_of(NK_LINEAR, 0, -1, c.p[2])};
    ops[0].quantize = nk_activation_group(c.p[0]);
    ops[0].barrier = NK_BARRIER_BATCH;
    ops[1].count = 1, ops[1].weights[0] = weight, ops[1].outs[0] = 1;
    const int first = ops[0].quantize ? 0 : 1;
    return run_rows(ops + first, 2 - first, buffers, c.p[3]);
}

// parameters of pack and count; operand 1: ids
int rows_of(const Case &c, Result &y) {
    nk_weight weight;
    const int status = pack(c, weight);
    y = floats(c.p[3] * c.p[2]);
    return status ? status
                  : nk_rows_of(&weight, (const int64_t *)c.operand[1], c.p[3], (float *)y.data);
}

// tokens, width, epsilon; x, weight
int rms_norm(const Case &c, Result &y) {
    y = floats(c.p[0] * c.p[1]);
    float *buffers[] = {(float *)c.operand[0], (float *)y.data};
    nk_op op = op_of(NK_NORM, 0, 1, c.p[1]);
    op.weight = (const float *)c.operand[1], op.epsilon = float_of(c.p[2]);
    return run_rows(&op, 1, buffers, c.p[0]);
}

// tokens, heads, width, pairs, interleaved, scale; x, positions, frequencies
int rope(const Case &c, Result &y) {
    const int64_t tokens = c.p[0], *positions = (const int64_t *)c.operand[1];
    y = copy(c.operand[0], tokens * c.p[1] * c.p[2]);
    float *buffers[] = {(float *)y.data, (float *)floats(tokens * 2 * c.p[3]).data};
    nk_op ops[] = {op_of(NK_ANGLES, -1, 1, 0), op_of(NK_ROPE, 0, 1, 0)};
    ops[0].weight = (const float *)c.operand[2], ops[0].scale = float_of(c.p[5]);
    ops[0].pairs = ops[1].pairs = (int32_t)c.p[3];
    ops[1].y = ops[1].z = -1, ops[1].interleaved = (int32_t)c.p[4];
    ops[1].heads = c.p[1], ops[1].head_width = c.p[2];
    nk_segment segments[kMaxTokens];
    if (tokens > kMaxTokens) fail("too many tokens");
    for (int64_t i = 0; i < tokens; i++) segments[i] = {1, positions[i], nullptr};
    return run_ops(ops, 2, buffers, segments, tokens);
}

// count, activation; gate, up
int gated(const Case &c, Result &y) {
    y = floats(c.p[0]);
    float *buffers[] = {(float *)c.operand[0], (float *)c.operand[1], (float *)y.data};
    nk_op op = op_of(NK_GATE, 0, 2, c.p[0]);
    op.y = 1, op.activation = (int32_t)c.p[1];
    return run_rows(&op, 1, buffers, 1);
}

// count, cap; x
int softcap(const Case &c, Result &y) {
    y = copy(c.operand[0], c.p[0]);
    float *buffers[] = {(float *)y.data};
    nk_op op = op_of(NK_SOFTCAP, 0, -1, c.p[0]);
    op.y = -1, op.cap = float_of(c.p[1]);
    return run_rows(&op, 1, buffers, 1);
}

// tokens, heads, kv_heads, width, position, type, window, scale, cap, bytes of a page, offsets of
// keys, key scales, values, value scales; q, pages, sinks
int attention(const Case &c, Result &y) {
    const int64_t tokens = c.p[0], heads = c.p[1], width = c.p[3], page_bytes = c.p[9];
    const nk_kv_layer layer = {0, c.p[10], c.p[11], c.p[12], c.p[13]};
    uint8_t *pages[kMaxPages], **tables[] = {pages};
    const int64_t count = c.bytes[1] / page_bytes;
    if (count > kMaxPages) fail("too many pages");
    for (int64_t i = 0; i < count; i++) {
        pages[i] = (uint8_t *)guarded((size_t)page_bytes);
        memcpy(pages[i], (const uint8_t *)c.operand[1] + i * page_bytes, (size_t)page_bytes);
    }
    const nk_segment segment = {tokens, c.p[4], tables};
    y = floats(tokens * heads * width);
    float *buffers[] = {(float *)c.operand[0], (float *)y.data};
    nk_op op = op_of(NK_ATTEND, 0, 1, 0);
    op.heads = heads, op.kv_heads = c.p[2], op.head_width = width;
    op.scale = float_of(c.p[7]), op.window = c.p[6], op.cap = float_of(c.p[8]);
    op.sinks = c.bytes[2] ? (const float *)c.operand[2] : nullptr;
    return run_ops(&op, 1, buffers, &segment, 1, &layer, c.p[5]);
}

// tokens, heads, kv_heads, width, window, scale; q, k, v
int full_attention(const Case &c, Result &y) {
    y = floats(c.p[0] * c.p[1] * c.p[3]);
    float *buffers[] = {(float *)c.operand[0], (float *)c.operand[1], (float *)c.operand[2],
                        (float *)y.data};
    nk_op ops[] = {op_of(NK_ROPE, 0, 0, 0), op_of(NK_ATTEND, 0, 3, 0)};
    for (nk_op &op : ops) {
        op.y = 1, op.z = 2, op.full = 1;
        op.heads = c.p[1], op.kv_heads = c.p[2], op.head_width = c.p[3];
        op.window = c.p[4], op.scale = float_of(c.p[5]);
    }
    return run_rows(ops, 2, buffers, c.p[0]);
}

// --- a recorded program: one layer of a model and its output head

enum Buffer {
    STREAM,
    NORMED,
    QUERY,
    KEY,
    VALUE,
    ANGLES,
    ATTENDED,
    MADE,
    GATE,
    UP,
    LOGITS,
    BUFFERS
};

struct Model {
    int64_t format, width, heads, kv_heads, head_width, inner, vocabulary, type, tokens;
    float cap;
    nk_weight table, query, key, value, output, gate, up, down;
    const float *norms, *query_norm, *key_norm, *frequencies;
};

int pack_matrix(const Case &c, int operand, int64_t rows, int64_t columns, nk_weight &weight) {
    Case one = c;
    one.p[1] = rows;
    one.p[2] = columns;
    one.operand[0] = c.operand[operand];
    return pack(one, weight);
}

nk_op norm_of(const Model &m, int number) {
    nk_op op = op_of(NK_NORM, STREAM, NORMED, m.width);
    op.weight = m.norms + number * m.width;
    op.quantize = nk_activation_group(m.format);
    op.barrier = op.quantize ? NK_BARRIER_BATCH : NK_BARRIER_ALWAYS;
    return op;
}

nk_op quantize_of(const Model &m, int x, int64_t width) {
    nk_op op = op_of(NK_QUANTIZE, x, 0, width);
    op.quantize = nk_activation_group(m.format);
    op.barrier = NK_BARRIER_BATCH;
    return op;
}

nk_op product_of(int x, int64_t width, int out, const nk_weight &weight) {
    nk_op op = op_of(NK_LINEAR, x, 0, width);
    op.count = 1;
    op.weights[0] = weight;
    op.outs[0] = out;
    return op;
}

void add_product(nk_op &op, int out, const nk_weight &weight) {
    op.weights[op.count] = weight;
    op.outs[op.count++] = out;
}

int record(const Model &m, nk_op *ops) {
    const int64_t query = m.heads * m.head_width;
    const bool reads_copies = nk_activation_group(m.format) != 0;
    nk_op *op = ops;
    *op = op_of(NK_ANGLES, 0, ANGLES, 0);
    op->barrier = 1;
    op->pairs = (int32_t)(m.head_width / 2);
    op++->weight = m.frequencies;
    *op = op_of(NK_EMBED, -1, STREAM, m.width);
    op++->weights[0] = m.table;
    *op++ = norm_of(m, 0);
    *op = product_of(NORMED, m.width, QUERY, m.query);
    add_product(*op, KEY, m.key);
    add_product(*op++, VALUE, m.value);
    const int kinds[] = {NK_ROPE, NK_ATTEND};
    for (const int kind : kinds) {
        *op = op_of(kind, QUERY, kind == NK_ROPE ? ANGLES : ATTENDED, 0);
        op->y = KEY;
        op->z = VALUE;
        op->pairs = (int32_t)(m.head_width / 2);
        op->heads = m.heads;
        op->kv_heads = m.kv_heads;
        op->head_width = m.head_width;
        op->query_norm = m.query_norm;
        op->key_norm = m.key_norm;
        op++->scale = 0.125f;
    }
    if (reads_copies) *op++ = quantize_of(m, ATTENDED, query);
    *op = product_of(ATTENDED, query, MADE, m.output);
    op++->add_to = STREAM;
    *op++ = norm_of(m, 1);
    *op = product_of(NORMED, m.width, GATE, m.gate);
    add_product(*op, UP, m.up);
    op++->activation = 0;
    if (reads_copies) *op++ = quantize_of(m, GATE, m.inner);
    *op = product_of(GATE, m.inner, MADE, m.down);
    op++->add_to = STREAM;
    *op++ = norm_of(m, 2);
    *op++ = product_of(NORMED, m.width, LOGITS, m.table);
    *op = op_of(NK_SOFTCAP, LOGITS, 0, m.vocabulary);
    op++->cap = m.cap;
    return (int)(op - ops);
}

// format, -, -, width, heads, kv_heads, head_width, inner, vocabulary, type, tokens, cap; operands
// 0 .. 7 matrices in the order of Model, 8 norms, 9 and 10 norms of heads, 11 frequencies, 12 ids.
// All tokens but the last are one prefill batch, then the last is decoded.
int run_program(const Case &c, Result &y) {
    Model m = {c.p[0],
               c.p[3],
               c.p[4],
               c.p[5],
               c.p[6],
               c.p[7],
               c.p[8],
               c.p[9],
               c.p[10],
               float_of(c.p[11]),
               {},
               {},
               {},
               {},
               {},
               {},
               {},
               {},
               (const float *)c.operand[8],
               (const float *)c.operand[9],
               (const float *)c.operand[10],
               (const float *)c.operand[11]};
    const int64_t query = m.heads * m.head_width, key = m.kv_heads * m.head_width;
    const int64_t rows[] = {m.vocabulary, query, key, key, m.width, m.inner, m.inner, m.width};
    const int64_t columns[] = {m.width, m.width, m.width, m.width,
                               query,   m.width, m.width, m.inner};
    nk_weight *weights[] = {&m.table,  &m.query, &m.key, &m.value,
                            &m.output, &m.gate,  &m.up,  &m.down};
    for (int i = 0; i < 8; i++)
        if (const int status = pack_matrix(c, i, rows[i], columns[i], *weights[i])) return status;

    const int64_t widths[BUFFERS] = {m.width, m.width, query,   key,     key,         m.head_width,
                                     query,   m.width, m.inner, m.inner, m.vocabulary};
    float *buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        buffers[i] = (float *)guarded((size_t)(4 * widths[i] * m.tokens));
    const int64_t each = m.type == NK_CACHE_F32 ? 4 : m.type == NK_CACHE_F16 ? 2 : 1;
    const int64_t padded = (m.head_width + 31) / 32 * 32, positions = m.kv_heads * NK_PAGE_TOKENS;
    const int64_t codes = positions * padded * each, scales = positions * padded / 32 * 2;
    const nk_kv_layer layer = {0, 0, codes, codes + scales, 2 * codes + scales};
    uint8_t *page = (uint8_t *)guarded((size_t)(2 * (codes + scales)));
    uint8_t **tables[] = {&page};
    if (m.tokens > NK_PAGE_TOKENS) fail("too many tokens");
    static nk_op ops[32];
    const int count = record(m, ops);
    const nk_program program = {ops, buffers, &layer, m.type, (int64_t)sizeof(nk_op)};
    const int64_t *ids = (const int64_t *)c.operand[12], before = m.tokens - 1;
    const nk_segment segments[] = {{before, 0, tables}, {1, before, tables}};
    y = floats(m.tokens * m.vocabulary);
    if (const int status = nk_run(&program, 0, count, &segments[0], 1, ids)) return status;
    memcpy(y.data, buffers[LOGITS], (size_t)(4 * before * m.vocabulary));
    if (const int status = nk_run(&program, 0, count, &segments[1], 1, ids + before)) return status;
    memcpy((float *)y.data + before * m.vocabulary, buffers[LOGITS], (size_t)(4 * m.vocabulary));
    return NK_OK;
}

int run(const Case &c, Result &y) {
    if (nk_use_isa((int)c.isa) != NK_OK) fail("no such instruction set");
    if (nk_set_threads((int)c.threads) != NK_OK) fail("no threads");
    switch (c.op) {
    case LINEAR: return linear(c, y);
    case ROWS_OF: return rows_of(c, y);
    case RMS_NORM: return rms_norm(c, y);
    case ROPE: return rope(c, y);
    case GATED: return gated(c, y);
    case SOFTCAP: return softcap(c, y);
    case ATTENTION: return attention(c, y);
    case FULL_ATTENTION: return full_attention(c, y);
    case RUN: return run_program(c, y);
    }
    fail("no such op");
}

}  // namespace

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--names") == 0) {
        for (int i = 0; i < nk_isa_count(); i++) puts(nk_isa_name(i));
        return 0;
    }
    if (count != 3) fail("give a file of cases and one for results");
    FILE *cases = fopen(arguments[1], "rb"), *results = fopen(arguments[2], "wb");
    if (!cases || !results) fail("cannot open the files");
    for (Case c; read_case(cases, c);) {
        Result y = {};
        const int status = run(c, y);
        write_result(results, status, y.data, status ? 0 : y.bytes);
        free_blocks();
    }
    fclose(cases);
    if (fclose(results) != 0) fail("cannot write");
    if (nk_set_threads(1) != NK_OK) fail("no threads");
    nk_free_scratch();
    nk_idle();
    return 0;
}
