/* jinja_arena.h: what a rendering may take: memory, piece by piece and given back all at once; steps, of which
 * comparing, searching and writing out a value take one for each element; and levels of values in each other. Whatever
 * is past its limit fails the arena, and with it the rendering. */
#ifndef JINJA_ARENA_H
#define JINJA_ARENA_H

#include <stdbool.h>
#include <weft/host.h>

typedef struct jinja_block {
    struct jinja_block *before;
    size_t n, used;
} jinja_block;

typedef enum jinja_limit { JINJA_MEMORY, JINJA_STEPS, JINJA_LEVELS } jinja_limit;

/* The fuzz targets are built with less of it: a template that ends at its bounds takes a second otherwise. */
#ifndef JINJA_MOST_STEPS
#define JINJA_MOST_STEPS  20000000
#define JINJA_MOST_TEXT   (16 << 20)          /* bytes of a text */
#define JINJA_MOST_MEMORY ((size_t)512 << 20) /* bytes in all */
#endif

enum { JINJA_MOST_LEVELS = 200 };

typedef struct jinja_arena {
    const weft_host *host;
    jinja_block *top;
    size_t taken, limit; /* bytes */
    int64_t steps;
    int levels;
    bool failed;
    jinja_limit past; /* which limit, where it has failed */
} jinja_arena;

void *jinja_take(jinja_arena *self, size_t bytes); /* zeros; NULL and failed where there is none */
/* Counts what an element takes, or `bytes` of text. False: the arena has failed, or does now. */
bool jinja_spend(jinja_arena *self, size_t bytes);
/* Into a value that lies in another one; false as above. The way out: levels--. */
bool jinja_enter_value(jinja_arena *self);
void jinja_arena_free(jinja_arena *self);

#define JINJA_NEW(arena, type) ((type *)jinja_take(arena, sizeof(type)))

#endif
