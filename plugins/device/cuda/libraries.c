/* libraries.c: see libraries.h. A symbol linked into the plugin has priority, which lets tests use a CUDA emulator.
 * Otherwise the library of the toolkit's major version is loaded, and stays loaded. */
#include "libraries.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

/* Matches the toolkit's major version. */
#if CUDA_VERSION >= 13000
#define RTC_FILE "libnvrtc.so.13"
#else
#define RTC_FILE "libnvrtc.so.12"
#endif

typedef struct library {
    const char *file;  /* of the headers' major version */
    const char *comes; /* the packages that contain it */
} library;

static const library lt = {"libcublasLt.so." WEFT_STRING(CUBLAS_VER_MAJOR),
                           "It is in the CUDA Toolkit, and in the Python package nvidia-cublas."};
static const library rtc = {RTC_FILE, "It is in the CUDA Toolkit, and in the Python package nvidia-cuda-nvrtc."};
static const library driver = {"libcuda.so.1", "It is in NVIDIA's driver."};

/* Searches the system's paths, then CUDA_HOME and CUDA_PATH, then /usr/local/cuda. */
void *cuda_library_open(const char *file) {
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    char path[4096];
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle == NULL && i < sizeof variables / sizeof *variables; i++) {
        const char *home = getenv(variables[i]);
        if (home == NULL || home[0] != '/') continue;
        if (snprintf(path, sizeof path, "%s/lib64/%s", home, file) < (int)sizeof path)
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    (void)snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", file);
    return handle != NULL ? handle : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* *handle: the library, once a symbol needed it. */
static weft_status look_up(void *out, void **handle, const library *of, const char *name, weft_error *err) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL && *handle == NULL) *handle = cuda_library_open(of->file);
    if (symbol == NULL && *handle == NULL) {
        return weft_error_set(err, WEFT_E_DEVICE,
                              "%s was not found. %s Fix: if it is outside of the system's library path, set "
                              "LD_LIBRARY_PATH to its directory, or CUDA_HOME to the toolkit's.",
                              of->file, of->comes);
    }
    if (symbol == NULL) symbol = dlsym(*handle, name);
    if (symbol == NULL) {
        return weft_error_set(err, WEFT_E_DEVICE, "%s has no function %s, so it is too old. %s", of->file, name,
                              of->comes);
    }
    memcpy(out, &symbol, sizeof symbol);
    return WEFT_OK;
}

#define LOOK_UP(name)                                                                                                  \
    if (status == WEFT_OK) status = look_up(&out->name, &handle, of, #name, err);

static weft_status open_driver(cuda_libraries *out, weft_error *err) {
    const library *of = &driver;
    void *handle = NULL;
    weft_status status = WEFT_OK;
    CUDA_DRIVER_CALLS(LOOK_UP)
    return status;
}

static weft_status open_lt(cuda_libraries *out, weft_error *err) {
    const library *of = &lt;
    void *handle = NULL;
    weft_status status = WEFT_OK;
    CUDA_LT_CALLS(LOOK_UP)
    return status;
}

static weft_status open_rtc(cuda_libraries *out, weft_error *err) {
    const library *of = &rtc;
    void *handle = NULL;
    weft_status status = WEFT_OK;
    CUDA_RTC_CALLS(LOOK_UP)
    return status;
}

weft_status cuda_libraries_open(cuda_libraries *out, weft_error *err) {
    weft_status status = open_driver(out, err);
    if (status == WEFT_OK) status = open_lt(out, err);
    return status == WEFT_OK ? open_rtc(out, err) : status;
}

void cuda_rtc_open_builtins(const cuda_libraries *of, int major, int minor) {
    void *symbol = NULL;
    const char *slash = NULL;
    char path[4096];
    Dl_info file;
    memcpy(&symbol, &of->nvrtcVersion, sizeof symbol);
    if (dladdr(symbol, &file) == 0 || (slash = strrchr(file.dli_fname, '/')) == NULL) return;
    if (snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - file.dli_fname), file.dli_fname,
                 major, minor) < (int)sizeof path)
        (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
