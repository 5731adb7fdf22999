// Thread pool: persistent workers run a job together with the caller; late workers are dropped.
#pragma once
#include <stdint.h>

enum { NK_MAX_THREADS = 256 };

// Called once on every thread; thread 0 is the caller, `threads` is the number of participants.
typedef void (*nk_job)(void *context, int thread, int threads);

// Runs the job on all active threads and returns when all have finished. Must not be nested.
void nk_pool_run(nk_job job, void *context);
// Runs the job on the calling thread alone, for work too small to be parallel.
void nk_pool_run_serial(nk_job job, void *context);
// Barrier inside a job. Returns the number of threads that continue, at least 1; a thread whose
// number is not below it must return from the job at once. When late threads exceed the lateness
// budget, fewer threads continue, in this job and for a while after it.
int nk_pool_barrier(int thread);
// Static partition: the contiguous range `first` .. `end` of `count` items for one thread, in
// multiples of `step`.
static inline void nk_split_range(int64_t count, int64_t step, int thread, int threads,
                                  int64_t *first, int64_t *end) {
    const int64_t steps = (count + step - 1) / step;
    *first = steps * thread / threads * step;
    *end = steps * (thread + 1) / threads * step;
    if (*end > count) *end = count;
    if (*first > count) *first = count;
}
// Sets the size, 1 .. NK_MAX_THREADS, else returns NK_NO_THREADS. Surplus workers are joined here;
// missing ones start with the next job, which reduces the size if a thread cannot be created.
int nk_pool_resize(int threads);
int nk_pool_size(void);   // as set by nk_pool_resize
void nk_pool_idle(void);  // waiting workers stop spinning and sleep until the next job
