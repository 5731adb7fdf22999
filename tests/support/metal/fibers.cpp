// Runs a Metal kernel on the processor: every thread of a thread group is a fiber of one system
// thread, which another one follows at a barrier or at a function of a SIMD group.
//
// Threads and groups run in ascending order at one launch and in descending order at the next, so
// that a result that needs an order, or a barrier that lacks, is seen. A thread that waits for
// others that have ended, or wait elsewhere, is an error; in Metal it is undefined.
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

constexpr unsigned MOST = 1024, LANES = 32, VALUE = 16;
constexpr size_t STACK = 256 << 10, GROUP_MEMORY = 32 << 10;

struct Ids {  // as metal_library.py declares it
    unsigned grid[3], local[3], group[3];
    unsigned threads[3], group_size[3], groups[3];
    unsigned index, lane, simdgroup, simdgroups;
};

typedef void Call(void *const *arguments, const Ids *ids);

struct Fiber {
    jmp_buf place;
    Ids ids;
    bool done;
};

// Where threads of a scope meet. Values of two meetings are kept: a thread is never two ahead.
struct Meeting {
    unsigned size, arrived, generation;
    int operation;
    alignas(16) unsigned char values[2][LANES][VALUE];
};

struct Shared {  // an array of the thread groups of a kernel
    Call *kernel;
    void *memory;
    size_t size;
};

Fiber fibers[MOST];
Meeting simdgroups[MOST / LANES], whole;
Shared shared[64];
unsigned shared_count, made, count, left, idle, launches;
bool descending;
Fiber *now;
jmp_buf host;
ucontext_t boot;
Call *call;
void *const *arguments;
const char *problem;
pthread_t runner;

[[noreturn]] void fail(const char *text) {
    problem = text;
    longjmp(host, 1);
}

__attribute__((noinline)) void go(Fiber *to) {
    Fiber *from = now;
    if (from == to) return;
    now = to;
    if (!_setjmp(from->place)) _longjmp(to->place, 1);
}

// Let the next thread run that has not ended.
void yield() {
    unsigned at = unsigned(now - fibers);
    for (unsigned i = 0; i < count; i++) {
        at = descending ? (at ? at - 1 : count - 1) : (at + 1 == count ? 0 : at + 1);
        if (!fibers[at].done) {
            go(&fibers[at]);
            return;
        }
    }
    if (!_setjmp(now->place))  // where the thread goes on with the next group
        longjmp(host, 2);
}

void body(unsigned number) {
    Fiber *self = &fibers[number];
    if (!_setjmp(self->place)) setcontext(&boot);
    for (;;) {
        call(arguments, &self->ids);
        self->done = true;
        left--;
        idle = 0;
        yield();
    }
}

void make(unsigned number) {
    static unsigned char *stacks = static_cast<unsigned char *>(
        mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + number * STACK;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, reinterpret_cast<void (*)()>(body), 1, number);
    swapcontext(&boot, &context);
}

// Of the thread that runs a kernel; a fault of another one ends the process, as without this.
void on_fault(int number) {
    if (!pthread_equal(pthread_self(), runner)) {
        signal(number, SIG_DFL);
        return;
    }
    fail("a thread reads or writes beyond the end of a tensor");
}

void start(Meeting &meeting, unsigned size) {
    meeting.size = size;
    meeting.arrived = 0;
}

__attribute__((noinline)) void run_group() {
    if (!_setjmp(host)) {
        now = &fibers[descending ? count - 1 : 0];
        _longjmp(now->place, 1);
    }
}

}  // namespace

extern "C" unsigned shim_lane() { return now->ids.lane; }
extern "C" unsigned shim_lanes() { return simdgroups[now->ids.simdgroup].size; }

extern "C" const unsigned char *shim_exchange(int scope, int operation, const void *value,
                                              unsigned size) {
    Meeting &meeting = scope ? whole : simdgroups[now->ids.simdgroup];
    unsigned generation = meeting.generation;
    unsigned char (*values)[VALUE] = meeting.values[generation % 2];
    if (meeting.arrived && meeting.operation != operation)
        fail("threads call different functions of their group at the same time");
    meeting.operation = operation;
    if (size) memcpy(values[now->ids.lane], value, size);
    idle = 0;
    if (++meeting.arrived == meeting.size) {
        meeting.arrived = 0;
        meeting.generation++;
        return values[0];
    }
    while (meeting.generation == generation) {
        if (idle++ > 2 * count) fail("a thread waits for others of its group that never come");
        yield();
    }
    return values[0];
}

// Memory of a thread group: its contents are undefined, here NaN, when a group starts.
extern "C" void shim_share(void *memory, size_t size) {
    if (shared_count == sizeof shared / sizeof *shared) fail("too many arrays of thread groups");
    shared[shared_count++] = {call, memory, size};
    memset(memory, 0xFF, size);
    size_t total = 0;
    for (unsigned i = 0; i < shared_count; i++)
        total += shared[i].kernel == call ? shared[i].size : 0;
    if (total > GROUP_MEMORY) fail("more than 32 KB of memory of a thread group");
}

namespace {

const char *run(Call *kernel, void *const *given, const unsigned *threads, const unsigned *group) {
    unsigned groups[3];
    for (int i = 0; i < 3; i++) groups[i] = (threads[i] + group[i] - 1) / group[i];
    uint64_t total = uint64_t(groups[0]) * groups[1] * groups[2];
    call = kernel, arguments = given, problem = "";
    descending = launches++ % 2;
    for (uint64_t n = 0; n < total; n++) {
        uint64_t number = descending ? total - 1 - n : n;
        unsigned at[3] = {unsigned(number % groups[0]), unsigned(number / groups[0] % groups[1]),
                          unsigned(number / groups[0] / groups[1])};
        unsigned size[3];  // smaller at the end of the grid
        for (int i = 0; i < 3; i++) {
            unsigned rest = threads[i] - at[i] * group[i];
            size[i] = rest < group[i] ? rest : group[i];
        }
        count = left = size[0] * size[1] * size[2];
        for (; made < count; made++) make(made);
        for (unsigned i = 0; i < count; i++) {
            Ids &ids = fibers[i].ids;
            ids.local[0] = i % size[0];
            ids.local[1] = i / size[0] % size[1];
            ids.local[2] = i / size[0] / size[1];
            for (int k = 0; k < 3; k++) {
                ids.group[k] = at[k];
                ids.grid[k] = at[k] * group[k] + ids.local[k];
                ids.threads[k] = threads[k];
                ids.group_size[k] = size[k];
                ids.groups[k] = groups[k];
            }
            ids.index = i;
            ids.lane = i % LANES;
            ids.simdgroup = i / LANES;
            ids.simdgroups = (count + LANES - 1) / LANES;
            fibers[i].done = false;
        }
        start(whole, count);
        for (unsigned i = 0; i * LANES < count; i++)
            start(simdgroups[i], count - i * LANES < LANES ? count - i * LANES : LANES);
        for (unsigned i = 0; i < shared_count; i++)
            if (shared[i].kernel == call) memset(shared[i].memory, 0xFF, shared[i].size);
        idle = 0;
        run_group();
        if (*problem) {
            made = 0;  // threads are in the middle of the kernel
            return problem;
        }
    }
    return "";
}

}  // namespace

// Returns "" or what went wrong.
extern "C" const char *shim_run(Call *kernel, void *const *given, const unsigned *threads,
                                const unsigned *group) {
    struct sigaction action = {}, segment, bus;
    action.sa_handler = on_fault;
    action.sa_flags = SA_NODEFER;  // the handler does not return
    runner = pthread_self();
    sigaction(SIGSEGV, &action, &segment);
    sigaction(SIGBUS, &action, &bus);
    const char *wrong = run(kernel, given, threads, group);
    sigaction(SIGSEGV, &segment, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    return wrong;
}
