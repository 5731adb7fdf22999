// The selected kernel table.
#pragma once
#include "isa/table.h"

// The instruction set set by nk_use_isa, else the fastest supported one.
const struct nk_table *nk_current(void);
