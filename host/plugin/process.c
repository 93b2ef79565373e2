/* host/plugin/process.c: see process.h. */
#include "plugin/process.h"

#include <locale.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR without its sticky exception flags in the low word, the x87 control word in the high one. */
#define MXCSR_FLAGS 0x3fu
#define MXCSR_FLUSH 0x8040u /* flush to zero, denormals are zero */

uint64_t weft_process_fp(void) {
    uint16_t x87 = 0;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return ((uint64_t)x87 << 32) | (_mm_getcsr() & ~MXCSR_FLAGS);
}

static void fp_write(uint64_t control) {
    const uint16_t x87 = (uint16_t)(control >> 32);
    __asm__ volatile("fldcw %0" : : "m"(x87));
    _mm_setcsr((uint32_t)control | (_mm_getcsr() & MXCSR_FLAGS));
}

static int fp_flushes(uint64_t control) {
    return (control & MXCSR_FLUSH) != 0;
}
#elif defined(__aarch64__)
#define FPCR_FLUSH (1u << 24)

uint64_t weft_process_fp(void) {
    uint64_t control = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static void fp_write(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

static int fp_flushes(uint64_t control) {
    return (control & FPCR_FLUSH) != 0;
}
#else
#error "read and write this machine's floating-point control word here"
#endif

#define MOST_SIGNALS 65

/* State of this thread's current call. */
static _Thread_local struct {
    bool moved;
    mode_t before, now;
} mask_of_call;

static mode_t mask_write(mode_t mask) {
    return (mode_t)syscall(SYS_umask, mask);
}

/* Replaces the C library's umask for plugins and their libraries. Reading the mask takes two system calls, and files
 * that other threads create between them would get the wrong mode. A call may change the mask temporarily. */
mode_t umask(mode_t mask) {
    const mode_t before = mask_write(mask);
    if (!mask_of_call.moved) mask_of_call.before = before;
    mask_of_call.moved = true;
    mask_of_call.now = mask & 0777;
    return before;
}

static mode_t mask_read(void) {
    const mode_t mask = mask_write(0);
    (void)mask_write(mask);
    return mask;
}

void weft_process_save(weft_process *out) {
    const char *locale = setlocale(LC_ALL, NULL);
    memset(out, 0, sizeof *out);
    out->fp_control = weft_process_fp();
    out->mask = mask_read();
    if (getcwd(out->directory, sizeof out->directory) == NULL) out->directory[0] = 0;
    (void)snprintf(out->locale, sizeof out->locale, "%s", locale == NULL ? "C" : locale);
    for (int i = 1; i < MOST_SIGNALS; i++) out->has_handler[i] = sigaction(i, NULL, &out->handlers[i]) == 0;
}

weft_status weft_process_restore_fp(uint64_t before, const char *when, weft_error *err) {
    const uint64_t now = weft_process_fp();
    if (now == before) return WEFT_OK;
    fp_write(before);
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "changed the floating-point mode while %s (control word %llx, before %llx%s). The mode is the "
        "host's: link it without -ffast-math, -Ofast and code that sets it.",
        when, (unsigned long long)now, (unsigned long long)before,
        fp_flushes(now) && !fp_flushes(before) ? ": small numbers become zero" : "");
}

/* Restores everything; with several changes the error describes the last one. */
weft_status weft_process_restore(const weft_process *saved, const char *when, weft_error *err) {
    char directory[sizeof saved->directory] = "";
    const char *locale = setlocale(LC_ALL, NULL);
    weft_status status = WEFT_OK;
    if (getcwd(directory, sizeof directory) == NULL) directory[0] = 0;
    if (strcmp(directory, saved->directory) != 0 && saved->directory[0] != 0) {
        const bool is_gone = chdir(saved->directory) != 0;
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the working directory while %s%s%.1000s%s.", when,
                                is_gone ? ", and " : "", is_gone ? saved->directory : "", is_gone ? " is gone" : "");
    }
    if (mask_read() != saved->mask) {
        (void)mask_write(saved->mask);
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the umask while %s.", when);
    }
    if (locale != NULL && strcmp(locale, saved->locale) != 0) {
        (void)setlocale(LC_ALL, saved->locale);
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the locale while %s.", when);
    }
    for (int i = 1; i < MOST_SIGNALS; i++) { /* a handler and a sigaction share a union: one comparison for both */
        struct sigaction now;
        if (!saved->has_handler[i] || sigaction(i, NULL, &now) != 0) continue;
        if (now.sa_handler != saved->handlers[i].sa_handler || now.sa_flags != saved->handlers[i].sa_flags)
            (void)sigaction(i, &saved->handlers[i], NULL);
    }
    if (weft_process_restore_fp(saved->fp_control, when, err) != WEFT_OK) status = WEFT_E_PLUGIN;
    return status;
}

uint64_t weft_process_begin_call(void) {
    mask_of_call.moved = false;
    return weft_process_fp();
}

bool weft_process_is_kept(uint64_t fp_control) {
    return weft_process_fp() == fp_control && (!mask_of_call.moved || mask_of_call.now == mask_of_call.before);
}

weft_status weft_process_end_call(uint64_t fp_control, const char *when, weft_error *err) {
    weft_status status = WEFT_OK;
    if (mask_of_call.moved && mask_of_call.now != mask_of_call.before) {
        (void)mask_write(mask_of_call.before);
        mask_of_call.moved = false;
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the umask while %s.", when);
    }
    if (weft_process_restore_fp(fp_control, when, err) != WEFT_OK) status = WEFT_E_PLUGIN;
    return status;
}
