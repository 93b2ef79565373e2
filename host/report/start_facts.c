/* host/report/start_facts.c: see start_facts.h. */
#include "report/start_facts.h"

#include "report/world_line.h"

#include <stdlib.h>
#include <unistd.h>

/* Returns the output of `weft config explain --json`; null if a value is not UTF-8, which JSON cannot represent. */
static json_t *config_json(const weft_session *session) {
    char *text = NULL;
    size_t n = 0;
    json_t *array = NULL;
    FILE *stream = open_memstream(&text, &n);
    weft_status status = WEFT_E_MEMORY;
    if (stream != NULL) {
        status = weft_config_explain(session->run->config, stream, true, NULL);
        (void)fclose(stream);
    }
    if (status == WEFT_OK) array = json_loads(text, 0, NULL);
    free(text);
    return array != NULL ? array : json_null();
}

/* Returns the participants of the run, without its results. */
static json_t *run_json(const weft_session *session) {
    static const char *const outcome[] = {"steps", "first_loss", "last_loss", "last_lr"};
    const weft_run_result none = {0};
    json_t *object = weft_run_object(session, &none);
    for (size_t i = 0; object != NULL && i < sizeof outcome / sizeof *outcome; i++)
        (void)json_object_del(object, outcome[i]);
    return object;
}

static json_t *model_json(const weft_session *session) {
    const weft_declared *declared = session->engine->plan.declared;
    return json_pack("{s:o?, s:I, s:I}", "path", json_string(session->run->settings.model.path), "parameters",
                     (json_int_t)weft_declared_numel(declared, false), "trained",
                     (json_int_t)weft_declared_numel(declared, true));
}

static json_t *data_json(const weft_session *session) {
    const weft_split_info *train = &session->train_info, *validation = &session->validation_info;
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "documents", (json_int_t)train->documents, "rows",
                     (json_int_t)train->rows, "targets", (json_int_t)train->targets, "validation_documents",
                     (json_int_t)validation->documents, "validation_targets", (json_int_t)validation->targets);
}

static json_t *batch_json(const weft_session *session) {
    const weft_plan_spec *spec = &session->engine->plan.spec;
    return json_pack("{s:I, s:I, s:i}", "global", (json_int_t)session->run->settings.train.global_batch, "micro",
                     (json_int_t)session->run->settings.train.micro_batch, "places",
                     (int)spec->lengths[spec->n_lengths - 1]);
}

static json_t *device_json(const weft_session *session) {
    const weft_device_info *info = &session->engine->device_info;
    return json_pack("{s:s, s:s, s:s, s:i, s:I}", "name", info->name, "isa", info->isa, "backend", info->backend,
                     "threads", (int)info->threads, "memory", (json_int_t)info->memory);
}

json_t *weft_start_facts(const weft_session *session, bool resumed, json_t *planned) {
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    return json_pack("{s:s, s:s, s:b, s:I, s:o, s:o?, s:o, s:o, s:o, s:o, s:o}", "weft", WEFT_VERSION, "host", host,
                     "resumed", (int)resumed, "steps", (json_int_t)session->steps, "run", run_json(session), "model",
                     model_json(session), "data", data_json(session), "batch", batch_json(session), "device",
                     device_json(session), "planned", planned, "config", config_json(session));
}
