// The table of kernels in use.
#pragma once
#include "isa/table.h"

// The instruction set that nk_use_isa chose, else the best one that this processor runs.
const struct nk_table *nk_current(void);
