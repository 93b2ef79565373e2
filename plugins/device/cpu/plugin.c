/* plugin.c: entry points of plugin device:cpu: its key, create and destroy, info, and the kernel table. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0)
#include "../common/matrices.h"
#include "amx.h"
#include "cpu.h"

#include <dnnl.h>
#include <sched.h>
#include <unistd.h>

const char operands_device[] = "cpu";
const uint32_t operands_types = 1u << WEFT_F32 | 1u << WEFT_BF16 | 1u << WEFT_F16;

#define CPU_KEYS(K)                                                                                                    \
    K(I64, threads, "auto", "[1,1024] | auto", "threads", 0,                                                           \
      "Threads of a kernel; auto: the processors that this process may run on, divided among this machine's ranks. "   \
      "Results do not depend on it.")
WEFT_KEYS(cpu_config, CPU_KEYS)

/* Returns this rank's share of the processors; if the host does not know it, all that the process may run on. At most
 * CPU_SETSIZE processors are counted. */
static int available_threads(const weft_host *host) {
    const weft_host_world *world = (const weft_host_world *)host->extension(host, WEFT_HOST_WORLD);
    cpu_set_t set;
    if (world != NULL && world->processors > 0) return world->processors;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

static void read_processor_name(char *out, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    (void)snprintf(out, size, "CPU");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *at = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || at == NULL) continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(out, size, "%.*s", (int)size - 1, at + 1 + strspn(at + 1, " "));
        break;
    }
    if (f != NULL) (void)fclose(f);
}

/* Selects the loops by oneDNN's ISA (DNNL_MAX_CPU_ISA can lower it), so that one name describes both. The choice
 * follows only from that and the processor, never from measurements: equal names guarantee equal bits. On processors
 * with tiles the bf16 pair instructions are slower than fp32 (0.65 of its speed at 134 M); if tiles are unavailable
 * there, bf16 is widened. An optimizer's loop depends on the processor (weft/optimizer.h), with the same bits. */
static void choose_isa(weft_device *d) {
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    const unsigned avx2 = dnnl_cpu_isa_avx2, avx512 = dnnl_cpu_isa_avx512_core, bf16 = dnnl_cpu_isa_avx512_core_bf16;
    const char *name = "base";
    d->loops = &cpu_loops_base;
    d->packs = true;
#if defined(__x86_64__)
    if ((isa & avx512) == avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        d->loops = &cpu_loops_avx512;
        d->packs = false;
        d->panels_f32 = &cpu_panels_f32_avx512;
        d->panels_bf16 = &cpu_panels_wide_avx512;
        d->panels_f16 = &cpu_panels_half_avx512;
        if ((isa & bf16) == bf16 && __builtin_cpu_supports("avx512bf16") && !amx_is_built_in())
            d->panels_bf16 = &cpu_panels_bf16_avx512;
        name = cpu_multiplies_bf16(d) ? "avx512-bf16" : "avx512";
    } else if ((isa & avx2) == avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c")) {
        d->loops = &cpu_loops_avx2;
        d->panels_f32 = &cpu_panels_f32_avx2;
        d->panels_bf16 = &cpu_panels_wide_avx2;
        d->panels_f16 = &cpu_panels_half_avx2;
        name = "avx2";
    }
#endif
#if defined(__x86_64__) || defined(WEFT_AMX_PLAIN)
    if (amx_is_here(isa)) {
        d->panels_bf16 = &cpu_panels_bf16_amx;
        name = "amx-bf16";
    }
#endif
    (void)snprintf(d->isa, sizeof d->isa, "%s", name);
}

static weft_status create_device(weft_device **out, const weft_host *host, const void *config, int32_t index,
                                 weft_error *err) {
    const cpu_config *keys = config;
    (void)index; /* all processors are one device for every rank */
    weft_device *d = host->alloc(host, sizeof *d, _Alignof(max_align_t));
    if (d == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cpu has no memory left for itself.");
    memset(d, 0, sizeof *d);
    d->host = host;
    d->threads = keys->threads == WEFT_AUTO_I64 ? available_threads(host) : (int)keys->threads;
    d->all_threads = d->threads;
    read_processor_name(d->name, sizeof d->name);
    choose_isa(d);
    weft_dynamic8_fill(&d->dynamic8[0], WEFT_DYN8X256);
    weft_dynamic8_fill(&d->dynamic8[1], WEFT_UDYN8X256);
    *out = d;
    return WEFT_OK;
}

static void destroy_device(weft_device *device) {
    if (device->live_buffers != 0) {
        weft_log(device->host, WEFT_LOG_WARN, "Device cpu ends with %lld bytes in %lld buffers that were not released.",
                 (long long)device->live_bytes, (long long)device->live_buffers);
    }
    device->host->release(device->host, device);
}

static void tell_device_info(const weft_device *device, weft_device_info *out) {
    const dnnl_version_t *v = dnnl_version();
    const uint32_t size = out->struct_size;
    weft_device_info i = {.struct_size = size,
                          .flags = WEFT_DEVICE_SHARES_MACHINE,
                          .threads = device->threads,
                          .has_bf16 = cpu_multiplies_bf16(device),
                          .packed = PACKED_TYPES,
                          .types = operands_types};
    memcpy(i.name, device->name, sizeof i.name);
    memcpy(i.isa, device->isa, sizeof i.isa);
    (void)snprintf(i.backend, sizeof i.backend, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    i.memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    memcpy(out, &i, size < sizeof i ? size : sizeof i);
}

#define KERNEL_ROW(name, type)    .name = cpu_##name,
#define WORKSPACE_ROW(name, type) .name##_workspace = cpu_##name##_workspace,
static const weft_device_plugin table = {.struct_size = (uint32_t)sizeof(weft_device_plugin),
                                         .create = create_device,
                                         .destroy = destroy_device,
                                         .info = tell_device_info,
                                         .alloc = cpu_alloc,
                                         .release = cpu_release,
                                         .host_view = cpu_host_view,
                                         .stream_create = cpu_stream_create,
                                         .stream_destroy = cpu_stream_destroy,
                                         .synchronize = cpu_synchronize,
                                         .record_event = cpu_record_event,
                                         .wait = cpu_wait,
                                         .write = cpu_write,
                                         .read = cpu_read,
                                         .copy = cpu_copy,
                                         .fill = cpu_fill,
                                         .convert = cpu_convert,
                                         .extension = cpu_extension,
                                         WEFT_DEVICE_WORKSPACES(WORKSPACE_ROW) WEFT_DEVICE_KERNELS(KERNEL_ROW)};

WEFT_PLUGIN(device, 1, "cpu", "0.1.0", "This machine's processors, through oneDNN and OpenMP", cpu_config, NULL, table)
