// Exported functions on the library itself: ABI version, thread count, idling.
#include "api/nk.h"

#include "run/pool.h"

int nk_abi(void) { return NK_ABI; }

int nk_set_threads(int threads) { return nk_pool_resize(threads); }
int nk_threads(void) { return nk_pool_size(); }

void nk_idle(void) { nk_pool_idle(); }
