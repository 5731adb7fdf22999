// Allocation of huge pages, and measurement of the memory read bandwidth.
//
// With pages of 4 KiB a core that streams weights spends a third of its time on TLB misses; with
// huge pages of 2 MiB these cost almost nothing.
#include "isa/current.h"
#include "run/pool.h"
#include "run/thread.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

namespace {

constexpr int64_t kMaxBytes = (int64_t)1 << 46;
constexpr int64_t kHugePage = 2 << 20;

#if !defined(_WIN32)
// Size of a mapping of `bytes`: rounded up to pages, not to huge pages.
int64_t mapped_bytes(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}
#endif

struct BandwidthTest {
    const uint8_t *memory;
    int64_t bytes;
    const nk_table *table;
    uint64_t began_at, nanoseconds;
    uint64_t seen;  // prevents the compiler from removing the reads
};

void fill_memory(void *context, int thread, int threads) {
    const BandwidthTest &r = *(BandwidthTest *)context;
    int64_t first, end;
    nk_split_range(r.bytes, kHugePage, thread, threads, &first, &end);
    for (int64_t i = first; i < end; ++i) ((uint8_t *)r.memory)[i] = (uint8_t)i;
}

void read_all(void *context, int thread, int threads) {
    BandwidthTest &r = *(BandwidthTest *)context;
    threads = nk_pool_barrier(thread);  // all threads have started
    if (thread >= threads) return;
    if (thread == 0) r.began_at = nk_now();
    int64_t first, end;
    nk_split_range(r.bytes, kHugePage, thread, threads, &first, &end);
    const uint64_t seen = r.table->read(r.memory + first, end - first);
    __atomic_fetch_or(&r.seen, seen, __ATOMIC_RELAXED);
    nk_pool_barrier(thread);
    if (thread == 0) r.nanoseconds = nk_now() - r.began_at;
}

}  // namespace

void *nk_huge_alloc(int64_t bytes) {
    if (bytes <= 0 || bytes > kMaxBytes) return nullptr;
#if defined(_WIN32)
    return VirtualAlloc(nullptr, (SIZE_T)bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#else
    const int64_t size = mapped_bytes(bytes), slack = size >= kHugePage ? kHugePage : 0;
    void *whole = mmap(nullptr, (size_t)(size + slack), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return nullptr;
    if (!slack) return whole;
    // Unmap what precedes the first huge-page boundary, and the rest of the slack after the block.
    const int64_t before = (kHugePage - (int64_t)((uintptr_t)whole % kHugePage)) % kHugePage;
    uint8_t *memory = (uint8_t *)whole + before;
    if (before) munmap(whole, (size_t)before);
    if (slack - before) munmap(memory + size, (size_t)(slack - before));
#if defined(MADV_HUGEPAGE)
    madvise(memory, (size_t)size, MADV_HUGEPAGE);  // a hint: failure only makes reads slower
#endif
    return memory;
#endif
}

void nk_huge_free(void *memory, int64_t bytes) {
    if (!memory || bytes <= 0) return;
#if defined(_WIN32)
    VirtualFree(memory, 0, MEM_RELEASE);
#else
    munmap(memory, (size_t)mapped_bytes(bytes));
#endif
}

double nk_read_bandwidth(int64_t bytes, int repetitions) {
    if (repetitions < 1) return 0;
    BandwidthTest r = {(const uint8_t *)nk_huge_alloc(bytes), bytes, nk_current(), 0, 0, 0};
    if (!r.memory) return 0;
    nk_pool_run(fill_memory, &r);
    uint64_t best = ~(uint64_t)0;
    for (int i = 0; i < repetitions; ++i) {
        nk_pool_run(read_all, &r);
        if (r.nanoseconds < best) best = r.nanoseconds;
    }
    nk_huge_free((void *)r.memory, bytes);
    return (double)bytes /
           ((double)(best ? best : 1) * 1e-9);  // below the clock's resolution: 1 ns
}
