// Norms of rows, and the activation of a gate.

#define MOST_SIMDGROUPS 8  // of a thread group

// The sum of a number of every thread of a thread group; `parts` [MOST_SIMDGROUPS].
inline float sum_of_group(float value, threadgroup float *parts, uint simdgroup, uint simdgroups,
                          uint lane) {
    value = simd_sum(value);
    if (simdgroups == 1) return value;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // those of a sum before have been read
    if (lane == 0) parts[simdgroup] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    for (uint i = 0; i < simdgroups; i++) sum += parts[i];
    return sum;
}

// RMS norm, or with `centred` layer norm, of the rows of x → out; a thread group a row.
//
// p: width, centred, whether there is a bias. `out` may be x.
kernel void
norm(device const float *x, device const float *weight, device const float *bias, device float *out,
     constant float &epsilon, constant long *p, uint row [[threadgroup_position_in_grid]],
     uint thread_index [[thread_position_in_threadgroup]], uint count [[threads_per_threadgroup]],
     uint simdgroup [[simdgroup_index_in_threadgroup]],
     uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float parts[MOST_SIMDGROUPS];
    uint width = uint(p[0]);
    bool centred = p[1] != 0, has_bias = p[2] != 0;
    device const float *from = x + ulong(row) * width;
    device float *to = out + ulong(row) * width;
    float mean = 0.0f;
    if (centred) {
        float sum = 0.0f;
        for (uint c = thread_index; c < width; c += count) sum += from[c];
        mean = sum_of_group(sum, parts, simdgroup, simdgroups, lane) / float(width);
    }
    float squares = 0.0f;
    for (uint c = thread_index; c < width; c += count)
        squares = fma(from[c] - mean, from[c] - mean, squares);
    squares = sum_of_group(squares, parts, simdgroup, simdgroups, lane);
    float factor = precise::rsqrt(squares / float(width) + epsilon);
    for (uint c = thread_index; c < width; c += count) {
        float y = (from[c] - mean) * factor * weight[c];
        to[c] = has_bias ? y + bias[c] : y;
    }
}

template <int KIND> inline void gate(device const float *x, device const float *up,
                                     device float *out, bool has_up, uint i) {
    float y = activated<KIND>(x[i]);
    out[i] = has_up ? y * up[i] : y;
}

// out = activation(x) * up; p: number of the Activation, whether there is an up, elements.
kernel void gated(device const float *x, device const float *up, device float *out,
                  constant long *p, uint i [[thread_position_in_grid]]) {
    if (ulong(i) >= ulong(p[2])) return;
    bool has_up = p[1] != 0;
    if (p[0] == SILU) gate<SILU>(x, up, out, has_up, i);
    else if (p[0] == GELU) gate<GELU>(x, up, out, has_up, i);
    else gate<GELU_TANH>(x, up, out, has_up, i);
}

// x += scale * y
kernel void add(device float *x, device const float *y, constant float &scale,
                uint i [[thread_position_in_grid]]) {
    x[i] = fma(scale, y[i], x[i]);
}

// x = cap * tanh(x / cap)
kernel void softcap(device float *x, constant float &cap, uint i [[thread_position_in_grid]]) {
    x[i] = cap * hyperbolic_tangent(x[i] / cap);
}
