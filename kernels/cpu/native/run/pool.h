// The thread pool: standing workers that share one job with the caller, and shrink on busy cores.
#pragma once
#include <stdint.h>

enum { NK_MAX_THREADS = 256 };

// Called once on every thread, 0 being the caller's; `threads` is how many take part.
typedef void (*nk_job)(void *context, int thread, int threads);

// Runs the job on all active threads and returns when all have left it. Not from inside a job.
void nk_pool_run(nk_job job, void *context);
// The same on the caller alone, for work too small to share: nobody is waited for.
void nk_pool_run_serial(nk_job job, void *context);
// Inside a job: waits for the other active threads. Returns how many threads continue, at
// least 1; a thread whose number is not below that returns from the job at once. When the lateness
// of others exceeds its budget, fewer continue: in this job, and for a while after it.
int nk_pool_barrier(int thread);
// Rows, tokens or items `first` .. `end` of `count` for one thread: contiguous, multiples of
// `step`.
static inline void nk_split_range(int64_t count, int64_t step, int thread, int threads,
                                  int64_t *first, int64_t *end) {
    const int64_t steps = (count + step - 1) / step;
    *first = steps * thread / threads * step;
    *end = steps * (thread + 1) / threads * step;
    if (*end > count) *end = count;
    if (*first > count) *first = count;
}
// 1 .. NK_MAX_THREADS, else NK_NO_THREADS. Threads that become too many end here; threads that
// are lacking start with the next job, and if the system refuses some, the number becomes less.
int nk_pool_resize(int threads);
int nk_pool_size(void);   // as set
void nk_pool_idle(void);  // the threads sleep until the next job
