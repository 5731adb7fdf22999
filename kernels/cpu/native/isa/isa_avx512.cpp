// AVX-512 with VNNI: Intel from Ice Lake (2019), AMD from Zen 4 (2022).
#include <immintrin.h>
#define NK_ISA avx512
#define NK_TABLE nk_table_avx512
#define NK_VECTORS "isa/vec_avx512.inc"
#include "generic/body.inc"
