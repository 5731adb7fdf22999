// Products of matrices with the activations of a few tokens.
//
// A SIMD group computes ROWS rows for TOKENS tokens: a lane reads every 32nd unit of each row, or
// with SPLIT 2 every 32nd half of a unit, and its activations once for all rows. Nothing is shared
// between SIMD groups, so that nothing waits. x [T, D] f32, y [T, N] f32.
#include "decoding.metal"

#define SIMDGROUPS 2  // of a thread group

struct Sums { float of[ROWS][TOKENS]; };

// sum + the dot product of a and b
inline float add_products(float4 a, float4 b, float sum) {
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum))));
}

template <typename F>
inline void add_packed(thread Sums &sums, device const float *x, Matrix w, uint row, uint lane) {
    const uint pieces = SPLIT == 2 ? 1 : F::HALVES;  // of what a lane reads; each has one scale
    const uint count = 8 / SPLIT / pieces;           // lanes of a unit in a piece
    for (uint part = lane; part < w.columns / 32 * SPLIT; part += LANES) {
        uint u = part / SPLIT;
        device const float4 *some = (device const float4 *)(x + u * 32);
        EACH (piece, pieces) {
            uint second = SPLIT == 2 ? part % 2 : piece;  // the half of the unit
            Sums partial;
            float totals[TOKENS];
            uint low[ROWS], high[ROWS];
            EACH (t, TOKENS) {
                totals[t] = 0.0f;
                EACH (r, ROWS) partial.of[r][t] = 0.0f;
            }
            EACH (j, count) {
                uint i = second * count + j;  // the lane of the unit
                float4 values[TOKENS];
                EACH (t, TOKENS) {
                    values[t] = some[t * (w.columns / 4) + i];
                    if (F::OFFSET || F::HAS_MINIMUM)
                        totals[t] += (values[t].x + values[t].y) + (values[t].z + values[t].w);
                }
                EACH (r, ROWS) {
                    uint at = min(row + r, w.rows - 1);
                    if (j % F::LOW_LANES == 0) low[r] = low_word<F>(w, at, u, i);
                    if (j % F::HIGH_LANES == 0) high[r] = high_word<F>(w, at, u, i);
                    float4 q = codes_of<F>(low[r], high[r], i);
                    EACH (t, TOKENS)
                        partial.of[r][t] = add_products(q, values[t], partial.of[r][t]);
                }
            }
            EACH (r, ROWS) {
                uint at = min(row + r, w.rows - 1);
                float2 scale = scale_of<F>(w, at, u, F::HALVES == 2 ? second : 0);
                EACH (t, TOKENS) {
                    float value = partial.of[r][t] * float(F::FACTOR);
                    if (F::OFFSET) value = fma(-float(F::OFFSET), totals[t], value);
                    sums.of[r][t] = fma(scale.x, value, sums.of[r][t]);
                    if (F::HAS_MINIMUM) sums.of[r][t] = fma(-scale.y, totals[t], sums.of[r][t]);
                }
            }
        }
    }
}

template <typename F>
inline void add_floats(thread Sums &sums, device const float *x, Matrix w, uint row, uint lane) {
    ulong width = w.columns;
    if (width % 4) {
        for (uint c = lane; c < width; c += LANES)
            EACH (r, ROWS) {
                float q = float_at<F>(w, min(row + r, w.rows - 1) * width + c);
                EACH (t, TOKENS) sums.of[r][t] = fma(q, x[t * width + c], sums.of[r][t]);
            }
        return;
    }
    for (uint c = 4 * lane; c < width; c += 4 * LANES) {
        float4 values[TOKENS];
        EACH (t, TOKENS) values[t] = *(device const float4 *)(x + t * width + c);
        EACH (r, ROWS) {
            float4 q = floats_at<F>(w, min(row + r, w.rows - 1) * width + c);
            EACH (t, TOKENS) sums.of[r][t] = add_products(q, values[t], sums.of[r][t]);
        }
    }
}

// Products of ROWS rows from `row` on; every lane gets all sums.
template <typename F>
inline Sums products_of(device const float *x, Matrix w, uint row, uint lane) {
    Sums sums;
    EACH (r, ROWS)
        EACH (t, TOKENS) sums.of[r][t] = 0.0f;
    if (F::IS_PACKED) add_packed<F>(sums, x, w, row, lane);
    else add_floats<F>(sums, x, w, row, lane);
    EACH (r, ROWS)
        EACH (t, TOKENS) sums.of[r][t] = simd_sum(sums.of[r][t]);
    return sums;
}
