/* The tokenizer in SOURCE. SLEEP_IN_INFO, SLEEP_IN_DESTROY: that slot sleeps for SLEEP_MS. SLOW_THREAD: the first
 * encode of a thread other than the main one ends 3 s after the last encode of the main thread, which begins after
 * it. */
#include "changed/changed.h"

#include SOURCE

#include <sys/syscall.h>
#include <time.h>

#if defined SLEEP_IN_INFO
static void info(const weft_tokenizer *self, weft_tokenizer_info *out) {
    usleep((useconds_t)(1000 * number_in("SLEEP_MS", 0)));
    original.info(self, out);
}
#elif defined SLEEP_IN_DESTROY
static void destroy(weft_tokenizer *self) {
    usleep((useconds_t)(1000 * number_in("SLEEP_MS", 0)));
    original.destroy(self);
}
#elif defined SLOW_THREAD
static time_t seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static weft_status encode(const weft_tokenizer *self, const weft_ids_sink *sink, const char *text, size_t bytes,
                          uint32_t flags, weft_error *err) {
    static _Atomic long begun, last;
    static _Thread_local long calls;
    const int is_main = syscall(SYS_gettid) == getpid();
    for (int i = 0; i < 1000 && (is_main ? begun == 0 : calls == 0); i++) {
        begun += !is_main;
        usleep(20000);
        calls = last != 0 && seconds() - last > 3;
    }
    calls++;
    if (is_main) last = seconds();
    return original.encode(self, sink, text, bytes, flags, err);
}
#endif

static void change(weft_tokenizer_plugin *to) {
#if defined SLEEP_IN_INFO
    to->info = info;
#elif defined SLEEP_IN_DESTROY
    to->destroy = destroy;
#elif defined SLOW_THREAD
    to->encode = encode;
#endif
}
