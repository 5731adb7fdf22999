// Rows of packed weights: those of a table of embeddings.
#pragma once
#include "api/nk.h"

// Whether all ids are rows of a weight.
bool nk_has_rows(const nk_weight &weight, const int64_t *ids, int64_t count);

// Decodes these rows → out f32 [count, columns]. The weight must have a packed layout, and the
// rows.
void nk_decode_rows(const nk_weight &weight, const int64_t *ids, int64_t count, float *out);
