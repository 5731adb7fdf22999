// AVX-512 with VNNI for AMD's Zen 4 (2022) and Zen 5 (2024), whose look-ups are faster than their
// products: one-bit prefill uses table look-ups instead.
#include <immintrin.h>
#define NK_LOOKUP_PREFILL
#define NK_ISA zen4
#define NK_TABLE nk_table_zen4
#define NK_VECTORS "isa/vec_avx512.inc"
#include "generic/body.inc"
