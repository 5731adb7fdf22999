// NEON with the 8-bit matrix extension, for its unsigned by signed product: Apple M2 and Graviton 3
// (2022).
#include <arm_neon.h>
#define NK_I8MM
#define NK_ISA i8mm
#define NK_TABLE nk_table_i8mm
#define NK_VECTORS "isa/vec_neon.inc"
#include "generic/body.inc"
