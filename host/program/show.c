/* host/program/show.c: see show.h. */
#include "program/show.h"

static struct {
    int32_t mode, rank;
    FILE *refused;
} wanted = {-1, -1, NULL};

void weft_show_want(int32_t mode, int32_t rank, FILE *refused) {
    wanted.mode = mode;
    wanted.rank = rank;
    wanted.refused = refused;
}

int32_t weft_show_rank(int32_t mode) {
    return wanted.mode == mode ? wanted.rank : -1;
}

void weft_show_refused(const weft_program *program, const weft_job_spec *job, int32_t instruction) {
    if (wanted.refused == NULL || program == NULL) return;
    (void)fprintf(wanted.refused, "program of rank %d in %s, refused where it is marked\n", (int)program->rank,
                  weft_mode_name(program->mode));
    weft_program_print_marked(program, job, instruction, wanted.refused);
}
