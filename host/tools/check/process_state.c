/* host/tools/check/process_state.c: see process_state.h. */
#include "tools/check/process_state.h"

#include "tools/check/rule.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* The order of the variables counts for nothing. */
static uint64_t sum_environment(void) {
    uint64_t sum = 0;
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        uint64_t hash = 1469598103934665603u; /* FNV-1a */
        if (strncmp(*at, "WEFT_", 5) == 0) continue;
        for (const char *c = *at; *c != '\0'; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        sum += hash;
    }
    return sum;
}

void weft_process_state_save(weft_process_state *out) {
    weft_process_save(&out->process);
    out->environment = sum_environment();
    memset(out->streams, 0, sizeof out->streams);
    for (int i = 0; i < 3; i++) (void)fstat(i, &out->streams[i]);
}

static int other_handler(const weft_process *before) {
    struct sigaction now;
    for (int i = 1; i < (int)(sizeof before->handlers / sizeof before->handlers[0]); i++)
        if (before->has_handler[i] && sigaction(i, NULL, &now) == 0 && now.sa_handler != before->handlers[i].sa_handler)
            return i;
    return 0;
}

static weft_status judge_streams(const weft_process_state *before, weft_error *err) {
    static const char *const names[] = {"input", "output", "error"};
    for (int i = 0; i < 3; i++) {
        struct stat now;
        if (fstat(i, &now) != 0)
            return WEFT_BROKEN(err, "it closed standard %s, descriptor %d, while it was tried: that is the host's",
                               names[i], i);
        if (now.st_dev != before->streams[i].st_dev || now.st_ino != before->streams[i].st_ino)
            return WEFT_BROKEN(err,
                               "it led standard %s, descriptor %d, elsewhere while it was tried: that is the host's",
                               names[i], i);
    }
    return WEFT_OK;
}

weft_status weft_process_state_check(const weft_process_state *before, const char *kind, weft_error *err) {
    const int handler = other_handler(&before->process);
    weft_status status = weft_process_restore(&before->process, "it was tried", err);
    if (status != WEFT_OK) return weft_error_prefix(err, "it ");
    if (handler != 0 && strcmp(kind, "device") != 0)
        return WEFT_BROKEN(err, "it changed the handler of signal %d while it was tried: handlers are the host's",
                           handler);
    if (sum_environment() != before->environment)
        return WEFT_BROKEN(err, "it changed the environment while it was tried: that is the host's");
    if (judge_streams(before, err) != WEFT_OK) return WEFT_E_PLUGIN;
    if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD)
        return WEFT_BROKEN(err, "it started a process while it was tried, and left it: a plugin starts none");
    return WEFT_OK;
}
