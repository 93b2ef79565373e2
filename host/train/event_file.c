/* host/train/event_file.c: see event_file.h. */
#include "train/event_file.h"

#include "base/tree.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* ---- a message ---- */

/* Wire types of protocol buffers (protobuf.dev/programming-guides/encoding). */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { MESSAGE_BYTES = 1024 };

/* Never overflows: tags are the host's own, and short. */
typedef struct message {
    unsigned char bytes[MESSAGE_BYTES];
    size_t n;
} message;

static void put_bytes(message *self, const void *bytes, size_t n) {
    if (n > sizeof self->bytes - self->n) n = sizeof self->bytes - self->n;
    memcpy(self->bytes + self->n, bytes, n);
    self->n += n;
}

static void put_varint(message *self, uint64_t value) {
    do {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put_bytes(self, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_key(message *self, uint32_t field, uint32_t type) {
    put_varint(self, field << 3 | type);
}

/* Appends a number's bytes in little-endian order on any machine. */
static void put_little(message *self, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)(value >> (8 * i));
        put_bytes(self, &byte, 1);
    }
}

static void put_double(message *self, uint32_t field, double value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(self, field, FIXED64);
    put_little(self, bits, 8);
}

static void put_float(message *self, uint32_t field, float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(self, field, FIXED32);
    put_little(self, bits, 4);
}

static void put_text(message *self, uint32_t field, const void *text, size_t n) {
    put_key(self, field, BYTES);
    put_varint(self, n);
    put_bytes(self, text, n);
}

/* Writes wall_time and step, the fields of every event. */
static message begin_event(uint64_t step) {
    message event = {.n = 0};
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    put_double(&event, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    return event;
}

/* ---- a record ---- */

/* Computes the masked CRC32C (Castagnoli, reflected). The mask is for checksums of data that contains checksums. Events
 * are few and small, so one bit at a time is fast enough. */
static uint32_t masked_crc(const unsigned char *bytes, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static weft_status write_record(weft_event_file *self, const message *event, weft_error *err) {
    message head = {.n = 0}, tail = {.n = 0};
    put_little(&head, event->n, 8);
    put_little(&head, masked_crc(head.bytes, 8), 4);
    put_little(&tail, masked_crc(event->bytes, event->n), 4);
    if (fwrite(head.bytes, 1, head.n, self->file) == head.n &&
        fwrite(event->bytes, 1, event->n, self->file) == event->n &&
        fwrite(tail.bytes, 1, tail.n, self->file) == tail.n && fflush(self->file) == 0)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
}

/* ---- the file ---- */

/* Writes the version that readers expect first, and this process's start step. */
static weft_status write_beginning(weft_event_file *self, uint64_t step, weft_error *err) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    message event = begin_event(0);
    weft_status status = WEFT_OK;
    put_text(&event, 3, version, sizeof version - 1);
    status = write_record(self, &event, err);
    event = begin_event(step);
    put_text(&event, 7, start, sizeof start);
    return status == WEFT_OK ? write_record(self, &event, err) : status;
}

weft_status weft_event_file_open(weft_event_file *self, const char *directory, uint64_t step, weft_error *err) {
    char host[128] = "";
    weft_status status = weft_tree_make(directory, err);
    memset(self, 0, sizeof *self);
    if (status != WEFT_OK) return status;
    (void)gethostname(host, sizeof host - 1);
    /* Readers sort a directory's files by name, so the name starts with ten digits of time. */
    (void)snprintf(self->path, sizeof self->path, "%s/events.out.tfevents.%010lld.%s.%ld", directory,
                   (long long)time(NULL), host, (long)getpid());
    self->file = fopen(self->path, "wxe");
    if (self->file == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
    return write_beginning(self, step, err);
}

void weft_event_file_close(weft_event_file *self) {
    if (self->file != NULL) (void)fclose(self->file);
    self->file = NULL;
}

weft_status weft_event_file_add(weft_event_file *self, uint64_t step, const weft_scalar *scalars, int32_t n,
                                weft_error *err) {
    message event = begin_event(step), summary = {.n = 0};
    if (self->file == NULL) return WEFT_OK;
    for (int32_t i = 0; i < n && i < WEFT_MAX_SCALARS; i++) {
        message value = {.n = 0};
        put_text(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_float(&value, 2, (float)scalars[i].value);
        put_text(&summary, 1, value.bytes, value.n);
    }
    put_text(&event, 5, summary.bytes, summary.n);
    return write_record(self, &event, err);
}

weft_status weft_event_file_sync(weft_event_file *self, weft_error *err) {
    if (self->file == NULL || (fflush(self->file) == 0 && fsync(fileno(self->file)) == 0)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be written: %s", self->path, strerror(errno));
}
