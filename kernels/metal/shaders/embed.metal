// Rows of a matrix as floats, with the bits of the format's decoder.
//
// W0 is the `Format` of the matrix. A thread writes one lane of a unit, 4 columns; of a matrix of
// floats one column.
#include "decoding.metal"

typedef W0 Weights;

inline void write_row(Matrix w, ulong row, uint part, device float *out, float scale) {
    if (Weights::IS_PACKED) {
        float4 values = decoded<Weights>(w, row, part / 8, part % 8) * scale;
        EACH (i, 4) out[4 * part + i] = values[i];
    } else {
        out[part] = float_at<Weights>(w, row * w.columns + part) * scale;
    }
}

// out [T, D] = scale * rows `ids` [T].
kernel void embedded(device const long *ids, device const uchar *w0, device float *out,
                     constant float &scale, constant long *p,
                     uint2 at [[thread_position_in_grid]]) {
    Matrix w = matrix_of(w0, p);
    write_row(w, ulong(ids[at.y]), at.x, out + ulong(at.y) * w.columns, scale);
}

// out [N, D] = rows from `first` on.
kernel void decoded_rows(device const uchar *w0, device float *out, constant long &first,
                         constant long *p, uint2 at [[thread_position_in_grid]]) {
    Matrix w = matrix_of(w0, p);
    write_row(w, ulong(first) + at.y, at.x, out + ulong(at.y) * w.columns, 1.0f);
}
