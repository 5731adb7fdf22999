// Up to three products of one x, such as queries, keys and values; see multiply.metal.
//
// W0 to W2 are the `Format`s of COUNT matrices.
#include "multiply.metal"

template <typename F> inline void store(device const float *x, Matrix w, device float *y, uint row,
                                        uint lane) {
    Sums sums = products_of<F>(x, w, row, lane);
    EACH (r, ROWS)
        EACH (t, TOKENS)
            if (lane == r * TOKENS + t && row + r < w.rows)
                y[ulong(t) * w.rows + row + r] = sums.of[r][t];
}

// y0, y1, y2 = products
kernel void products(device const float *x, device const uchar *w0, device const uchar *w1,
                     device const uchar *w2, device float *y0, device float *y1, device float *y2,
                     constant long *p, uint group [[threadgroup_position_in_grid]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
    Matrix a = matrix_of(w0, p), b = matrix_of(w1, p + FIELDS), c = matrix_of(w2, p + 2 * FIELDS);
    uint block = group * SIMDGROUPS + simdgroup, count = (a.rows + ROWS - 1) / ROWS;
    if (block < count) {
        store<W0>(x, a, y0, block * ROWS, lane);
        return;
    }
    block -= count;
    count = (b.rows + ROWS - 1) / ROWS;
    if (COUNT > 1 && block < count) {
        store<W1>(x, b, y1, block * ROWS, lane);
        return;
    }
    block -= count;
    if (COUNT > 2 && block < (c.rows + ROWS - 1) / ROWS) store<W2>(x, c, y2, block * ROWS, lane);
}
