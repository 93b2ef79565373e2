/* jinja_arena.c: blocks of memory, each twice as large as what was asked for or 32 KiB. */
#include "jinja_arena.h"

enum { BLOCK = 32768 };

static jinja_block *new_block(jinja_arena *self, size_t bytes) {
    const size_t n = bytes > BLOCK / 2 ? bytes : BLOCK;
    jinja_block *block = NULL;
    if (self->failed || n > self->limit - self->taken) return NULL;
    block = self->host->alloc(self->host, sizeof *block + n, 16);
    if (block == NULL) return NULL;
    block->before = self->top;
    block->n = n;
    block->used = 0;
    self->top = block;
    self->taken += n;
    return block;
}

void *jinja_take(jinja_arena *self, size_t bytes) {
    const size_t n = (bytes + 15) / 16 * 16;
    jinja_block *block = self->top;
    char *at = NULL;
    if (n < bytes) self->failed = true;
    if (block == NULL || block->n - block->used < n) block = new_block(self, n);
    if (block == NULL) self->failed = true;
    if (self->failed) return NULL;
    at = (char *)(block + 1) + block->used;
    block->used += n;
    memset(at, 0, n);
    return at;
}

static bool fail(jinja_arena *self, jinja_limit past) {
    if (!self->failed) self->past = past;
    self->failed = true;
    return false;
}

enum { BYTES_OF_A_STEP = 256 }; /* of text that is compared or searched */

bool jinja_spend(jinja_arena *self, size_t bytes) {
    self->steps += 1 + (int64_t)(bytes / BYTES_OF_A_STEP);
    return self->steps > JINJA_MOST_STEPS ? fail(self, JINJA_STEPS) : !self->failed;
}

bool jinja_enter_value(jinja_arena *self) {
    self->levels++;
    if (self->levels > JINJA_MOST_LEVELS) return fail(self, JINJA_LEVELS);
    return jinja_spend(self, 0);
}

void jinja_arena_free(jinja_arena *self) {
    for (jinja_block *at = self->top, *before = NULL; at != NULL; at = before) {
        before = at->before;
        self->host->release(self->host, at);
    }
    self->top = NULL;
}
