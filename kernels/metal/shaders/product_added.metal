// A product that is added to the residual stream; see multiply.metal.
//
// W0 is the `Format` of the matrix.
#include "multiply.metal"

// y += scale * product
kernel void product_added(device const float *x, device const uchar *w0, device float *y,
                          constant float &scale, constant long *p,
                          uint group [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
    Matrix w = matrix_of(w0, p);
    uint row = (group * SIMDGROUPS + simdgroup) * ROWS;
    if (row >= w.rows) return;
    Sums sums = products_of<W0>(x, w, row, lane);
    EACH (r, ROWS)
        EACH (t, TOKENS)
            if (lane == r * TOKENS + t && row + r < w.rows)
                y[ulong(t) * w.rows + row + r] += scale * sums.of[r][t];
}
