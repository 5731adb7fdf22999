// AVX-512 with VNNI where it multiplies half a vector a cycle, and looking up pays: AMD's Zen 4
// (2022).
#include <immintrin.h>
#define NK_LOOKUP_PREFILL
#define NK_ISA zen4
#define NK_TABLE nk_table_zen4
#define NK_VECTORS "isa/vec_avx512.inc"
#include "generic/body.inc"
