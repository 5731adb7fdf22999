// AVX2 with AVX-VNNI: Intel from Alder Lake (2021), AMD from Zen 5 (2024).
#include <immintrin.h>
#define NK_AVXVNNI
#define NK_ISA avxvnni
#define NK_TABLE nk_table_avxvnni
#define NK_VECTORS "isa/vec_avx2.inc"
#include "generic/body.inc"
