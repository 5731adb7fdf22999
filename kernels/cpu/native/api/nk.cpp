// Picks the kernels of one instruction set for this processor, and says how many threads run them.
#include "api/nk.h"

#include "isa/current.h"
#include "isa/detect.h"
#include "api/ops.h"
#include "run/pool.h"

namespace {

struct Choice {
    const nk_table *tables[NK_MOST_TABLES];
    int count;
    const nk_table *current;
} choice;

const Choice &choices() {
    if (choice.count == 0) {
        choice.count = nk_detect(choice.tables);
        choice.current = choice.tables[0];
    }
    return choice;
}

}  // namespace

const nk_table *nk_current(void) { return choices().current; }

int nk_abi(void) { return NK_ABI; }

int nk_isa_count(void) { return choices().count; }

const char *nk_isa_name(int index) {
    if (index < 0 || index >= choices().count) return nullptr;
    return choice.tables[index]->name;
}

int nk_use_isa(int index) {
    if (index < 0 || index >= choices().count) return NK_BAD_ISA;
    choice.current = choice.tables[index];
    return NK_OK;
}

int nk_set_threads(int threads) { return nk_pool_set(threads); }
int nk_threads(void) { return nk_pool_size(); }

void nk_idle(void) {
    nk_pool_idle();
    nk_ops_forget();
}
