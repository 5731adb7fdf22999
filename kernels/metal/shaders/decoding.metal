// Weights in the layout of kernels/gpu/layout.py: bit planes of codes, and arrays of their scales,
// one after the other in one buffer. Floats are stored as in a file.
//
// A unit is 32 columns; a lane of it are 4 columns that follow each other.

enum Storage { PACKED, FLOAT32, FLOAT16, BFLOAT16, E4M3, E5M2 };
enum Scales { HALF, HALF_MINIMUM, SINGLE, SIGNED, PAIR, NIBBLES };

// Facts of a weight format; see `Layout`.
template <int STORAGE_, int BITS_, int HIGH_, int HALVES_, int GROUP_, int SCALES_, int FACTOR_,
          int OFFSET_, int BYTES_>
struct Format {
    enum : int {
        STORAGE = STORAGE_,
        BITS = BITS_,      // of the first plane
        HIGH = HIGH_,      // bits of the second plane
        HALVES = HALVES_,  // scales of a unit
        GROUP = GROUP_,    // units with one scale
        SCALES = SCALES_,
        FACTOR = FACTOR_,       // of a code
        OFFSET = OFFSET_,       // subtracted from it
        BYTES = BYTES_,         // 1: codes are signed bytes
        LOW_LANES = 8 / BITS_,  // lanes in a word
        HIGH_LANES = HIGH_ ? 8 / (HIGH_ + !HIGH_) : 8,
        IS_PACKED = STORAGE_ == PACKED || STORAGE_ == E4M3 || STORAGE_ == E5M2,
        HAS_MINIMUM = SCALES_ == HALF_MINIMUM || SCALES_ == PAIR || SCALES_ == NIBBLES,
    };
};

#define FIELDS 8  // numbers of a matrix in the parameters of a kernel

// A stored matrix. Arrays are given by their first byte.
struct Matrix {
    device const uchar *data;
    uint rows, columns, units;  // units of a row, padded
    ulong high, d, m, scales, minimums;
};

inline Matrix matrix_of(device const uchar *data, constant long *p) {
    Matrix w;
    w.data = data;
    w.rows = uint(p[0]);
    w.columns = uint(p[1]);
    w.units = uint(p[2]);
    w.high = ulong(p[3]);
    w.d = ulong(p[4]);
    w.m = ulong(p[5]);
    w.scales = ulong(p[6]);
    w.minimums = ulong(p[7]);
    return w;
}

template <typename F> inline uint low_word(Matrix w, ulong row, uint u, uint lane) {
    device const uint *words = (device const uint *)w.data;
    return words[(row * F::BITS + lane / F::LOW_LANES) * w.units + u];
}

// Of a format without a second plane: 0.
template <typename F> inline uint high_word(Matrix w, ulong row, uint u, uint lane) {
    if (!F::HIGH) return 0;
    device const uint *words = (device const uint *)(w.data + w.high);
    return words[(row * F::HIGH + lane / F::HIGH_LANES) * w.units + u];
}

// An 8-bit float as a float, exactly: its bits are those of a half.
template <typename F> inline float float8(uint code) {
    if (F::STORAGE == E5M2) return float(as_type<half>(ushort(code << 8)));
    float value = float(as_type<half>(ushort((code & 0x80) << 8 | (code & 0x7F) << 7))) * 256.0f;
    return (code & 0x7F) == 0x7F ? NAN : value;
}

// The codes of a lane of a unit, from the words that have it.
template <typename F> inline float4 codes_of(uint low, uint high, uint lane) {
    if (F::STORAGE == E4M3 || F::STORAGE == E5M2)
        return float4(float8<F>(low & 255), float8<F>(low >> 8 & 255), float8<F>(low >> 16 & 255),
                      float8<F>(low >> 24));
    if (F::BYTES) return float4(as_type<char4>(low));
    uint codes = low >> (F::BITS * (lane % F::LOW_LANES)) & ((1u << F::BITS) - 1) * 0x01010101u;
    if (F::HIGH)
        codes |= (high >> (F::HIGH * (lane % F::HIGH_LANES)) & ((1u << F::HIGH) - 1) * 0x01010101u)
                 << F::BITS;
    return float4(as_type<uchar4>(codes));
}

inline float half_at(Matrix w, ulong array, ulong index) {
    return float(((device const half *)(w.data + array))[index]);
}

// The factor and the minimum of a unit, or of one half of it.
template <typename F> inline float2 scale_of(Matrix w, ulong row, uint u, uint second) {
    if (F::SCALES == SINGLE) {
        device const float *d = (device const float *)(w.data + w.d);
        return float2(d[row * (w.units / F::GROUP) + u / F::GROUP], 0.0f);
    }
    if (F::SCALES == HALF || F::SCALES == HALF_MINIMUM) {
        ulong at = row * (w.units / F::GROUP) + u / F::GROUP;
        return float2(half_at(w, w.d, at), F::HAS_MINIMUM ? half_at(w, w.m, at) : 0.0f);
    }
    ulong block = row * ((w.units + 7) / 8) + u / 8;
    ulong at = (row * F::HALVES + second) * w.units + u;
    uint number = w.data[w.scales + at];
    float d = half_at(w, w.d, block);
    if (F::SCALES == SIGNED) return float2(float(as_type<char>(uchar(number))) * d, 0.0f);
    float m = half_at(w, w.m, block);
    if (F::SCALES == NIBBLES) return float2(float(number & 15), float(number >> 4)) * float2(d, m);
    return float2(float(number), float(w.data[w.minimums + at])) * float2(d, m);
}

// 4 values of a lane of a unit, with the bits of the format's decoder.
template <typename F> inline float4 decoded(Matrix w, ulong row, uint u, uint lane) {
    float2 scale = scale_of<F>(w, row, u, F::HALVES == 2 ? lane / 4 : 0);
    float4 q = codes_of<F>(low_word<F>(w, row, u, lane), high_word<F>(w, row, u, lane), lane);
    if (F::FACTOR != 1) q = q * float(F::FACTOR);
    if (F::OFFSET) q = q - float(F::OFFSET);
    q = q * scale.x;
    return F::HAS_MINIMUM ? q - scale.y : q;
}

// A value of a matrix of floats.
template <typename F> inline float float_at(Matrix w, ulong index) {
    if (F::STORAGE == FLOAT32) return ((device const float *)w.data)[index];
    ushort bits = ((device const ushort *)w.data)[index];
    return F::STORAGE == FLOAT16 ? float(as_type<half>(bits)) : as_type<float>(uint(bits) << 16);
}

// 4 values of one, from an index that is a multiple of 4.
template <typename F> inline float4 floats_at(Matrix w, ulong index) {
    if (F::STORAGE == FLOAT32) return ((device const float4 *)w.data)[index / 4];
    ushort4 bits = ((device const ushort4 *)w.data)[index / 4];
    if (F::STORAGE == FLOAT16) return float4(as_type<half4>(bits));
    return as_type<float4>(uint4(bits) << 16);
}
