// Before the text of every other file.
#include <metal_stdlib>
#include <metal_simdgroup>
using namespace metal;

// No fused multiply-add but where fma() asks for one: decoders need the bits of the reference.
#pragma METAL fp contract(off)

#define LANES 32  // of a SIMD group, on every GPU of Apple

// A loop whose `count` is known to the compiler; unrolled, because an array of a thread that is
// indexed by a variable is not kept in registers.
#define EACH(i, count) _Pragma("unroll") for (uint i = 0; i < uint(count); i++)

// Of kernels/programs/program.py, in its order.
enum Activation { SILU, GELU, GELU_TANH };

// The error function; absolute error 2e-7. Abramowitz and Stegun, 7.1.26.
inline float error_function(float x) {
    float size = fabs(x);
    float t = 1.0f / fma(0.3275911f, size, 1.0f);
    float series = fma(
        fma(fma(fma(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t,
        0.254829592f);
    return copysign(1.0f - series * t * precise::exp(-size * size), x);
}

// tanh; its arguments may be as large as they like.
inline float hyperbolic_tangent(float x) { return 1.0f - 2.0f / (precise::exp(2.0f * x) + 1.0f); }

template <int KIND> inline float activated(float x) {
    if (KIND == SILU) return x / (1.0f + precise::exp(-x));
    if (KIND == GELU) return 0.5f * x * (1.0f + error_function(x * M_SQRT1_2_F));
    return 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608f * fma(0.044715f * x * x, x, x)));
}
