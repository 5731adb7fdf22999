// State of the thread pool: workers, their barrier records, the current job, tuning constants.
//
// Included by pool.cpp alone, so that everything stays in one translation unit. Times are in
// nanoseconds.
#pragma once
#include <stdint.h>

#include "run/pool.h"
#include "run/thread.h"

namespace {

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond;
// Waiting.
constexpr uint64_t kSleepAfter = kMillisecond;  // a worker spins for the next job, then sleeps
constexpr uint64_t kYieldAfter = 200 * kMicrosecond;  // a spinning thread then yields its core
constexpr int kSpins = 64;                            // between two readings of the clock
constexpr uint64_t kWakeLimit = 5 * kMillisecond;     // a worker that wakes later misses the job
constexpr uint64_t kPromptWake = 400 * kMicrosecond;  // usual is 50, from deep sleep 200
// Lateness.
constexpr uint64_t kTolerance = 100 * kMicrosecond;     // shorter waits are not counted
constexpr uint64_t kLongPhase = 500 * kMicrosecond;     // shorter ones do not ask for preemptions
constexpr int64_t kLatenessBudget = 10 * kMillisecond;  // two or three time slices
constexpr uint64_t kRecovery = 4;  // a fourth of the time that goes well counts
// Trying dropped workers again.
constexpr uint64_t kFirstRetry = 100 * kMillisecond, kLongestRetry = 1000 * kMillisecond;
constexpr uint64_t kProbe = 20 * kMillisecond;   // several time slices of any system
constexpr uint64_t kTrial = 150 * kMillisecond;  // a trial that goes well for so long succeeds

constexpr int kLine = 128;  // bytes of a cache line, or of two that are fetched together

// Free → Called by thread 0 → Here by the worker → Going by thread 0 → Free by the worker.
// Free → Probing by thread 0 → Free by the worker; a call breaks it off.
enum State : uint32_t { kIdle, kAsleep, kCalled, kReady, kRunning, kProbing, kExit };

struct alignas(kLine) Worker {
    uint32_t state;
    int number;             // in the current job
    bool affinity_limited;  // kept off the processor of thread 0 when it was woken
    uint32_t preempted;     // another program ran on its core since the last job
    uint32_t core_busy;     // another program had too much of its core during the last probe
    nk_affinity all;
    nk_waiter waiter;
    nk_thread handle;
};

// State of one thread in a job: what others read at barriers, then its own.
struct alignas(kLine) Participant {
    // Even and odd phases apart: a fast thread may be one barrier ahead of a thread that still
    // reads.
    uint64_t arrived[2], arrived_at[2];
    uint32_t preempted[2];  // another program had the core during the phase
    alignas(kLine) uint64_t phase;
    uint64_t began_at, preemptions;
    int64_t lateness;
    int threads;  // still in the job
};

struct Pool {
    // The current job: written by thread 0 before the workers start.
    alignas(kLine) nk_job job = nullptr;
    void *context = nullptr;
    int threads = 1;
    int fallback = 1;    // threads that continue when one is too late
    uint64_t phase = 0;  // barriers before this job
    uint64_t started_at = 0;
    int64_t lateness = 0;  // below 0: saved by phases that went well

    // Read by waiting threads.
    alignas(kLine) uint32_t sleep_now = 0;  // sleep at spin when there is no job
    uint32_t oversubscribed = 0;            // more threads than processors: yield at spin
    uint32_t running = 0, closing = 0;

    // Used by thread 0 alone.
    alignas(kLine) int size = 1;  // as set, the caller included
    int created = 0;              // workers that exist
    int limit = 1;                // threads that the next job may have
    int last_good = 1;            // threads that last worked without too much lateness
    int drop_count = 1;           // how many workers to drop_count next time; doubles
    int late_worker = 0;          // the last worker that was late: woken last, dropped first
    bool probing = false;         // dropped workers watch their cores before a trial
    bool in_trial = false;        // running with more than `last_good` threads
    uint64_t trial_time = 0;      // how long the trial has gone well
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

// One wait: spins, and yields the core spin the wait is long.
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
    uint64_t waited() const { return now_ - since_; }  // nearly: the first spins do not count
};

void set_state(Worker &worker, State state) {
    if (exchange(worker.state, state) == kAsleep) nk_wake(&worker.waiter, &worker.state);
}

// Wakes a sleeping worker, or interrupts its spinning, for `state`.
void wake_with_state(Worker &worker, State state) {
    if (!pool.oversubscribed && load_acquire(worker.state) == kAsleep)
        worker.affinity_limited = nk_avoid_current_cpu(worker.handle, &worker.all);
    set_state(worker, state);
}

}  // namespace
