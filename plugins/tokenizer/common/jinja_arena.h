/* jinja_arena.h: memory that is taken piece by piece and given back all at once, up to a limit. */
#ifndef JINJA_ARENA_H
#define JINJA_ARENA_H

#include <stdbool.h>
#include <weft/host.h>

typedef struct jinja_block {
    struct jinja_block *before;
    size_t n, used;
} jinja_block;

typedef struct jinja_arena {
    const weft_host *host;
    jinja_block *top;
    size_t taken, limit; /* bytes */
    bool failed;         /* no memory, or past the limit */
} jinja_arena;

void *jinja_take(jinja_arena *self, size_t bytes); /* zeros; NULL and failed where there is none */
void jinja_arena_free(jinja_arena *self);

#define JINJA_NEW(arena, type) ((type *)jinja_take(arena, sizeof(type)))

#endif
