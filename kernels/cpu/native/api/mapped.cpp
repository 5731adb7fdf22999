// Files mapped into memory that end, or whose disk fails, while they are read.
//
// The system sends SIGBUS to the thread that reads such a page. Where that page is of a guarded
// mapping, the handler puts zeros in place of the rest of the mapping and the read goes on; whoever
// reads the file asks afterwards whether that has happened. All other faults are those of the
// handler before, which is restored: the access then faults again. The handler calls only mmap and
// sigaction, both plain system calls.
#include "api/nk.h"

#if defined(_WIN32)  // which refuses to truncate a mapped file

int nk_guard(const void *, int64_t) { return -1; }
int nk_was_cut(int) { return 0; }
void nk_unguard(int) {}

#else

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

struct Range {
    uintptr_t start, end;  // whole pages; end 0: not in use
    int is_taken, was_cut;
};

constexpr int kMost = 4096;
Range ranges[kMost];
struct sigaction before;  // what handled the signal before
int is_installing;        // a lock

uintptr_t page_bytes() {
    static const uintptr_t bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

void on_fault(int, siginfo_t *info, void *) {
    const int error = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (Range &one : ranges) {
        const uintptr_t end = __atomic_load_n(&one.end, __ATOMIC_ACQUIRE);
        if (at < one.start || at >= end) continue;
        const uintptr_t from = at / page_bytes() * page_bytes();
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap((void *)from, end - from, PROT_READ, flags, -1, 0) == MAP_FAILED) break;
        __atomic_store_n(&one.was_cut, 1, __ATOMIC_RELEASE);
        errno = error;
        return;
    }
    sigaction(SIGBUS, &before, nullptr);
    errno = error;
}

// Installs the handler unless it is there: another may have been installed since.
bool install() {
    while (__atomic_exchange_n(&is_installing, 1, __ATOMIC_ACQUIRE)) {}
    struct sigaction now = {};
    bool is_there = sigaction(SIGBUS, nullptr, &now) == 0;
    if (is_there && !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)) {
        before = now;
        struct sigaction ours = {};
        ours.sa_sigaction = on_fault;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        is_there = sigaction(SIGBUS, &ours, nullptr) == 0;
    }
    __atomic_store_n(&is_installing, 0, __ATOMIC_RELEASE);
    return is_there;
}

}  // namespace

int nk_guard(const void *start, int64_t bytes) {
    const uintptr_t page = page_bytes();
    if (bytes <= 0 || !install()) return -1;
    for (int i = 0; i < kMost; i++) {
        if (__atomic_exchange_n(&ranges[i].is_taken, 1, __ATOMIC_ACQ_REL)) continue;
        ranges[i].start = (uintptr_t)start / page * page;
        ranges[i].was_cut = 0;
        const uintptr_t end = ((uintptr_t)start + (uintptr_t)bytes + page - 1) / page * page;
        __atomic_store_n(&ranges[i].end, end, __ATOMIC_RELEASE);
        return i;
    }
    return -1;
}

int nk_was_cut(int number) {
    return number >= 0 && __atomic_load_n(&ranges[number].was_cut, __ATOMIC_ACQUIRE);
}

void nk_unguard(int number) {
    if (number < 0) return;
    __atomic_store_n(&ranges[number].end, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&ranges[number].is_taken, 0, __ATOMIC_RELEASE);
}

#endif
