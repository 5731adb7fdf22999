// Operating-system layer of the thread pool: threads, sleep and wake-up, clock, CPU affinity.
//
// Linux sleeps on a futex, macOS and Windows on a condition variable: WaitOnAddress would save a
// lock on Windows, but requires linking another library.
#pragma once
#include <stdint.h>
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif
#endif

static const int64_t kStackBytes = 4 << 20;  // address space only; defaults start at 128 KiB

static inline void nk_pause(void) {
#if defined(__x86_64__) || defined(_M_X64) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");  // `yield` does nothing on most of these cores
#endif
}

// nk_sleep_while blocks while *word equals `value`; the waker changes the word before nk_wake.
// Spurious wake-ups are allowed: callers check the word again.
struct nk_waiter {
#if defined(_WIN32)
    SRWLOCK lock;
    CONDITION_VARIABLE changed;
#elif !defined(__linux__)
    pthread_mutex_t lock;
    pthread_cond_t changed;
#else
    int unused;
#endif
};

#if defined(_WIN32)

typedef HANDLE nk_thread;

static inline uint64_t nk_now(void) {  // nanoseconds that never run backwards
    LARGE_INTEGER ticks, rate;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&rate);
    const uint64_t t = (uint64_t)ticks.QuadPart, r = (uint64_t)rate.QuadPart;
    return t / r * 1000000000u + t % r * 1000000000u / r;
}
static inline void nk_yield(void) { SwitchToThread(); }
static inline int nk_processors(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}
static inline void nk_waiter_init(struct nk_waiter *waiter) {
    InitializeSRWLock(&waiter->lock);
    InitializeConditionVariable(&waiter->changed);
}
static inline void nk_sleep_while(struct nk_waiter *waiter, uint32_t *word, uint32_t value) {
    AcquireSRWLockExclusive(&waiter->lock);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        SleepConditionVariableSRW(&waiter->changed, &waiter->lock, INFINITE, 0);
    ReleaseSRWLockExclusive(&waiter->lock);
}
static inline void nk_wake(struct nk_waiter *waiter, uint32_t *) {
    AcquireSRWLockExclusive(&waiter->lock);
    ReleaseSRWLockExclusive(&waiter->lock);
    WakeConditionVariable(&waiter->changed);
}
// `entry` is declared with NK_THREAD_ENTRY.
#define NK_THREAD_ENTRY(name, argument) static DWORD WINAPI name(LPVOID argument)
static inline bool nk_thread_start(nk_thread *thread, LPTHREAD_START_ROUTINE entry,
                                   void *argument) {
    *thread = CreateThread(nullptr, (SIZE_T)kStackBytes, entry, argument,
                           STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
    return *thread != nullptr;
}
static inline void nk_thread_join(nk_thread thread) {
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
static inline void nk_thread_name(int) {}
typedef int nk_affinity;
static inline bool nk_avoid_current_cpu(nk_thread, nk_affinity *) { return false; }
static inline void nk_restore_affinity(const nk_affinity *) {}

#else

typedef pthread_t nk_thread;

static inline uint64_t nk_now(void) {  // nanoseconds that never run backwards
#if defined(__APPLE__)
    return clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}
static inline void nk_yield(void) { sched_yield(); }
static inline int nk_processors(void) {
#if defined(__linux__)
    cpu_set_t set;  // CPUs of this process's affinity, which can be fewer than exist
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}
#if defined(__linux__)
typedef cpu_set_t nk_affinity;
// When all CPUs are busy, the scheduler places a woken thread on the waker's CPU, where it stays
// for long. This excludes that CPU from the affinity of `thread`, which calls nk_restore_affinity
// with `full_affinity` once it runs.
static inline bool nk_avoid_current_cpu(nk_thread thread, nk_affinity *full_affinity) {
    const int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof *full_affinity, full_affinity) != 0 ||
        CPU_COUNT(full_affinity) < 2)
        return false;
    nk_affinity others = *full_affinity;
    CPU_CLR(here, &others);
    return pthread_setaffinity_np(thread, sizeof others, &others) == 0;
}
static inline void nk_restore_affinity(const nk_affinity *full_affinity) {
    sched_setaffinity(0, sizeof *full_affinity, full_affinity);
}
static inline void nk_waiter_init(struct nk_waiter *) {}
static inline void nk_sleep_while(struct nk_waiter *, uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
static inline void nk_wake(struct nk_waiter *, uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
#else
typedef int nk_affinity;
static inline bool nk_avoid_current_cpu(nk_thread, nk_affinity *) { return false; }
static inline void nk_restore_affinity(const nk_affinity *) {}
static inline void nk_waiter_init(struct nk_waiter *waiter) {
    pthread_mutex_init(&waiter->lock, nullptr);
    pthread_cond_init(&waiter->changed, nullptr);
}
static inline void nk_sleep_while(struct nk_waiter *waiter, uint32_t *word, uint32_t value) {
    pthread_mutex_lock(&waiter->lock);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        pthread_cond_wait(&waiter->changed, &waiter->lock);
    pthread_mutex_unlock(&waiter->lock);
}
static inline void nk_wake(struct nk_waiter *waiter, uint32_t *) {
    pthread_mutex_lock(&waiter->lock);
    pthread_mutex_unlock(&waiter->lock);
    pthread_cond_signal(&waiter->changed);
}
#endif
#define NK_THREAD_ENTRY(name, argument) static void *name(void *argument)
// Blocks all signals in the thread except those of its own faults: the others belong to the host
// program.
static inline bool nk_thread_start(nk_thread *thread, void *(*entry)(void *), void *argument) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, (size_t)kStackBytes);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const bool started = pthread_create(thread, &attributes, entry, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return started;
}
static inline void nk_thread_join(nk_thread thread) { pthread_join(thread, nullptr); }
static inline void nk_thread_name(int number) {  // names the calling thread, as shown by `top`
#if defined(__APPLE__) || defined(__linux__)
    char name[16];
    snprintf(name, sizeof name, "kernels %u", (unsigned)number % 1000u);
#if defined(__APPLE__)
    pthread_setname_np(name);
#else
    pthread_setname_np(pthread_self(), name);
#endif
#else
    (void)number;
#endif
}

#endif

// Count of the caller's involuntary context switches. Where the system has no such counter, a new
// number each time, as if it were always preempted.
static inline uint64_t nk_preemptions(void) {
#if defined(__linux__)
    struct rusage use;
    if (getrusage(RUSAGE_THREAD, &use) == 0) return (uint64_t)use.ru_nivcsw;
#endif
    return nk_now();
}
