// Which of the compiled instruction sets this processor and its operating system run.
//
// Each question covers every flag that kernels/cpu/build.py compiles the set with. On x86 the
// processor having a set is not enough: the system must also save its registers (XCR0). macOS turns
// the 512-bit ones on only when they are first used, so Intel Macs get AVX2, which is safe.
#include "isa/detect.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

namespace {

#if defined(__x86_64__) || defined(_M_X64)

struct Registers { unsigned a = 0, b = 0, c = 0, d = 0; };

// All zero where the processor does not know the leaf.
Registers ask(unsigned leaf, unsigned part) {
    Registers r;
    __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);
    return r;
}

bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

// Registers that the system saves: bits 1 and 2 are 256-bit vectors, 5 to 7 masks and 512-bit ones.
unsigned saved() {
    if (!has(ask(1, 0).c, bit_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool runs_avx2() {
    return has(saved(), 0x06) && has(ask(1, 0).c, bit_AVX | bit_FMA | bit_F16C) &&
           has(ask(7, 0).b, bit_AVX2);
}

bool runs_avxvnni() { return runs_avx2() && has(ask(7, 1).a, 1u << 4); }

bool runs_avx512() {
    const Registers r = ask(7, 0);
    const unsigned wanted = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return runs_avx2() && has(saved(), 0xe6) && has(r.b, wanted) && has(r.c, bit_AVX512VNNI);
}

bool made_by_amd() {  // "AuthenticAMD"
    const Registers r = ask(0, 0);
    return r.b == 0x68747541 && r.d == 0x69746e65 && r.c == 0x444d4163;
}

// Family 19h with AVX-512. Its successor multiplies whole vectors, or was not measured.
bool is_zen4() {
    const unsigned a = ask(1, 0).a;
    return made_by_amd() && (a >> 8 & 15) + (a >> 20 & 255) == 0x19;
}

#elif defined(__aarch64__) || defined(_M_ARM64)

#if defined(__APPLE__)

bool says(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool runs_neon() {
    return says("hw.optional.arm.FEAT_DotProd") && says("hw.optional.arm.FEAT_FP16");
}
bool runs_i8mm() { return runs_neon() && says("hw.optional.arm.FEAT_I8MM"); }

#elif defined(_WIN32)

// Numbers of winnt.h, which older headers lack: dot product, and 8-bit matrices. Every processor
// with the first has half-precision arithmetic too, which Windows has no question for.
bool runs_neon() { return IsProcessorFeaturePresent(43); }
bool runs_i8mm() { return runs_neon() && IsProcessorFeaturePresent(66); }

#elif defined(__linux__)

// Bits of asm/hwcap.h: FPHP, ASIMDHP and ASIMDDP; of the second word, I8MM.
bool runs_neon() {
    const unsigned long wanted = 1ul << 9 | 1ul << 10 | 1ul << 20;
    return (getauxval(AT_HWCAP) & wanted) == wanted;
}
bool runs_i8mm() { return runs_neon() && getauxval(AT_HWCAP2) & 1ul << 13; }

#else

bool runs_neon() { return false; }
bool runs_i8mm() { return false; }

#endif
#endif

}  // namespace

bool nk_hardware_prefetch;

int nk_detect(const nk_table *tables[NK_MOST_TABLES]) {
    int count = 0;
#if defined(__x86_64__) || defined(_M_X64)
    nk_hardware_prefetch = made_by_amd();
    if (runs_avx512()) {  // both sets run wherever one does, so that either can be tested there
        const bool looks_up = is_zen4();
        tables[count++] = looks_up ? &nk_table_zen4 : &nk_table_avx512;
        tables[count++] = looks_up ? &nk_table_avx512 : &nk_table_zen4;
    }
    if (runs_avxvnni()) tables[count++] = &nk_table_avxvnni;
    if (runs_avx2()) tables[count++] = &nk_table_avx2;
#elif defined(__aarch64__) || defined(_M_ARM64)
    if (runs_i8mm()) tables[count++] = &nk_table_i8mm;
    if (runs_neon()) tables[count++] = &nk_table_neon;
#endif
    tables[count++] = &nk_table_scalar;
    return count;
}
