/* host/plan/storage.c: see storage.h. */
#include "plan/storage.h"

#include "model/weights.h"

/* Gains and biases too: a unit has one trained group. */
static void store_trained(weft_plan *plan) {
    if (plan->run->settings.train.weights != WEFT_STORED_BF16) return;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++)
        if (plan->declared->parameters[i].trainable) plan->declared->parameters[i].dtype = WEFT_BF16;
}

void weft_storage_choose(weft_plan *plan) {
    const weft_run *run = plan->run;
    weft_safetensors *files = NULL;
    store_trained(plan);
    if (plan->dtype == WEFT_F32 || run->settings.model.start == WEFT_START_FRESH) return;
    if (weft_safetensors_open_directory(&files, run->settings.model.path, NULL) != WEFT_OK) return;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        weft_parameter *p = &plan->declared->parameters[i];
        const weft_tensor *tensor = weft_weights_tensor(files, p);
        if (!p->trainable && !weft_parameter_is_packed(p) && weft_parameter_is_matrix(p) && tensor != NULL &&
            tensor->dtype == plan->dtype)
            p->dtype = plan->dtype;
    }
    weft_safetensors_close(files);
}
