// AVX2 with FMA and F16C: Intel from Haswell (2013), AMD from Excavator (2015) and every Zen.
#include <immintrin.h>
#define NK_ISA avx2
#define NK_TABLE nk_table_avx2
#define NK_VECTORS "isa/vec_avx2.inc"
#include "generic/body.inc"
