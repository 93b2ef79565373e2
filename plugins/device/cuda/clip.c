/* clip.c: kernel-table slot of the gradient norm and the clip coefficient. */
#include "clip.h"
#include "cuda.h"

CUDA_KERNEL(clip, weft_clip) {
    operands c = OPERANDS("clip", weft_clip, args, err);
    clip_call call = {.n = args->n, .clip = args->clip};
    if (c.status != WEFT_OK) return c.status;
    call.square_sums = operands_need(&c, args->square_sums, "square_sums", args->n, 1, 8);
    call.count = operands_need(&c, args->count, "count", 1, 1, 8);
    call.norm = operands_need(&c, args->norm, "norm", 1, 1, 8);
    call.coefficient = operands_need(&c, args->coefficient, "coefficient", 1, 1, 4);
    call.skip = operands_need(&c, args->skip, "skip", 1, 1, 4);
    call.seed = operands_may(&c, args->seed, "seed", 1, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(clip_launch(&call, cuda_stream(device, s)), "clip", err);
}
