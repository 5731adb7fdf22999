// Scratch of the single operations.
#pragma once

// Gives the scratch back; the next operation that needs some asks for it again.
void nk_ops_free_scratch(void);
