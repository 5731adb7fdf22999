// Before the text of every other file.
#include <metal_stdlib>
#include <metal_simdgroup>
using namespace metal;

// Products and sums stay apart, as the decoders of the reference compute them.
#pragma METAL fp contract(off)

// Lanes of a SIMD group on every GPU of Apple.
#define LANES 32
