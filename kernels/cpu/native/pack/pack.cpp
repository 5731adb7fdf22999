// Packing of weights: GGUF blocks to the tiles of layout.h, and decoding of single packed rows.
//
// Operands: `source` rows of blocks as in a GGUF file at any address; `packed` consecutive groups
// as in layout.h, at least 4-byte aligned. Columns are a multiple of the block. Missing rows of the
// last group get scale zero and weight zero. Threads may pack disjoint ranges of rows and decode
// rows concurrently. Decoded rows are bit-identical to kernels/weights/decoders.py: a scale times a
// code is exact where a minimum is subtracted from it, so fused multiply-add makes no difference.

#include "pack/layout.h"
#include "api/nk.h"
#include "pack/rows.h"

namespace {

struct packing {
    int64_t format, group, columns, block_bytes, tile_bytes;
    int activation_group;
    // Packs one group of `rows` rows, `stride` bytes apart.
    void (*pack)(const uint8_t *source, int64_t stride, int rows, int64_t columns, void *packed);
    void (*get)(const void *packed, int row, int64_t columns, float *out);
};

// Packs row by row: a row's block is scattered to one word of every vector.
template <class F>
void pack_rows(const uint8_t *source, int64_t stride, int rows, int64_t columns, void *packed) {
    auto *tile = static_cast<typename F::tile *>(packed);
    for (int64_t i = 0; i < columns / F::columns; i++, tile++) {
        if (rows < 16) F::clear(*tile);
        const uint8_t *block = source + i * int64_t(sizeof(typename F::block));
        for (int row = 0; row < rows; row++, block += stride)
            F::put(*reinterpret_cast<const typename F::block *>(block), row, *tile);
    }
}

// Packs all rows of a tile together.
template <class F>
void pack_transposed(const uint8_t *source, int64_t stride, int rows, int64_t columns,
                     void *packed) {
    using block = typename F::block;
    static const block missing = {};
    auto *tile = static_cast<typename F::tile *>(packed);
    const block *row[F::group];
    for (int r = 0; r < F::group; r++)
        row[r] = r < rows ? reinterpret_cast<const block *>(source + r * stride) : &missing;
    for (int64_t i = 0; i < columns / F::columns; i++, tile++) {
        F::put_group(row, *tile);
        for (int r = 0; r < rows; r++) row[r]++;
    }
}

template <class F>
void get_row(const void *packed, int row, int64_t columns, float *out) {
    auto *tile = static_cast<const typename F::tile *>(packed);
    for (int64_t i = 0; i < columns; i += F::columns) F::get(*tile++, row, out + i);
}

template <class F, int kColumns, int kBytes>
constexpr packing packing_by(int64_t format) {
    packing p = {};
    p.format = format;
    if constexpr (F::group > 0) {
        static_assert(F::columns == kColumns, "the weights of a block, as in the format's row");
        static_assert(sizeof(typename F::block) == kBytes, "its bytes");
        p.group = F::group;
        p.activation_group = F::activation_group;
        p.columns = F::columns;
        p.block_bytes = sizeof(typename F::block);
        p.tile_bytes = sizeof(typename F::tile);
        if constexpr (F::transposed) p.pack = pack_transposed<F>;
        else p.pack = pack_rows<F>;
        p.get = get_row<F>;
    }
    return p;
}

const packing kPackings[] = {
#define NK_ROW(name, columns, bytes) \
    packing_by<FormatOf<NK_##name>::type, columns, bytes>(NK_##name),
    NK_FORMATS(NK_ROW)};

const packing *packing_of(int64_t format) {
    for (const packing &p : kPackings)
        if (p.format == format) return p.group ? &p : nullptr;
    return nullptr;
}

// Bytes of one packed group; 0 if the columns are not a multiple of the block.
int64_t group_bytes(const packing &p, int64_t columns) {
    int64_t bytes;
    if (columns <= 0 || columns % p.columns) return 0;
    return __builtin_mul_overflow(columns / p.columns, p.tile_bytes, &bytes) ? 0 : bytes;
}

}  // namespace

int64_t nk_group_rows(int64_t format) {
    const packing *p = packing_of(format);
    return p ? p->group : 0;
}

int nk_activation_group(int64_t format) {
    const packing *p = packing_of(format);
    return p ? p->activation_group : 0;
}

// 0 for an unsupported format, a size below one, and int64_t overflow.
int64_t nk_packed_bytes(int64_t format, int64_t rows, int64_t columns) {
    const packing *p = packing_of(format);
    int64_t bytes;
    if (!p || rows <= 0) return 0;
    const int64_t groups = (rows - 1) / p->group + 1;
    return __builtin_mul_overflow(groups, group_bytes(*p, columns), &bytes) ? 0 : bytes;
}

int nk_pack(int64_t format, const void *source, int64_t rows, int64_t columns, int64_t first,
            int64_t end, void *packed) {
    const packing *p = packing_of(format);
    if (!p) return NK_BAD_FORMAT;
    if (nk_packed_bytes(format, rows, columns) == 0) return NK_BAD_SHAPE;
    if (first < 0 || first > end || end > rows || first % p->group) return NK_BAD_SHAPE;
    if (end % p->group && end != rows) return NK_BAD_SHAPE;
    const int64_t stride = columns / p->columns * p->block_bytes, bytes = group_bytes(*p, columns);
    auto *from = static_cast<const uint8_t *>(source);
    auto *to = static_cast<uint8_t *>(packed);
    for (int64_t row = first; row < end; row += p->group) {
        const int64_t valid_rows = end - row < p->group ? end - row : p->group;
        p->pack(from + row * stride, stride, int(valid_rows), columns, to + row / p->group * bytes);
    }
    return NK_OK;
}

bool nk_has_rows(const nk_weight &weight, const int64_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= weight.rows) return false;
    return true;
}

void nk_decode_rows(const nk_weight &weight, const int64_t *ids, int64_t count, float *out) {
    const packing *p = packing_of(weight.format);
    const int64_t columns = weight.columns, bytes = group_bytes(*p, columns);
    auto *groups = static_cast<const uint8_t *>(weight.data);
    for (int64_t i = 0; i < count; i++)
        p->get(groups + ids[i] / p->group * bytes, int(ids[i] % p->group), columns,
               out + i * columns);
}

// → out f32 [count, columns]; nothing is written if any id is outside 0 .. rows - 1.
int nk_rows_of(const struct nk_weight *weight, const int64_t *ids, int64_t count, float *out) {
    const packing *p = packing_of(weight->format);
    if (!p) return NK_BAD_FORMAT;
    if (group_bytes(*p, weight->columns) == 0 || count < 0) return NK_BAD_SHAPE;
    if (!nk_has_rows(*weight, ids, count)) return NK_BAD_ID;
    nk_decode_rows(*weight, ids, count, out);
    return NK_OK;
}
