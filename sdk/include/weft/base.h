/* weft/base.h: SDK versions, errors, element types, and the macros that every other header uses.
 *
 * Every public struct that may grow begins with `struct_size, flags` and grows only at its end. The side that creates a
 * struct sets struct_size to the size it was compiled with. The other side may know a shorter or a longer version:
 *
 *   reading    A struct shorter than in SDK 1.0 (WEFT_WHOLE) is rejected. Fields of SDK 1.0 are read directly. Later
 *              fields are read after WEFT_HAS or from a copy made by weft_struct_take. A field past the end of the
 *              struct counts as zero, and a slot past the end counts as empty.
 *   requests   (arguments, specs, instructions, placements) The reader must understand every byte. If a byte beyond the
 *              version known to the reader is not zero, the reader rejects the request (weft_struct_known). Tables,
 *              jobs and views only carry information, so their unknown fields are ignored.
 *   answers    (`out` of info and similar calls) The caller provides the struct, sets struct_size and initializes the
 *              fields that the callee may not fill. The callee writes the fields known to both (weft_struct_give).
 *   arrays     An array has a stride: the element size its creator was compiled with. Readers index by the stride.
 *
 * A reader therefore never copies or indexes by its own sizeof. A few small structs have no struct_size and never grow.
 *
 * Function comments carry tags, with one meaning in all headers:
 *   [any-thread]   may be called from any thread at any time        [main]     only from the host's main thread
 *   [worker]       called from several worker threads at once       [hot]      no allocation, lock or I/O inside
 *   [collective]   every rank calls it, in the same order
 *   [required]     a table slot that must be filled                 [optional: ...]  meaning of NULL
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <weft/sizes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One number per released SDK: major * 1000 + minor. A version that does not exist does not compile. */
#define WEFT_SDK_1_0           1000
#define WEFT_SDK(major, minor) WEFT_SDK_##major##_##minor
#define WEFT_SDK_HEADERS       WEFT_SDK(1, 0) /* SDK version of these headers */

/* The oldest host that a plugin supports. Define it before the first include to hide newer declarations. */
#ifndef WEFT_MIN_SDK
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#endif
#if WEFT_MIN_SDK < 1000 || WEFT_MIN_SDK > WEFT_SDK_HEADERS
#error "WEFT_MIN_SDK names an SDK that does not exist or is newer than these headers; write WEFT_SDK(1, 0)"
#endif

#if defined(__GNUC__)
#define WEFT_EXPORT                     __attribute__((visibility("default")))
#define WEFT_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define WEFT_EXPORT
#define WEFT_PRINTF(format_at, args_at)
#endif

#define WEFT_STRING_(x) #x
#define WEFT_STRING(x)  WEFT_STRING_(x) /* expands x, then converts it to a string */

/* True if the struct that p points to was compiled with `field`. */
#define WEFT_HAS(p, field) ((p)->struct_size >= (uint32_t)(offsetof(__typeof__(*(p)), field) + sizeof((p)->field)))

/* Size in bytes of a public struct in SDK 1.0, as in WEFT_SIZE_1_0(weft_error). */
#define WEFT_SIZE_1_0(type) ((uint32_t)WEFT_SIZE_1_0_##type)

/* True if the struct that p points to contains all fields of SDK 1.0. */
#define WEFT_WHOLE(p, type) ((p)->struct_size >= WEFT_SIZE_1_0(type))

/* A larger struct_size means that the struct was not initialized. */
#define WEFT_STRUCT_LIMIT 65536u

/* Returns 1 if all bytes of a request after `known` bytes are zero, otherwise 0. [any-thread] */
static inline int weft_struct_known(const void *from, size_t known) {
    uint32_t given;
    size_t i;
    memcpy(&given, from, sizeof given);
    if (given > WEFT_STRUCT_LIMIT) return 0;
    for (i = known; i < given; i++)
        if (((const char *)from)[i] != 0) return 0;
    return 1;
}

/* Copies a request into a struct of the reader's own size. Fields that the writer does not have become zero.
 * struct_size becomes the number of bytes that were copied. Returns weft_struct_known. [any-thread] */
static inline int weft_struct_take(void *to, size_t size, const void *from) {
    uint32_t given;
    memcpy(&given, from, sizeof given);
    if (given > size) given = (uint32_t)size;
    memset(to, 0, size);
    memcpy(to, from, given);
    memcpy(to, &given, sizeof given);
    return weft_struct_known(from, size);
}

/* Copies an answer: the fields of `from` that both sides know, into the caller's `to`. The writer of `from` has set its
 * struct_size. [any-thread] */
static inline void weft_struct_give(void *to, const void *from) {
    uint32_t room, given;
    memcpy(&room, to, sizeof room);
    memcpy(&given, from, sizeof given);
    if (given > room) given = room;
    if (given > sizeof room) memcpy((char *)to + sizeof room, (const char *)from + sizeof room, given - sizeof room);
}

/* Result of a call. An error code identifies the party at fault. */
typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_E_USER = 1,        /* invalid configuration, command line or input of the user */
    WEFT_E_PLUGIN = 2,      /* a plugin violated a rule */
    WEFT_E_HOST = 3,        /* a bug in the host */
    WEFT_E_SYSTEM = 4,      /* an operating system call failed: files, memory maps, processes */
    WEFT_E_MEMORY = 5,      /* out of memory */
    WEFT_E_DEVICE = 6,      /* the device or its library failed */
    WEFT_E_PEER = 7,        /* another rank failed or differs */
    WEFT_E_UNSUPPORTED = 8, /* an optional slot that is NULL, or a feature that is not available */
    WEFT_E_DATA = 9,        /* a file's content is malformed */
    WEFT_E_NUMERIC = 10,    /* NaN or infinity where a finite number is required */
    WEFT_E_STOPPED = 11     /* stopped by a signal */
} weft_status;

/* Allocated on the caller's stack. A failed call does not change its outputs. A failure with an empty text is reported
 * as a bug of the plugin that returned it. */
typedef struct weft_error {
    uint32_t struct_size;
    uint32_t flags;
    int32_t code; /* weft_status */
    int32_t reserved;
    char text[2040]; /* message text: the problem, its location, allowed values, the fix */
} weft_error;

/* clang-format off */
#define WEFT_ERROR_INIT {(uint32_t)sizeof(weft_error), 0, WEFT_OK, 0, {0}}
/* clang-format on */

/* Replaces control characters in the error text by '?', including U+0080 to U+009F; tabs and newlines stay. Messages
 * quote user files, and a control sequence from a file must not reach the terminal. [any-thread] */
static inline void weft_error_printable(weft_error *err) {
    unsigned char *at = (unsigned char *)err->text;
    for (; *at != '\0'; at++) {
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) at[0] = at[1] = '?';
        else if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f) *at = '?';
    }
}

/* Fills err (may be NULL) and returns code, for use as `return weft_error_set(err, WEFT_E_USER, "...")`.
 * [any-thread] */
static inline weft_status weft_error_set(weft_error *err, weft_status code, const char *format, ...) WEFT_PRINTF(3, 4);
static inline weft_status weft_error_set(weft_error *err, weft_status code, const char *format, ...) {
    if (err != NULL) {
        va_list args;
        err->code = (int32_t)code;
        va_start(args, format);
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        weft_error_printable(err);
    }
    return code;
}

/* Inserts a prefix before the existing text: "FILE: text". Returns err's code. [any-thread] */
static inline weft_status weft_error_prefix(weft_error *err, const char *format, ...) WEFT_PRINTF(2, 3);
static inline weft_status weft_error_prefix(weft_error *err, const char *format, ...) {
    char old[sizeof err->text];
    size_t n = 0;
    va_list args;
    if (err == NULL) return WEFT_E_HOST;
    memcpy(old, err->text, sizeof old);
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof err->text - n, "%s", old);
    weft_error_printable(err);
    return (weft_status)err->code;
}

/* Storage types of elements. A type is defined by its elements per block and bytes per block. A plain type has one
 * element per block. Packed types have several, in the layouts of weft/blocks.h. Blocks cover a matrix in row-major
 * order. If weft_dtype_is_flat is 0, the row length must be a multiple of the block length, and no block crosses a row
 * boundary. Blocks of flat types may cross row boundaries, and the last block may be partly filled. Tensors begin, and
 * are sharded across ranks, at block boundaries. */
typedef enum weft_dtype {
    WEFT_F32 = 1,
    WEFT_BF16 = 2,
    WEFT_F16 = 3,
    WEFT_F64 = 4,
    WEFT_I32 = 5,
    WEFT_I64 = 6,
    WEFT_U8 = 7,
    WEFT_I8X64 = 8,   /* packed: 64 int8 with one fp32 scale */
    WEFT_NF4 = 9,     /* packed: 1024 4-bit numbers, 16 8-bit scales, and the fp32 scale and offset of those scales */
    WEFT_F8X128 = 10, /* packed: 128 fp8 (e4m3) with one fp32 scale */
    WEFT_I8 = 11,     /* only in files */
    WEFT_NF4X64 = 12, /* packed: 64 4-bit numbers with one fp32 scale */
    /* Packed optimizer states (weft/dynamic8.h): 256 numbers as 8-bit codes with one fp32 scale. DYN8X256 is signed,
     * UDYN8X256 is non-negative. The values from 13 to 15 are unused. */
    WEFT_DYN8X256 = 16,
    WEFT_UDYN8X256 = 17
} weft_dtype;
enum { WEFT_DTYPE_LAST = WEFT_UDYN8X256 };

/* Returns the elements per block, or 0 for an unknown type. [any-thread] */
static inline int64_t weft_dtype_block(int32_t dtype) {
    if (dtype == WEFT_I8X64 || dtype == WEFT_NF4X64) return 64;
    if (dtype == WEFT_NF4) return 1024;
    if (dtype == WEFT_F8X128) return 128;
    if (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256) return 256;
    return (dtype >= WEFT_F32 && dtype <= WEFT_U8) || dtype == WEFT_I8 ? 1 : 0;
}

/* Returns the bytes per block (of a plain type: per element), or 0 for an unknown type. [any-thread] */
static inline int64_t weft_dtype_bytes(int32_t dtype) {
    switch (dtype) {
    case WEFT_F32: return 4;
    case WEFT_BF16: return 2;
    case WEFT_F16: return 2;
    case WEFT_F64: return 8;
    case WEFT_I32: return 4;
    case WEFT_I64: return 8;
    case WEFT_U8: return 1;
    case WEFT_I8: return 1;
    case WEFT_I8X64: return 68;
    case WEFT_NF4: return 536;
    case WEFT_F8X128: return 132;
    case WEFT_NF4X64: return 36;
    case WEFT_DYN8X256: return 260;
    case WEFT_UDYN8X256: return 260;
    default: return 0;
    }
}

/* Returns the bytes of the blocks that n elements need, or 0 for an unknown type. The last block may be partly filled.
 * [any-thread] */
static inline int64_t weft_dtype_span(int32_t dtype, int64_t n) {
    const int64_t block = weft_dtype_block(dtype);
    return block == 0 ? 0 : (n + block - 1) / block * weft_dtype_bytes(dtype);
}

/* Returns 1 if a block has several elements. [any-thread] */
static inline int weft_dtype_is_packed(int32_t dtype) {
    return weft_dtype_block(dtype) > 1;
}

/* Returns 1 if the type is packed and its blocks may cross row boundaries. [any-thread] */
static inline int weft_dtype_is_flat(int32_t dtype) {
    return dtype == WEFT_NF4 || dtype == WEFT_NF4X64 || dtype == WEFT_F8X128;
}

/* Returns "fp32", "bf16", ..., or "?" for an unknown type. [any-thread] */
static inline const char *weft_dtype_name(int32_t dtype) {
    switch (dtype) {
    case WEFT_F32: return "fp32";
    case WEFT_BF16: return "bf16";
    case WEFT_F16: return "fp16";
    case WEFT_F64: return "fp64";
    case WEFT_I32: return "int32";
    case WEFT_I64: return "int64";
    case WEFT_U8: return "uint8";
    case WEFT_I8: return "int8";
    case WEFT_I8X64: return "int8x64";
    case WEFT_NF4: return "nf4";
    case WEFT_F8X128: return "fp8x128";
    case WEFT_NF4X64: return "nf4x64";
    case WEFT_DYN8X256: return "dyn8x256";
    case WEFT_UDYN8X256: return "udyn8x256";
    default: return "?";
    }
}

#ifdef __cplusplus
}
#endif
#endif
