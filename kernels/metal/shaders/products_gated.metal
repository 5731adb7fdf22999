// Gate and up of a feed-forward layer in one launch; see multiply.metal.
//
// W0 and W1 are the `Format`s of the matrices, ACTIVATION the number of an `Activation`.
#include "multiply.metal"

// y = activation(product with w0) * product with w1
kernel void products_gated(device const float *x, device const uchar *w0, device const uchar *w1,
                           device float *y, constant long *p,
                           uint group [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
    Matrix a = matrix_of(w0, p), b = matrix_of(w1, p + FIELDS);
    uint row = (group * SIMDGROUPS + simdgroup) * ROWS;
    if (row >= a.rows) return;
    Sums gate = products_of<W0>(x, a, row, lane), up = products_of<W1>(x, b, row, lane);
    EACH (r, ROWS)
        EACH (t, TOKENS)
            if (lane == r * TOKENS + t && row + r < a.rows)
                y[ulong(t) * a.rows + row + r] = activated<ACTIVATION>(gate.of[r][t]) * up.of[r][t];
}
