// ucrtbase.dll for Wine's test prefix: the complex functions that Wine's own DLL lacks.
// numpy imports them. Every other export is forwarded to a copy of Wine's DLL by the .def file
// that packaging/windows/shims.py writes. Never shipped.
#include <complex.h>

// The layout of _Dcomplex and _Fcomplex, which Microsoft's ABI passes as structures.
typedef struct {
    double re, im;
} Double;
typedef struct {
    float re, im;
} Float;

// The compiler's own library has the long double functions; the others it imports from this DLL.
typedef long double _Complex Wide;
static Wide from_double(Double z) { return __builtin_complex((long double)z.re, (long double)z.im); }
static Wide from_float(Float z) { return __builtin_complex((long double)z.re, (long double)z.im); }
static Double to_double(Wide z) { return (Double){(double)__real__ z, (double)__imag__ z}; }
static Float to_float(Wide z) { return (Float){(float)__real__ z, (float)__imag__ z}; }

// Microsoft's long double is a double.
#define EACH(name)                                                                                 \
    Double shim_##name(Double z) { return to_double(name##l(from_double(z))); }                    \
    Double shim_##name##l(Double z) { return to_double(name##l(from_double(z))); }                 \
    Float shim_##name##f(Float z) { return to_float(name##l(from_float(z))); }

#define REAL(name)                                                                                 \
    double shim_##name(Double z) { return (double)name##l(from_double(z)); }                       \
    double shim_##name##l(Double z) { return (double)name##l(from_double(z)); }                    \
    float shim_##name##f(Float z) { return (float)name##l(from_float(z)); }

EACH(cacos)
EACH(cacosh)
EACH(casin)
EACH(casinh)
EACH(catan)
EACH(catanh)
EACH(ccos)
EACH(ccosh)
EACH(cexp)
EACH(clog)
EACH(conj)
EACH(cproj)
EACH(csin)
EACH(csinh)
EACH(csqrt)
EACH(ctan)
EACH(ctanh)
REAL(cabs)
REAL(carg)
REAL(cimag)
REAL(creal)

Double shim_cpow(Double x, Double y) { return to_double(cpowl(from_double(x), from_double(y))); }
Double shim_cpowl(Double x, Double y) { return to_double(cpowl(from_double(x), from_double(y))); }
Float shim_cpowf(Float x, Float y) { return to_float(cpowl(from_float(x), from_float(y))); }
