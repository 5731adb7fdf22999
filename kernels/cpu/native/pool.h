// The standing threads that share one job: spin, then sleep, and never wait long for a busy core.
#pragma once
#include <stdint.h>

// Called once on every thread, 0 being the caller's; `threads` is how many take part.
typedef void (*nk_job)(void *context, int thread, int threads);

// Runs the job on all active threads and returns when all have left it.
void nk_pool_run(nk_job job, void *context);
// Inside a job: waits for the other active threads. Returns how many go on, at least 1; a thread
// whose number is not below that returns from the job at once. When a thread was late by more than
// a time slice, the caller goes on alone, for the rest of this job and for a while after it.
int nk_pool_barrier(int thread);
// Rows, tokens or items `first` .. `end` of `count` for one thread: contiguous, multiples of `step`.
static inline void nk_share(int64_t count, int64_t step, int thread, int threads, int64_t *first,
                            int64_t *end) {
    const int64_t steps = (count + step - 1) / step;
    *first = steps * thread / threads * step;
    *end = steps * (thread + 1) / threads * step;
    if (*end > count) *end = count;
    if (*first > count) *first = count;
}
int nk_pool_set(int threads);  // status
int nk_pool_size(void);
int nk_pool_active(void);
void nk_pool_idle(void);
