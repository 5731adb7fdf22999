// NEON with the dot product of ARMv8.2: phones and servers from Cortex-A76 (2018), every Apple M1
// (2020).
#include <arm_neon.h>
#define NK_ISA neon
#define NK_TABLE nk_table_neon
#define NK_VECTORS "isa/vec_neon.inc"
#include "generic/body.inc"
