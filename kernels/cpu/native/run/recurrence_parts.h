// Split of the value columns of a recurrence, where it has too few heads for the threads.
#pragma once
#include <stdint.h>

#include "api/nk.h"

// Parts of a head's columns: so many that each thread has two items or more, of 64 columns or more.
inline int64_t nk_recurrence_parts(const nk_recurrence_args &r, int64_t sequences,
                                   int64_t threads) {
    const int64_t heads = sequences * r.heads, most = (r.value_width + 63) / 64;
    const int64_t wanted = threads == 1 ? 1 : (2 * threads + heads - 1) / heads;
    return wanted < most ? wanted : most;
}
