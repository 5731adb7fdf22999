// Selects the kernel table: the fastest supported instruction set, or the one set by nk_use_isa.
#include "isa/current.h"

#include "isa/detect.h"

namespace {

struct Choice {
    const nk_table *tables[NK_MAX_TABLES];
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
