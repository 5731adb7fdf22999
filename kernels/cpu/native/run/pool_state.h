// State of the thread pool: workers, barrier records, the current job, tuning constants.
//
// Included by pool.cpp alone, so that everything stays in one translation unit. Times are in
// nanoseconds.
#pragma once
#include <stdint.h>

#include "run/pool.h"
#include "run/thread.h"

namespace {

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond;
// Waiting and waking.
constexpr uint64_t kSleepAfter = kMillisecond;        // an idle worker spins this long, then sleeps
constexpr uint64_t kYieldAfter = 200 * kMicrosecond;  // a spinning thread then calls yield
constexpr int kSpins = 64;                            // between clock reads
constexpr uint64_t kWakeLimit = 5 * kMillisecond;     // a worker that wakes later is not in the job
constexpr uint64_t kPromptWake = 400 * kMicrosecond;  // typical is 50, from deep sleep 200
// Lateness.
constexpr uint64_t kTolerance = 100 * kMicrosecond;  // shorter waits do not count
constexpr uint64_t kLongPhase = 500 *
                                kMicrosecond;  // in shorter phases preemptions are not queried
constexpr int64_t kLatenessBudget = 10 * kMillisecond;  // two or three scheduler time slices
constexpr uint64_t kRecovery = 4;  // time without waiting reduces lateness by a fourth
// Retrying dropped workers.
constexpr uint64_t kFirstRetry = 100 * kMillisecond, kLongestRetry = 1000 * kMillisecond;
constexpr uint64_t kProbe = 20 * kMillisecond;  // several scheduler time slices of any system
constexpr uint64_t kTrial = 150 *
                            kMillisecond;  // a trial succeeds after this time without shrinking

constexpr int kLine = 128;  // bytes of two cache lines, which are prefetched in pairs

// Job: Idle → Called (thread 0) → Ready (worker) → Running (thread 0) → Idle (worker).
// Probe: Idle → Probing (thread 0) → Idle (worker); a call interrupts it.
enum State : uint32_t { kIdle, kAsleep, kCalled, kReady, kRunning, kProbing, kExit };

struct alignas(kLine) Worker {
    uint32_t state;
    int number;             // thread number in the current job
    bool affinity_limited;  // excluded from the CPU of thread 0 when it was woken
    uint32_t preempted;     // it lost its core to another program since the last job
    uint32_t core_busy;     // the last probe found another program on its core
    nk_affinity all;
    nk_waiter waiter;
    nk_thread handle;
};

// Per-thread state in a job: fields read by others at barriers, then private fields.
struct alignas(kLine) Participant {
    // Indexed by the phase's parity: a thread may be one barrier ahead of another that still reads.
    uint64_t arrived[2], arrived_at[2];
    uint32_t preempted[2];  // lost the core to another program during the phase
    alignas(kLine) uint64_t phase;
    uint64_t began_at, preemptions;
    int64_t lateness;
    int threads;  // threads still in the job
};

struct Pool {
    // The current job; written by thread 0 before the workers start.
    alignas(kLine) nk_job job = nullptr;
    void *context = nullptr;
    int threads = 1;
    int fallback = 1;    // threads that continue when the budget is exceeded
    uint64_t phase = 0;  // barriers before this job
    uint64_t started_at = 0;
    int64_t lateness = 0;  // negative: credit from phases without waiting

    // Flags read by waiting threads.
    alignas(kLine) uint32_t sleep_now = 0;  // idle workers sleep without spinning
    uint32_t oversubscribed = 0;            // more threads than CPUs: yield at once
    uint32_t running = 0, closing = 0;

    // Private to thread 0.
    alignas(kLine) int size = 1;  // as configured, including the caller
    int created = 0;              // existing workers
    int limit = 1;                // maximum threads of the next job
    int last_good = 1;            // last thread count within the budget
    int drop_count = 1;           // workers to drop next time; doubles
    int late_worker = 0;          // the worker that was late last: woken last, dropped first
    bool probing = false;         // dropped workers are probing before a trial
    bool in_trial = false;        // running with more threads than `last_good`
    uint64_t trial_time = 0;      // duration of the trial so far
    uint64_t retry_pause = 0, retry_at = 0;
};

Pool pool;
Worker workers[NK_MAX_THREADS - 1];
Participant participants[NK_MAX_THREADS];

template <class T> T load_acquire(const T &value) {
    return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}
template <class T> void store_release(T &value, T to) {
    __atomic_store_n(&value, to, __ATOMIC_RELEASE);
}
template <class T> T load_relaxed(const T &value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <class T> void store_relaxed(T &value, T to) {
    __atomic_store_n(&value, to, __ATOMIC_RELAXED);
}
bool compare_exchange(uint32_t &state, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&state, &from, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}
uint32_t exchange(uint32_t &state, uint32_t to) {
    return __atomic_exchange_n(&state, to, __ATOMIC_ACQ_REL);
}

// Spin-wait that calls yield after kYieldAfter.
class Wait {
    int spins_ = 0;
    uint64_t since_ = 0, now_ = 0;

  public:
    void spin() {
        nk_pause();
        if (++spins_ < kSpins) return;
        spins_ = 0;
        now_ = nk_now();
        if (since_ == 0) since_ = now_;
        if (load_relaxed(pool.oversubscribed) || now_ - since_ > kYieldAfter) nk_yield();
    }
    uint64_t waited() const { return now_ - since_; }  // without the first kSpins spins
};

void set_state(Worker &worker, State state) {
    if (exchange(worker.state, state) == kAsleep) nk_wake(&worker.waiter, &worker.state);
}

// Moves a waiting worker to `state`, waking it if it sleeps.
void wake_with_state(Worker &worker, State state) {
    if (!pool.oversubscribed && load_acquire(worker.state) == kAsleep)
        worker.affinity_limited = nk_avoid_current_cpu(worker.handle, &worker.all);
    set_state(worker, state);
}

}  // namespace
