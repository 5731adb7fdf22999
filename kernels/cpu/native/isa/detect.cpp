// CPU feature detection: which compiled instruction sets the processor and system support.
//
// Each check covers every flag with which kernels/cpu/build.py compiles the set. On x86 a CPUID bit
// is not enough: the system must also save the registers (XCR0). macOS enables the 512-bit state on
// first use only, so Intel Macs use AVX2, which is safe.
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

// CPUID registers; all zero for an unsupported leaf.
Registers cpuid(unsigned leaf, unsigned part) {
    Registers r;
    __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);
    return r;
}

bool has_bits(unsigned word, unsigned bits) { return (word & bits) == bits; }

// XCR0: register state saved by the system; bits 1 and 2: 256-bit vectors, 5 to 7: 512-bit ones and
// masks.
unsigned saved_registers() {
    if (!has_bits(cpuid(1, 0).c, bit_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool supports_avx2() {
    return has_bits(saved_registers(), 0x06) &&
           has_bits(cpuid(1, 0).c, bit_AVX | bit_FMA | bit_F16C) &&
           has_bits(cpuid(7, 0).b, bit_AVX2);
}

bool supports_avxvnni() { return supports_avx2() && has_bits(cpuid(7, 1).a, 1u << 4); }

bool supports_avx512() {
    const Registers r = cpuid(7, 0);
    const unsigned wanted = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return supports_avx2() && has_bits(saved_registers(), 0xe6) && has_bits(r.b, wanted) &&
           has_bits(r.c, bit_AVX512VNNI);
}

bool is_amd() {  // "AuthenticAMD"
    const Registers r = cpuid(0, 0);
    return r.b == 0x68747541 && r.d == 0x69746e65 && r.c == 0x444d4163;
}

// Families 19h (Zen 4) and 1Ah with AVX-512. Zen 5 multiplies whole 512-bit vectors, but looks up
// as much faster: prefill of one-bit weights is 1.4 times as fast by table. Later ones were not
// measured.
bool prefers_lookups() {
    const unsigned a = cpuid(1, 0).a, family = (a >> 8 & 15) + (a >> 20 & 255);
    return is_amd() && (family == 0x19 || family == 0x1a);
}

#elif defined(__aarch64__) || defined(_M_ARM64)

#if defined(__APPLE__)

bool sysctl_flag(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool supports_neon() {
    return sysctl_flag("hw.optional.arm.FEAT_DotProd") && sysctl_flag("hw.optional.arm.FEAT_FP16");
}
bool supports_i8mm() { return supports_neon() && sysctl_flag("hw.optional.arm.FEAT_I8MM"); }

#elif defined(_WIN32)

// PF_ARM_* constants that older winnt.h lack: dot product, and 8-bit matrices. Every processor with
// the first has float16 arithmetic too, which Windows cannot query.
bool supports_neon() { return IsProcessorFeaturePresent(43); }
bool supports_i8mm() { return supports_neon() && IsProcessorFeaturePresent(66); }

#elif defined(__linux__)

// Bits of asm/hwcap.h: FPHP, ASIMDHP and ASIMDDP; of the second word, I8MM.
bool supports_neon() {
    const unsigned long wanted = 1ul << 9 | 1ul << 10 | 1ul << 20;
    return (getauxval(AT_HWCAP) & wanted) == wanted;
}
bool supports_i8mm() { return supports_neon() && getauxval(AT_HWCAP2) & 1ul << 13; }

#else

bool supports_neon() { return false; }
bool supports_i8mm() { return false; }

#endif
#endif

}  // namespace

bool nk_hardware_prefetch;

int nk_detect(const nk_table *tables[NK_MAX_TABLES]) {
    int count = 0;
#if defined(__x86_64__) || defined(_M_X64)
    nk_hardware_prefetch = is_amd();
    if (supports_avx512()) {  // both tables need the same features, so both can be tested
        const bool lookups = prefers_lookups();
        tables[count++] = lookups ? &nk_table_zen4 : &nk_table_avx512;
        tables[count++] = lookups ? &nk_table_avx512 : &nk_table_zen4;
    }
    if (supports_avxvnni()) tables[count++] = &nk_table_avxvnni;
    if (supports_avx2()) tables[count++] = &nk_table_avx2;
#elif defined(__aarch64__) || defined(_M_ARM64)
    if (supports_i8mm()) tables[count++] = &nk_table_i8mm;
    if (supports_neon()) tables[count++] = &nk_table_neon;
#endif
    tables[count++] = &nk_table_scalar;
    return count;
}
