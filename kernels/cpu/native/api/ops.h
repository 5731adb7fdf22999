// Scratch memory of the single operations.
#pragma once

// Frees the scratch; the next operation that needs it allocates it again.
void nk_ops_free_scratch(void);
