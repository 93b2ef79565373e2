/* weft/base.h: versions, errors and the few macros that every other header stands on.
 *
 * Every public struct that may grow begins with `struct_size, flags`, and grows at its end only. Who makes it sets
 * struct_size to the size that it was compiled with; the other side may know it shorter or longer:
 *
 *   reading    Less than SDK 1.0 has (WEFT_WHOLE) is refused. Fields of 1.0 are read directly, later ones if WEFT_HAS
 *              or in a copy by weft_struct_take; one that the struct ends before counts as zero, its slot as empty.
 *   requests   (arguments, specs, events, placements) must be understood: what one has behind the struct as the reader
 *              knows it is zero, or the reader refuses (weft_struct_known). What is only told (tables, jobs, views) may
 *              go on.
 *   answers    (`out` of info and the like) lie in the caller's struct, who has set struct_size, and what stands for
 *              a field that nobody fills. They are written as far as both know them (weft_struct_give).
 *   arrays     come with a stride, the size of an element as their maker compiled it, and are indexed by that.
 *
 * So nothing is copied or indexed at one's own sizeof. A few small structs have no struct_size and never grow.
 *
 * A function's comment carries tags, one vocabulary for all headers:
 *   [any-thread]   may be called from any thread at any time        [main]     only from the host's main thread
 *   [worker]       called from worker threads, several at once      [hot]      no allocation, lock or I/O inside
 *   [collective]   every rank calls it, in the same order
 *   [required]     a table slot that must be filled                 [optional: ...]  what NULL means
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

/* One number per SDK that was ever released, major * 1000 + minor. One that does not exist does not compile. */
#define WEFT_SDK_1_0           1000
#define WEFT_SDK(major, minor) WEFT_SDK_##major##_##minor
#define WEFT_SDK_HEADERS       WEFT_SDK(1, 0) /* the SDK that these headers are */

/* The oldest host that a plugin works with. Define it before the first include; what is newer is then hidden. */
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
#define WEFT_STRING(x)  WEFT_STRING_(x) /* the text of x after macro expansion */

/* True if the struct that p points to was compiled with `field`. */
#define WEFT_HAS(p, field) ((p)->struct_size >= (uint32_t)(offsetof(__typeof__(*(p)), field) + sizeof((p)->field)))

/* Bytes that a public struct has in SDK 1.0, as in WEFT_SIZE_1_0(weft_error). */
#define WEFT_SIZE_1_0(type) ((uint32_t)WEFT_SIZE_1_0_##type)

/* True if the struct that p points to has all that SDK 1.0 has. */
#define WEFT_WHOLE(p, type) ((p)->struct_size >= WEFT_SIZE_1_0(type))

/* A struct_size above this is no size but a struct that was not filled. */
#define WEFT_STRUCT_LIMIT 65536u

/* 1 if all that a request has behind `known` bytes is zero, 0 if it asks there for something. [any-thread] */
static inline int weft_struct_known(const void *from, size_t known) {
    uint32_t given;
    size_t i;
    memcpy(&given, from, sizeof given);
    if (given > WEFT_STRUCT_LIMIT) return 0;
    for (i = known; i < given; i++)
        if (((const char *)from)[i] != 0) return 0;
    return 1;
}

/* A copy of a request, at the reader's own size: what the writer had no field for becomes zero, and struct_size says
 * how much was given of what the reader knows. Returns weft_struct_known. [any-thread] */
static inline int weft_struct_take(void *to, size_t size, const void *from) {
    uint32_t given;
    memcpy(&given, from, sizeof given);
    if (given > size) given = (uint32_t)size;
    memset(to, 0, size);
    memcpy(to, from, given);
    memcpy(to, &given, sizeof given);
    return weft_struct_known(from, size);
}

/* An answer: what both sides know of `from`, whose struct_size its writer has set, into the caller's `to`.
 * [any-thread] */
static inline void weft_struct_give(void *to, const void *from) {
    uint32_t room, given;
    memcpy(&room, to, sizeof room);
    memcpy(&given, from, sizeof given);
    if (given > room) given = room;
    if (given > sizeof room) memcpy((char *)to + sizeof room, (const char *)from + sizeof room, given - sizeof room);
}

/* What went wrong, by whose fault it is. */
typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_E_USER = 1,        /* configuration, command line or input that the user gave */
    WEFT_E_PLUGIN = 2,      /* a plugin broke a rule */
    WEFT_E_HOST = 3,        /* a defect of the host */
    WEFT_E_SYSTEM = 4,      /* the operating system refused: files, memory maps, processes */
    WEFT_E_MEMORY = 5,      /* no memory left */
    WEFT_E_DEVICE = 6,      /* the device or its library failed */
    WEFT_E_PEER = 7,        /* another rank failed or differs */
    WEFT_E_UNSUPPORTED = 8, /* an optional slot that is NULL, or a feature that does not exist here */
    WEFT_E_DATA = 9,        /* a file's content is malformed */
    WEFT_E_NUMERIC = 10,    /* NaN or infinity where a number was needed */
    WEFT_E_STOPPED = 11     /* a signal asked to stop */
} weft_status;

/* Lives on the caller's stack. Outputs of a call that failed are untouched. A failure with empty text is reported as a
 * defect of the plugin that returned it. */
typedef struct weft_error {
    uint32_t struct_size;
    uint32_t flags;
    int32_t code; /* weft_status */
    int32_t reserved;
    char text[2040]; /* one or more sentences: what, where, what is allowed, what to do */
} weft_error;

/* clang-format off */
#define WEFT_ERROR_INIT {(uint32_t)sizeof(weft_error), 0, WEFT_OK, 0, {0}}
/* clang-format on */

/* Texts quote what stands in users' files, and what stands there must not reach a terminal as a command: every control
 * character but tab and newline becomes '?', those of U+0080 to U+009F too. [any-thread] */
static inline void weft_error_printable(weft_error *err) {
    unsigned char *at = (unsigned char *)err->text;
    for (; *at != '\0'; at++) {
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) at[0] = at[1] = '?';
        else if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f) *at = '?';
    }
}

/* Fills err (may be NULL) and returns code, so that `return weft_error_set(err, WEFT_E_USER, "...")` reads well.
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

/* Puts a sentence's subject before the text that is there: "FILE: text". Returns err's code. [any-thread] */
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

/* Types of elements as they are stored. A type has elements per block and bytes per block: a plain one has blocks of
 * one element, and what is packed is a type of its own (weft/blocks.h says what lies in a block). Blocks run over the
 * numbers of a matrix row by row: those of a type that needs whole rows (weft_dtype_is_flat says 0) end where a row
 * ends, whose length is a whole number of them; those of the others go on in the next row, and the last one may have
 * room left. Tensors begin, and are cut between ranks, where a block begins. */
typedef enum weft_dtype {
    WEFT_F32 = 1,
    WEFT_BF16 = 2,
    WEFT_F16 = 3,
    WEFT_F64 = 4,
    WEFT_I32 = 5,
    WEFT_I64 = 6,
    WEFT_U8 = 7,
    WEFT_I8X64 = 8,   /* packed: 64 int8 with one fp32 scale */
    WEFT_NF4 = 9,     /* packed: 1024 numbers of 4 bits, 16 scales of 8 bits, the scale of those and what is added */
    WEFT_F8X128 = 10, /* packed: 128 fp8 (e4m3) with one fp32 scale */
    WEFT_I8 = 11,     /* in files alone */
    WEFT_NF4X64 = 12, /* packed: 64 numbers of 4 bits with one fp32 scale */
    /* Packed optimizer states: 256 numbers as codes of 8 bits with one fp32 scale, of both signs or of none below zero
     * (weft/dynamic8.h). Numbers between are free. */
    WEFT_DYN8X256 = 16,
    WEFT_UDYN8X256 = 17
} weft_dtype;
enum { WEFT_DTYPE_LAST = WEFT_UDYN8X256 };

/* Elements of one block; 0 for an unknown type. [any-thread] */
static inline int64_t weft_dtype_block(int32_t dtype) {
    if (dtype == WEFT_I8X64 || dtype == WEFT_NF4X64) return 64;
    if (dtype == WEFT_NF4) return 1024;
    if (dtype == WEFT_F8X128) return 128;
    if (dtype == WEFT_DYN8X256 || dtype == WEFT_UDYN8X256) return 256;
    return (dtype >= WEFT_F32 && dtype <= WEFT_U8) || dtype == WEFT_I8 ? 1 : 0;
}

/* Bytes of one block, which is one element of a plain type; 0 for an unknown type. [any-thread] */
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

/* Bytes of the blocks of n elements, the last of which may have room left; 0 for an unknown type. [any-thread] */
static inline int64_t weft_dtype_span(int32_t dtype, int64_t n) {
    const int64_t block = weft_dtype_block(dtype);
    return block == 0 ? 0 : (n + block - 1) / block * weft_dtype_bytes(dtype);
}

/* Several elements in a block? [any-thread] */
static inline int weft_dtype_is_packed(int32_t dtype) {
    return weft_dtype_block(dtype) > 1;
}

/* Packed, and its blocks go on where a row ends? [any-thread] */
static inline int weft_dtype_is_flat(int32_t dtype) {
    return dtype == WEFT_NF4 || dtype == WEFT_NF4X64 || dtype == WEFT_F8X128;
}

/* "fp32", "bf16", ...; "?" for an unknown type. [any-thread] */
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
