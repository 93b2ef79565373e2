/* host/program/check/check_order.c: for a communicator without tags (WEFT_COMM_IN_ORDER), that a rank takes what
 * another
 * sends it in the order in which it is sent. */
#include "program/check/check.h"

#include <stdlib.h>

/* What is sent, each on a lane of its own (weft/comm.h). */
enum { N_SORTS = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT - WEFT_PAYLOAD_CARRY + 1 };

/* latest: [world][sorts] of each rank, the last of its SENDs of a sort that the rank in hand has a RECV for. */
static weft_status follow_senders(weft_checker *check, int32_t rank, int32_t *latest) {
    const weft_program *program = check->programs[rank];
    char name[160];
    for (int32_t i = 0; i < check->world * N_SORTS; i++) latest[i] = -1;
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        int32_t *before = NULL;
        int32_t send = -1;
        if (instruction->kind != WEFT_INSTRUCTION_RECV) continue;
        send = check->sent[weft_check_transfer(check, instruction)];
        before = &latest[instruction->peer * N_SORTS + instruction->what - WEFT_PAYLOAD_CARRY];
        if (send < *before) {
            weft_instruction_describe(name, sizeof name, &check->programs[instruction->peer]->instructions[*before],
                                      check->job);
            return weft_check_refuse_at(
                check, rank, i,
                "rank %d sends this before %s, which is received before it: the communicator "
                "has no tags, so what comes from a rank is received in the order in which it is "
                "sent",
                (int)instruction->peer, name);
        }
        *before = send;
    }
    return WEFT_OK;
}

weft_status weft_check_transfers_in_order(weft_checker *check) {
    int32_t *latest = NULL;
    weft_status status = WEFT_OK;
    if (!check->job->in_order || check->sent == NULL) return WEFT_OK;
    latest = malloc((size_t)check->world * N_SORTS * sizeof *latest);
    if (latest == NULL) return weft_error_set(check->err, WEFT_E_MEMORY, "no memory to order what ranks send");
    for (int32_t rank = 0; rank < check->world && status == WEFT_OK; rank++)
        status = follow_senders(check, rank, latest);
    free(latest);
    return status;
}
