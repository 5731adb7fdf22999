// Products of matrices with the activations of a few tokens.
//
// A SIMD group computes ROWS rows for TOKENS tokens: a lane reads every 32nd unit of each row, and
// its 32 activations once for all rows. Nothing is shared between SIMD groups, so that nothing
// waits. x [T, D] f32, y [T, N] f32.
#include "decoding.metal"

#define SIMDGROUPS 2 // of a thread group

struct Sums {
  float of[ROWS][TOKENS];
};

template <typename F> inline void add_packed(thread Sums &sums, device const float *x, Matrix w, uint row, uint lane) {
  uint units = w.columns / 32;
  for (uint u = lane; u < units; u += LANES) {
    device const float4 *some = (device const float4 *)(x + u * 32);
#pragma unroll
    for (uint half_unit = 0; half_unit < F::HALVES; half_unit++) {
      Sums partial;
      float totals[TOKENS];
      uint low[ROWS], high[ROWS];
      for (uint t = 0; t < TOKENS; t++) {
        totals[t] = 0.0f;
        for (uint r = 0; r < ROWS; r++)
          partial.of[r][t] = 0.0f;
      }
#pragma unroll
      for (uint i = half_unit * 8 / F::HALVES; i < (half_unit + 1) * 8 / F::HALVES; i++) {
        float4 values[TOKENS];
#pragma unroll
        for (uint t = 0; t < TOKENS; t++) {
          values[t] = some[t * (w.columns / 4) + i];
          if (F::OFFSET || F::HAS_MINIMUM)
            totals[t] += (values[t].x + values[t].y) + (values[t].z + values[t].w);
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
          uint at = min(row + r, w.rows - 1);
          if (i % F::LOW_LANES == 0)
            low[r] = low_word<F>(w, at, u, i);
          // The lanes of a word of the second plane can be those of two halves.
          if (i % F::HIGH_LANES == 0 || i % (8 / F::HALVES) == 0)
            high[r] = high_word<F>(w, at, u, i);
          float4 q = codes_of<F>(low[r], high[r], i);
#pragma unroll
          for (uint t = 0; t < TOKENS; t++) {
            float4 v = values[t];
            partial.of[r][t] = fma(q.x, v.x, fma(q.y, v.y, fma(q.z, v.z, fma(q.w, v.w, partial.of[r][t]))));
          }
        }
      }
#pragma unroll
      for (uint r = 0; r < ROWS; r++) {
        float2 scale = scale_of<F>(w, min(row + r, w.rows - 1), u, half_unit);
        for (uint t = 0; t < TOKENS; t++) {
          float value = partial.of[r][t] * float(F::FACTOR);
          if (F::OFFSET)
            value = fma(-float(F::OFFSET), totals[t], value);
          sums.of[r][t] = fma(scale.x, value, sums.of[r][t]);
          if (F::HAS_MINIMUM)
            sums.of[r][t] = fma(-scale.y, totals[t], sums.of[r][t]);
        }
      }
    }
  }
}

template <typename F> inline void add_floats(thread Sums &sums, device const float *x, Matrix w, uint row, uint lane) {
  ulong width = w.columns;
  if (width % 4) {
    for (uint c = lane; c < width; c += LANES)
      for (uint r = 0; r < ROWS; r++) {
        float q = float_at<F>(w, min(row + r, w.rows - 1) * width + c);
        for (uint t = 0; t < TOKENS; t++)
          sums.of[r][t] = fma(q, x[t * width + c], sums.of[r][t]);
      }
    return;
  }
  for (uint c = 4 * lane; c < width; c += 4 * LANES) {
    float4 values[TOKENS];
    for (uint t = 0; t < TOKENS; t++)
      values[t] = *(device const float4 *)(x + t * width + c);
    for (uint r = 0; r < ROWS; r++) {
      float4 q = floats_at<F>(w, min(row + r, w.rows - 1) * width + c);
      for (uint t = 0; t < TOKENS; t++) {
        float4 v = values[t];
        sums.of[r][t] = fma(q.x, v.x, fma(q.y, v.y, fma(q.z, v.z, fma(q.w, v.w, sums.of[r][t]))));
      }
    }
  }
}

// Products of ROWS rows from `row` on; every lane gets all sums.
template <typename F> inline Sums products_of(device const float *x, Matrix w, uint row, uint lane) {
  Sums sums;
  for (uint r = 0; r < ROWS; r++)
    for (uint t = 0; t < TOKENS; t++)
      sums.of[r][t] = 0.0f;
  if (F::IS_PACKED)
    add_packed<F>(sums, x, w, row, lane);
  else
    add_floats<F>(sums, x, w, row, lane);
  for (uint r = 0; r < ROWS; r++)
    for (uint t = 0; t < TOKENS; t++)
      sums.of[r][t] = simd_sum(sums.of[r][t]);
  return sums;
}
