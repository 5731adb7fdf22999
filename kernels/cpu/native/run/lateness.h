// Pool-size policy: lateness budget, dropping of late workers, probes and trials to regain them.
//
// Thread 0 calls all of it, except too_late, which every thread computes from the same arrival
// times, and Probe, which a dropped worker runs.
#pragma once
#include "run/pool_state.h"

namespace {

void reset_lateness() {
    pool.limit = pool.last_good = pool.size;
    pool.drop_count = 1;
    pool.late_worker = 0;
    pool.probing = pool.in_trial = false;
    pool.retry_pause = pool.retry_at = 0;
    pool.lateness = 0;
}

int fallback(int threads) {
    int fewer = pool.in_trial ? pool.last_good : threads - pool.drop_count;
    if (fewer >= threads) fewer = threads - 1;
    return fewer < 1 ? 1 : fewer;
}

// The trial failed: the next one comes after a longer pause.
void postpone_retry(uint64_t now) {
    pool.retry_pause = pool.retry_pause * 2 < kLongestRetry ? pool.retry_pause * 2 : kLongestRetry;
    pool.retry_at = now + pool.retry_pause;
}

// A core is busy: use `threads` from now on, and try all again after a pause.
void shrink(uint64_t now, int threads) {
    if (pool.in_trial) {
        postpone_retry(now);
    } else {
        pool.drop_count *= 2;
        if (pool.retry_pause == 0) pool.retry_pause = kFirstRetry;
        pool.retry_at = now + pool.retry_pause;
    }
    if (threads < pool.last_good) pool.last_good = threads;
    pool.limit = pool.last_good;
    pool.probing = pool.in_trial = false;
}

void start_trial() {
    pool.limit = pool.size;
    pool.in_trial = true;
    pool.trial_time = 0;
    pool.lateness = 0;
}

void start_probes() {
    const int count = pool.size - 1;
    for (int i = 0; i < count; ++i) store_relaxed(workers[i].core_busy, 0u);
    for (int k = pool.limit; k <= count; ++k)
        wake_with_state(workers[(pool.late_worker + k) % count], kProbing);
    pool.probing = true;
}

// Before a job: when the pause is done, starts a probe of the dropped workers; when all have
// probed, starts a trial if their cores are free.
void retry_dropped(uint64_t now) {
    if (pool.limit == pool.size || now < pool.retry_at) return;
    if (!pool.probing) return start_probes();
    bool core_busy = false;
    for (int i = 0; i < pool.size - 1; ++i) {
        if (load_acquire(workers[i].state) == kProbing) return;
        if (load_relaxed(workers[i].core_busy)) core_busy = true;
    }
    pool.probing = false;
    if (core_busy) postpone_retry(now);
    else start_trial();
}

void extend_trial(uint64_t time) {
    if (!pool.in_trial) return;
    pool.trial_time += time;
    if (pool.trial_time >= kTrial) reset_lateness();
}

// How much of the time lost by waiting counts, when another machine had the late thread's core. The
// question is whether fewer threads would have been faster. Each thread takes a share of the work
// off the others, so with few threads one may be late more often.
int64_t weighted_lateness(uint64_t lost, int threads) {
    const uint64_t others = (uint64_t)(threads - 1);
    return (int64_t)(others < kRecovery ? lost * others / kRecovery : lost);
}

// Adds one phase to the lateness: thread `late` arrived last, at `latest`; the others had worked
// for `work` on average. True: the budget is spent.
//
// Lost is what the phase took beyond twice the others' work. If another program had the late
// thread's core, all of it counts, because with fewer threads that program gets a core to itself;
// otherwise weighted_lateness decides. If thread 0 was late nothing counts: alone it would be as
// late.
bool too_late(Participant &me, int late, bool preempted, uint64_t latest, uint64_t work) {
    const uint64_t time = latest > me.began_at ? latest - me.began_at : 0;
    if (time > 2 * work + kTolerance) {
        const uint64_t lost = time - 2 * work;
        if (preempted) me.lateness += (int64_t)lost;
        else if (late > 0) me.lateness += weighted_lateness(lost, me.threads);
    } else {
        me.lateness -= (int64_t)(time / kRecovery);
        if (me.lateness < -kLatenessBudget) me.lateness = -kLatenessBudget;  // saved ahead
    }
    me.began_at = latest;
    if (me.lateness <= kLatenessBudget) return false;
    me.lateness = 0;
    return true;
}

// Measures how much of a core another program takes, by reading the clock all the time. Time that
// another virtual machine takes does not count: the trial after the probe shows whether it matters.
class Probe {
    uint64_t began_at_, seen_at_, preemptions_, lost_ = 0;

  public:
    Probe(uint64_t now, uint64_t preemptions)
        : began_at_(now), seen_at_(now), preemptions_(preemptions) {}
    void sample(uint64_t now, uint64_t preemptions) {
        if (preemptions != preemptions_ && now - seen_at_ > kTolerance) lost_ += now - seen_at_;
        preemptions_ = preemptions;
        seen_at_ = now;
    }
    bool done() const { return seen_at_ - began_at_ >= kProbe; }
    // Whether lateness would grow: only a fourth of the time that goes well is taken off.
    bool core_busy() const { return lost_ > (seen_at_ - began_at_ - lost_) / kRecovery; }
};

}  // namespace
