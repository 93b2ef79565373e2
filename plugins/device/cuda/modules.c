/* modules.c: optimizer updates, compiled by NVRTC for this GPU. Compiled code is cached under a hash of all its inputs:
 * the text, the options, the GPU's architecture and NVRTC's version. */
#include "modules.h"

#include <errno.h>

typedef struct module {
    struct module *next;
    const weft_elementwise *kernel;
    cuda_update_types types;
    void *cubin; /* until it is loaded, then freed */
    size_t size;
    bool was_kept; /* it was read from the cache */
    CUmodule code; /* NULL: not loaded */
    CUfunction function;
} module;

struct cuda_modules {
    module *first;
    int32_t most;         /* see cuda_update_most */
    char directory[4096]; /* "": no caching */
    bool lacks_place;     /* cache = auto found no directory, and the warning is not logged yet */
};

typedef struct compiling {
    weft_device *device;
    const weft_elementwise *kernel;
    const cuda_update_types *types;
    char *source;
    char architecture[48]; /* the architecture option */
    char hash[65];
    void *cubin;
    size_t size;
} compiling;

/* ---- compiling ---- */

static weft_status judge_rtc(const compiling *c, nvrtcResult code, const char *name, weft_error *err) {
    if (code == NVRTC_SUCCESS) return WEFT_OK;
    return weft_error_set(err, code == NVRTC_ERROR_OUT_OF_MEMORY ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "compiling the update %s on device cuda: %s answered %s (%d).", c->kernel->name, name,
                          c->device->libraries.nvrtcGetErrorString(code), (int)code);
}

/* Fails with NVRTC's log, which may be empty for a failure that is not in the author's text. */
static weft_status report_failure(const compiling *c, nvrtcProgram program, nvrtcResult code, weft_error *err) {
    size_t size = 0;
    char *log = NULL;
    weft_status status =
        judge_rtc(c, c->device->libraries.nvrtcGetProgramLogSize(program, &size), "nvrtcGetProgramLogSize", err);
    if (status != WEFT_OK) return status;
    log = calloc(1, size + 1);
    if (log == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for NVRTC's log.");
    status = judge_rtc(c, c->device->libraries.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog", err);
    if (status == WEFT_OK && code == NVRTC_ERROR_COMPILATION) {
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "The optimizer's update %s cannot be compiled for the GPU; its body may use only the "
                                "names in weft/optimizer.h. NVRTC's log:\n%.1500s",
                                c->kernel->name, log);
    } else if (status == WEFT_OK) {
        status = judge_rtc(c, code, "nvrtcCompileProgram", err);
        if (log[0] != '\0' && err != NULL) {
            const size_t used = strlen(err->text);
            (void)snprintf(err->text + used, sizeof err->text - used, " NVRTC's log:\n%.1500s", log);
        }
    }
    free(log);
    return status;
}

static weft_status take_cubin(compiling *c, nvrtcProgram program, weft_error *err) {
    weft_status status =
        judge_rtc(c, c->device->libraries.nvrtcGetCUBINSize(program, &c->size), "nvrtcGetCUBINSize", err);
    if (status != WEFT_OK) return status;
    c->cubin = malloc(c->size + 1);
    if (c->cubin == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for a compiled update.");
    return judge_rtc(c, c->device->libraries.nvrtcGetCUBIN(program, c->cubin), "nvrtcGetCUBIN", err);
}

static weft_status compile(compiling *c, weft_error *err) {
    const cuda_libraries *of = &c->device->libraries;
    const char *const options[] = {c->architecture, cuda_update_options[0], cuda_update_options[1]};
    nvrtcProgram program = NULL;
    nvrtcResult code = of->nvrtcCreateProgram(&program, c->source, CUDA_UPDATE, 0, NULL, NULL);
    weft_status status = judge_rtc(c, code, "nvrtcCreateProgram", err);
    if (status != WEFT_OK) return status;
    code = of->nvrtcCompileProgram(program, (int)(sizeof options / sizeof *options), options);
    status = code == NVRTC_SUCCESS ? WEFT_OK : report_failure(c, program, code, err);
    if (status == WEFT_OK) status = take_cubin(c, program, err);
    cuda_end_other(c->device, of->nvrtcDestroyProgram(&program));
    return status;
}

/* ---- cache ---- */

const char *cuda_cache_directory(const weft_device *device) {
    cuda_modules *of = device->modules;
    if (of->lacks_place)
        weft_log(device->host, WEFT_LOG_WARN,
                 "Device cuda has no directory for compiled updates ($XDG_CACHE_HOME, or $HOME "
                 "and .cache there, is not set or cannot be written), so each run compiles updates again and "
                 "measures no algorithms. Fix: set [device] cache to a directory, or to none.");
    of->lacks_place = false;
    return of->directory;
}

static void keep(const compiling *c) {
    const char *directory = cuda_cache_directory(c->device);
    if (directory[0] == 0 || cuda_cache_write(directory, c->hash, c->cubin, c->size)) return;
    weft_log(c->device->host, WEFT_LOG_WARN,
             "Device cuda cannot store a compiled update in %s; it is compiled again in each run.", directory);
}

static weft_status hash_all(compiling *c, weft_error *err) {
    int major = 0, minor = 0;
    char *all = NULL;
    bool hashed = false;
    const weft_status status = judge_rtc(c, c->device->libraries.nvrtcVersion(&major, &minor), "nvrtcVersion", err);
    if (status != WEFT_OK) return status;
    cuda_rtc_open_builtins(&c->device->libraries, major, minor);
    if (asprintf(&all, "NVRTC %d.%d %s %s %s\n%s", major, minor, c->architecture, cuda_update_options[0],
                 cuda_update_options[1], c->source) < 0)
        return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for an update's text.");
    hashed = cuda_cache_hash(c->hash, all, strlen(all));
    free(all);
    return hashed ? WEFT_OK : weft_error_set(err, WEFT_E_SYSTEM, "libcrypto has no SHA-256.");
}

static weft_status prepare(compiling *c, weft_error *err) {
    const struct cudaDeviceProp *card = &c->device->card;
    (void)snprintf(c->architecture, sizeof c->architecture, "--gpu-architecture=sm_%d%d", card->major, card->minor);
    c->source = cuda_update_source(c->kernel, c->types);
    if (c->source == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for an update's text.");
    return hash_all(c, err);
}

/* Fills m->cubin from the cache or by compiling. */
static weft_status make_cubin(module *m, weft_device *device, bool may_be_kept, weft_error *err) {
    const char *directory = device->modules->directory;
    compiling c = {.device = device, .kernel = m->kernel, .types = &m->types};
    weft_status status = prepare(&c, err);
    if (status == WEFT_OK && may_be_kept && directory[0] != 0) c.cubin = cuda_cache_read(directory, c.hash, &c.size);
    m->was_kept = c.cubin != NULL;
    if (status == WEFT_OK && c.cubin == NULL) {
        status = compile(&c, err);
        if (status == WEFT_OK) keep(&c);
    }
    if (status == WEFT_OK) {
        m->cubin = c.cubin;
        m->size = c.size;
    } else {
        free(c.cubin);
    }
    free(c.source);
    return status;
}

/* ---- loading ---- */

static weft_status judge_load(const weft_device *device, const module *m, CUresult code, const char *name,
                              weft_error *err) {
    char what[80];
    (void)snprintf(what, sizeof what, "loading the update %.50s", m->kernel->name);
    return cuda_judge_driver_call(device, code, name, what, err);
}

static void unload(const weft_device *device, module *m) {
    if (m->code != NULL) cuda_end_other(device, device->libraries.cuModuleUnload(m->code));
    m->code = NULL;
    free(m->cubin);
    m->cubin = NULL;
}

/* The driver rejects this code for any caller: the file was made for another GPU. Compiling again repairs it. */
static bool is_unfit(CUresult code) {
    return code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static weft_status compile_anew(module *m, weft_device *device, CUresult code, weft_error *err) {
    weft_log(device->host, WEFT_LOG_WARN,
             "Device cuda: the driver does not accept the compiled update %s of %s (%d); it is compiled again.",
             m->kernel->name, device->modules->directory, (int)code);
    free(m->cubin);
    m->cubin = NULL;
    return make_cubin(m, device, false, err);
}

static weft_status load_module(module *m, weft_device *device, weft_error *err) {
    const cuda_libraries *of = &device->libraries;
    CUresult code = of->cuModuleLoadData(&m->code, m->cubin);
    weft_status status = WEFT_OK;
    if (is_unfit(code) && m->was_kept) {
        m->code = NULL;
        status = compile_anew(m, device, code, err);
        if (status != WEFT_OK) return status;
        code = of->cuModuleLoadData(&m->code, m->cubin);
    }
    if (code != CUDA_SUCCESS) m->code = NULL;
    status = judge_load(device, m, code, "cuModuleLoadData", err);
    if (status != WEFT_OK) return status;
    status =
        judge_load(device, m, of->cuModuleGetFunction(&m->function, m->code, CUDA_UPDATE), "cuModuleGetFunction", err);
    free(m->cubin);
    m->cubin = NULL;
    return status;
}

/* ---- find, make, unload ---- */

static void drop(weft_device *device, module *m) {
    unload(device, m);
    device->host->release(device->host, m);
}

static weft_status add_module(module **out, weft_device *device, const weft_elementwise *kernel,
                              const cuda_update_types *types, weft_error *err) {
    module *m = device->host->alloc(device->host, sizeof *m, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    if (m == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for an update.");
    memset(m, 0, sizeof *m);
    m->kernel = kernel;
    m->types = *types;
    status = make_cubin(m, device, true, err);
    if (status != WEFT_OK) {
        drop(device, m);
        return status;
    }
    m->next = device->modules->first;
    device->modules->first = m;
    *out = m;
    return WEFT_OK;
}

/* Removes a module that cannot be loaded; the next request makes it again. */
static void forget(weft_device *device, module *m) {
    module **at = &device->modules->first;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    drop(device, m);
}

weft_status cuda_module_find(CUfunction *out, weft_device *device, const weft_elementwise *kernel,
                             const cuda_update_types *types, weft_error *err) {
    module *m = device->modules->first;
    weft_status status = WEFT_OK;
    while (m != NULL && (m->kernel != kernel || memcmp(&m->types, types, sizeof *types) != 0)) m = m->next;
    if (m == NULL) status = add_module(&m, device, kernel, types, err);
    if (status != WEFT_OK || cuda_is_dry()) return status;
    if (m->code == NULL) status = load_module(m, device, err);
    if (status != WEFT_OK) forget(device, m);
    else *out = m->function;
    return status;
}

int32_t cuda_update_most(const weft_device *device) {
    return device->modules->most;
}

static weft_status ask_most(cuda_modules *of, weft_error *err) {
    int driver = 0;
    const weft_status status = cuda_judge(cudaDriverGetVersion(&driver), "the version of the driver", err);
    of->most = driver >= 12010 ? CUDA_UPDATE_MANY : CUDA_UPDATE_FEW;
    return status;
}

weft_status cuda_modules_open(weft_device *device, const cuda_config *keys, weft_error *err) {
    cuda_modules *of = device->host->alloc(device->host, sizeof *of, _Alignof(max_align_t));
    if (of == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for its updates.");
    memset(of, 0, sizeof *of);
    device->modules = of;
    if (strcmp(keys->cache, "auto") == 0) {
        of->lacks_place = !cuda_cache_find(of->directory, sizeof of->directory);
    } else if (strcmp(keys->cache, "none") != 0) {
        (void)snprintf(of->directory, sizeof of->directory, "%s", keys->cache);
        if (!cuda_cache_make(of->directory))
            return weft_error_set(err, WEFT_E_USER, "cache = %s in [device] cannot be created: %s.", keys->cache,
                                  strerror(errno));
    }
    return ask_most(of, err);
}

void cuda_modules_close(weft_device *device) {
    cuda_modules *of = device->modules;
    if (of == NULL) return;
    while (of->first != NULL) {
        module *m = of->first;
        of->first = m->next;
        drop(device, m);
    }
    device->host->release(device->host, of);
    device->modules = NULL;
}
