// Only the baseline instructions of the target: any processor.
#define NK_ISA scalar
#define NK_TABLE nk_table_scalar
#define NK_VECTORS "isa/vec_scalar.inc"
#define NK_NO_FORCED_INLINE
#include "generic/body.inc"
