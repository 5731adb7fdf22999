// bcryptprimitives.dll for Wine's test prefix: the random bytes of Rust's standard library, which
// Wine 8 lacks. Never shipped.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG size);  // RtlGenRandom, in advapi32

__declspec(dllexport) BOOL ProcessPrng(PBYTE buffer, SIZE_T size) {
    return SystemFunction036(buffer, (ULONG)size);
}
