// Detects which of the compiled instruction sets this processor and its operating system support.
#pragma once
#include "isa/table.h"

enum { NK_MAX_TABLES = 5 };

// Writes the supported tables, fastest first and scalar last; returns their number.
int nk_detect(const struct nk_table *tables[NK_MAX_TABLES]);
