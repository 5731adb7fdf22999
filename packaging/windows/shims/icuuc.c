// icuuc.dll for Wine's test prefix: the converters of ICU that Qt6Core imports, none of which is
// there. Qt then converts with Windows' own functions. Never shipped.
#define EXPORT __declspec(dllexport)

enum { FILE_ACCESS_ERROR = 4 };

static const char *absent(int *error) {
    if (error) *error = FILE_ACCESS_ERROR;
    return 0;
}

EXPORT const void *ucnv_open(const char *name, int *error) { return name, absent(error); }
EXPORT const char *ucnv_getName(const void *converter, int *error) {
    return converter, absent(error);
}
EXPORT const char *ucnv_getStandardName(const char *name, const char *standard, int *error) {
    return name, standard, absent(error);
}
EXPORT const char *ucnv_getAvailableName(int index) { return index, absent(0); }
EXPORT int ucnv_countAvailable(void) { return 0; }

// Without a converter Qt calls none of these.
#define UNUSED(name)                                                                               \
    EXPORT int name(void) { return 0; }
UNUSED(ucnv_close)
UNUSED(ucnv_reset)
UNUSED(ucnv_getMaxCharSize)
UNUSED(ucnv_getToUCallBack)
UNUSED(ucnv_getFromUCallBack)
UNUSED(ucnv_setToUCallBack)
UNUSED(ucnv_setFromUCallBack)
UNUSED(ucnv_cbToUWriteUChars)
UNUSED(ucnv_cbFromUWriteUChars)
UNUSED(ucnv_toUnicode)
UNUSED(ucnv_fromUnicode)
UNUSED(ucnv_toUCountPending)
UNUSED(ucnv_fromUCountPending)
UNUSED(UCNV_FROM_U_CALLBACK_SUBSTITUTE)
UNUSED(UCNV_TO_U_CALLBACK_SUBSTITUTE)
