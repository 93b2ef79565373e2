/* The data plugin in SOURCE, which logs each document or conversation that this process encodes: a line with its rank
 * in the file ENCODED. Encoding waits while the file HOLD exists. With FAIL_RANK, create fails on that rank. */
#include "changed/changed.h"

#include SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const unsigned long long none = (unsigned long long)-1;
static const weft_data_job *of_host;

static void log_document(void) {
    char line[32];
    const int to = open(getenv("ENCODED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    (void)snprintf(line, sizeof line, "%llu\n", this_rank(0));
    while (getenv("HOLD") != NULL && access(getenv("HOLD"), F_OK) == 0) usleep(10000);
    if (write(to, line, strlen(line)) < 0) abort();
    (void)close(to);
}

static weft_status encode(const weft_data_job *job, const weft_ids_sink *sink, const char *text, size_t bytes,
                          weft_error *err) {
    (void)job;
    log_document();
    return of_host->encode(of_host, sink, text, bytes, err);
}

static weft_status chat(const weft_data_job *job, const weft_chat_sink *sink, const weft_chat *what, weft_error *err) {
    (void)job;
    log_document();
    return of_host->chat(of_host, sink, what, err);
}

static weft_status create(weft_data **out, const weft_host *host, const void *config, const weft_data_job *job,
                          weft_error *err) {
    static weft_data_job given;
    if (number_in("FAIL_RANK", none) == this_rank(0)) return weft_error_set(err, WEFT_E_DATA, "a failure of one rank");
    of_host = job;
    given = *job;
    given.encode = encode;
    given.chat = chat;
    return original.create(out, host, config, &given, err);
}

static void change(weft_data_plugin *to) {
    to->create = create;
}
