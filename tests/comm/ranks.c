/* tests/comm/ranks.c: one rank of a test.
 *
 *     ranks launch <plugin>             prints the launch command of the plugin's note, for 1 rank
 *     ranks <case>[,<case>...] <plugin> runs these cases (ranks.h), under that command or by itself
 *     ranks world <size> <plugin>       requests a world of that size and prints the error
 *     ranks die <directory> <plugin>    writes its process id there; then rank 1 dies, and the others wait for it
 *     ranks start <N> <words> ...       starts N ranks of itself with these words, for plugins whose ranks the host
 *                                       starts
 *     ranks gone <plugin>               rank 1 dies; the others get the error, abort, and destroy everything */
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "launch/find.h"
#include "launch/rendezvous.h"
#include "launch/world.h"
#include "plugin/load.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "reference_device.h"

static weft_error err = WEFT_ERROR_INIT;

static int32_t my_rank = -1;

void fail(int line, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fprintf(stderr, "FAILED: rank %d, line %d: %s\n", (int)my_rank, line, text);
    _exit(1);
}

static const weft_comm_plugin *table_of(const char *path) {
    const weft_loaded *loaded = NULL;
    must_be_ok(weft_plugin_load(&loaded, path, NULL, "comm", NULL, &err), err);
    return weft_loaded_table(loaded, comm);
}

static int print_launch(const char *path) {
    static weft_preflight note;
    must_be_ok(weft_plugin_file_note(&note, path, NULL, &err), err);
    return puts(note.launch) < 0;
}

/* Creates a communicator with its device. Without host_view, the plugin cannot access operands directly. */
static void open_ranks(ranks *r, const weft_comm_plugin *table, const weft_device_plugin *kernels) {
    const weft_comm_job job = {(uint32_t)sizeof job, 0, 0, 0};
    weft_comm_info info = {(uint32_t)sizeof info, 0, -1, -1, -1, -1, -1, -1, -1, -1, ""};
    const weft_device_plugin *told = NULL;
    static weft_process process;
    memset(r, 0, sizeof *r);
    r->table = table;
    r->kernels = kernels;
    weft_process_save(&process);
    must_be_ok(table->create(&r->comm, weft_services(), NULL, &job, &err), err);
    must_be_ok(weft_process_restore(&process, "it began", &err), err); /* as the host does around each create */
    table->info(r->comm, &info);
    my_rank = r->rank = info.rank;
    r->size = info.size;
    r->info = info;
    must(info.rank >= 0 && info.rank < info.size);
    must(info.local_rank == info.rank && info.local_size == info.size && info.node == 0 && info.nodes == 1);
    must(info.progress == (table->poke == NULL ? WEFT_PROGRESS_OWN : WEFT_PROGRESS_CALLER) && info.max_tag >= 32766);
    must(strncmp(info.backend, "MPICH 4.", 8) == 0 || strncmp(info.backend, "MPICH 5.", 8) == 0 ||
         strncmp(info.backend, "Open MPI ", 9) == 0 || strncmp(info.backend, "NCCL 2.", 7) == 0 || is_alone(r));
    told = device_of_environment(&r->device);
    if (told != NULL) r->kernels = told;
    else must_be_ok(kernels->create(&r->device, weft_services(), NULL, 0, &err), err);
    must_be_ok(table->attach(r->comm, r->device, r->kernels, &err), err);
}

static void run_cases(ranks *r, const char *names) {
    static const struct {
        const char *name;
        void (*run)(ranks *r);
    } cases[] = {{"exchanges", case_exchanges}, {"several", case_several},   {"pairs", case_pairs},
                 {"wrong", case_wrong_calls},   {"large", case_large},       {"rounding", case_rounding},
                 {"speed", case_speed},         {"crossing", case_crossing}, {"memory", case_memory}};
    size_t i, ran = 0;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strstr(names, cases[i].name) == NULL) continue;
        cases[i].run(r);
        ran++;
    }
    must(ran > 0);
}

/* Runs the cases two times in one process if the communicator allows it (ranks that connect through the host connect
 * once). The second time, with few ranks, the device's memory is not host memory. MPI is finalized afterwards. */
static int main_cases(const char *names, const char *path) {
    const weft_comm_plugin *table = table_of(path);
    static weft_device_plugin apart;
    const weft_comm_job job = {(uint32_t)sizeof job, 0, 0, 0};
    weft_comm *late = NULL;
    ranks near, far;
    apart = weft_reference_device;
    apart.host_view = NULL;
    open_ranks(&near, table, &weft_reference_device);
    if (!moves_itself(&near)) open_ranks(&far, table, &apart);
    run_cases(&near, names);
    if (moves_itself(&near)) {
        table->destroy(near.comm);
        near.kernels->destroy(near.device);
        return 0;
    }
    if (far.size <= 4 && strstr(names, "speed") == NULL) run_cases(&far, names);
    table->destroy(near.comm);
    table->destroy(far.comm);
    near.kernels->destroy(near.device);
    far.kernels->destroy(far.device);
    if (table->poke == NULL) return 0;
    must(table->create(&late, weft_services(), NULL, &job, &err) == WEFT_E_HOST && late == NULL);
    must(strstr(err.text, "MPI was finalized in this process") != NULL);
    return 0;
}

static int main_world(const char *size, const char *path) {
    const weft_comm_job job = {(uint32_t)sizeof job, 0, (int32_t)atoi(size), 0};
    weft_comm *comm = NULL;
    const weft_comm_plugin *table = table_of(path);
    const weft_status status = table->create(&comm, weft_services(), NULL, &job, &err);
    (void)printf("status %d: %s\n", (int)status, err.text);
    table->destroy(comm);
    return 0;
}

static int main_die(const char *directory, const char *path) {
    char name[4096];
    weft_exchange barrier = {.struct_size = (uint32_t)sizeof barrier};
    weft_comm_handle *handle = NULL;
    FILE *file = NULL;
    ranks r;
    open_ranks(&r, table_of(path), &weft_reference_device);
    (void)snprintf(name, sizeof name, "%s/%d", directory, (int)getpid());
    file = fopen(name, "w");
    must(file != NULL && fclose(file) == 0);
    must_be_ok(r.table->barrier(r.comm, &handle, &barrier, &err), err);
    must_be_ok(r.table->wait(r.comm, handle, &err), err);
    if (r.rank == 1) (void)raise(SIGKILL);
    must_be_ok(r.table->barrier(r.comm, &handle, &barrier, &err), err);
    for (;;) (void)r.table->wait(r.comm, handle, &err);
}

/* A call with a lost rank does not finish by itself, and no call starts after the error. */
static int main_gone(const char *path) {
    weft_exchange barrier = {.struct_size = (uint32_t)sizeof barrier};
    weft_comm_handle *handle = NULL;
    weft_error later = WEFT_ERROR_INIT;
    ranks r;
    open_ranks(&r, table_of(path), &weft_reference_device);
    must_be_ok(r.table->barrier(r.comm, &handle, &barrier, &err), err);
    must_be_ok(r.table->wait(r.comm, handle, &err), err);
    if (r.rank == 1) (void)raise(SIGKILL);
    must_be_ok(r.table->barrier(r.comm, &handle, &barrier, &err), err);
    must(r.table->wait(r.comm, handle, &err) == WEFT_E_PEER);
    must(strstr(err.text, "rank 1 has ended") != NULL);
    must(r.table->barrier(r.comm, &handle, &barrier, &later) == WEFT_E_PEER && strcmp(err.text, later.text) == 0);
    r.table->abandon(r.comm);
    must(r.table->barrier(r.comm, &handle, &barrier, &later) == WEFT_E_PEER);
    r.table->destroy(r.comm);
    r.kernels->destroy(r.device);
    return 0;
}

/* Reads the world of a rank started by the host; a command with several ranks sets it. */
static void take_world(void) {
    weft_world world = *weft_world_get();
    if (getenv(WEFT_OWN_RANK) == NULL) return;
    world.rank = world.local_rank = (int32_t)atoi(getenv(WEFT_OWN_RANK));
    world.size = world.local_size = (int32_t)atoi(getenv(WEFT_OWN_SIZE));
    weft_world_set(&world);
    weft_rendezvous_offer(600);
}

int main(int n_args, char **args) {
    if (n_args > 3 && strcmp(args[1], "start") == 0) {
        const int32_t n = (int32_t)atoi(args[2]);
        args[2] = args[0];
        return weft_own_launcher_run(n, args[0], args + 2);
    }
    take_world();
    if (n_args == 3 && strcmp(args[1], "gone") == 0) return main_gone(args[2]);
    if (n_args == 3 && strcmp(args[1], "launch") == 0) return print_launch(args[2]);
    if (n_args == 4 && strcmp(args[1], "world") == 0) return main_world(args[2], args[3]);
    if (n_args == 4 && strcmp(args[1], "die") == 0) return main_die(args[2], args[3]);
    if (n_args == 3) return main_cases(args[1], args[2]);
    (void)fprintf(stderr, "ranks: see the top of ranks.c\n");
    return 2;
}
