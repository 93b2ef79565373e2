/* Number of ranks and choice of the communicator: from the command line, the configuration, the environment and the
 * notes of available plugins. Communicators only have notes (fake.c); no launcher is started. */
#include "fakes.h"

#include "launch/find.h"
#include "plugin/services.h"

static weft_error err = WEFT_ERROR_INIT;

/* mpi-aa and mpi-bb can start ranks, mpi-cc has no launcher, odd-one is of another family. */
static void build_all(void) {
    char launcher[300];
    scratch_make();
    fakes_alone();
    (void)snprintf(launcher, sizeof launcher, "%s/launcher", scratch);
    write_text(launcher, "#!/bin/sh\nexit 0\n");
    fakes_run("chmod +x $XDG_DATA_HOME/launcher");
    fakes_build("mpi-bb", launcher, "BB_RANK BB_SIZE SHARED_RANK BB_STEP_SIZE");
    fakes_build("mpi-cc", "/nowhere/mpiexec", "CC_RANK CC_SIZE");
    fakes_build("odd-one", launcher, "ODD_RANK ODD_SIZE");
    (void)strcat(launcher, " -x"); /* arguments before the number */
    fakes_build("mpi-aa", launcher, "AA_RANK AA_SIZE SHARED_RANK AA_STEP_SIZE");
    write_text(scratch_path("weft-comm-broken.so"), "no plugin");
}

static void clear_environment(void) {
    static const char *const names[] = {"AA_RANK",     "AA_SIZE",      "BB_RANK",      "BB_SIZE",
                                        "CC_RANK",     "CC_SIZE",      "ODD_RANK",     "ODD_SIZE",
                                        "SHARED_RANK", "BB_STEP_SIZE", "AA_STEP_SIZE", WEFT_STARTED};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) (void)unsetenv(names[i]);
    weft_launch_want(WEFT_RANKS_NONE, 0);
}

/* environment: "A=1 B=2"; comm: [comm] plugin, NULL: unset. */
static weft_status find(weft_launch *out, const char *environment, const char *comm) {
    const weft_plugins_settings options = {.path = NULL};
    char pairs[200], named[200], *rest = NULL;
    const char *overrides[] = {named};
    weft_plugins *plugins = NULL;
    weft_config *config = NULL;
    weft_status status = WEFT_OK;
    (void)snprintf(pairs, sizeof pairs, "%s", environment);
    for (char *pair = strtok_r(pairs, " ", &rest); pair != NULL; pair = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(pair, '=');
        *value = '\0';
        ck_assert_int_eq(setenv(pair, value + 1, 1), 0);
    }
    (void)snprintf(named, sizeof named, "comm.plugin=%s", comm == NULL ? "" : comm);
    ck_assert_msg(weft_config_load(&config, NULL, overrides, comm == NULL ? 0 : 1, &err) == WEFT_OK, "%s", err.text);
    ck_assert_msg(weft_plugins_create(&plugins, &options, &err) == WEFT_OK, "%s", err.text);
    status = weft_launch_find(out, config, plugins, &err);
    weft_plugins_destroy(plugins);
    weft_config_free(config);
    return status;
}

/* ---- results ---- */

static const struct {
    weft_launch_use use;
    int32_t asked;
    const char *environment, *comm;
    int32_t rank, size;
    int must_launch;
    const char *member, *launched_by, *launch_ends;
} found[] = {
    /* single process */
    {WEFT_RANKS_NONE, 0, "", NULL, 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 0, "", NULL, 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 1, "", NULL, 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 1, "", "self", 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 1, "", "mpi", 0, 1, 0, "mpi-aa", "", ""},
    {WEFT_RANKS_NONE, 0, "", "mpi-cc", 0, 1, 0, "", "", ""},
    {WEFT_RANKS_NONE, 0, "AA_RANK=0 AA_SIZE=1", NULL, 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=0 AA_SIZE=1", NULL, 0, 1, 0, "", "", ""},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=1", NULL, 0, 1, 0, "", "", ""}, /* one variable of a pair is ignored */
    /* to be started */
    {WEFT_RANKS_TRAINED, 4, "", NULL, 0, 4, 1, "", "", "/launcher -x -n {ranks}"},
    {WEFT_RANKS_TRAINED, 4, "", "mpi", 0, 4, 1, "", "", "/launcher -x -n {ranks}"},
    {WEFT_RANKS_TRAINED, 4, "", "mpi-bb", 0, 4, 1, "", "", "/launcher -n {ranks}"},
    {WEFT_RANKS_TRAINED, 4, "", "odd", 0, 4, 1, "", "", "/launcher -n {ranks}"},
    /* started */
    {WEFT_RANKS_TRAINED, 4, "BB_RANK=3 BB_SIZE=4", NULL, 3, 4, 0, "mpi-bb", "BB_RANK", ""},
    {WEFT_RANKS_TRAINED, 0, "BB_RANK=3 BB_SIZE=4", NULL, 3, 4, 0, "mpi-bb", "BB_RANK", ""},
    {WEFT_RANKS_TRAINED, 0, "BB_RANK=3 BB_SIZE=4", "mpi", 3, 4, 0, "mpi-bb", "BB_RANK", ""},
    {WEFT_RANKS_TRAINED, 0, "BB_RANK=3 BB_SIZE=4", "mpi-bb", 3, 4, 0, "", "BB_RANK", ""},
    {WEFT_RANKS_TRAINED, 0, "CC_RANK=0 CC_SIZE=2", NULL, 0, 2, 0, "mpi-cc", "CC_RANK", ""},
    {WEFT_RANKS_TRAINED, 1, "CC_RANK=0 CC_SIZE=1", "mpi", 0, 1, 0, "mpi-cc", "CC_RANK", ""},
    {WEFT_RANKS_TRAINED, 2, "SHARED_RANK=1 BB_STEP_SIZE=2", NULL, 1, 2, 0, "mpi-bb", "SHARED_RANK", ""},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=0 AA_SIZE=2 ODD_RANK=1 ODD_SIZE=2", "odd", 1, 2, 0, "odd-one", "ODD_RANK", ""},
    /* planned */
    {WEFT_RANKS_PLANNED, 64, "", NULL, 0, 64, 0, "", "", ""},
    {WEFT_RANKS_PLANNED, 0, "", NULL, 0, 1, 0, "", "", ""},
};

TESTS(the_world_is_found, LENGTH(found)) {
    weft_launch ranks;
    weft_launch_want(found[_i].use, found[_i].asked);
    ck_assert_msg(find(&ranks, found[_i].environment, found[_i].comm) == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(ranks.world.rank, found[_i].rank);
    ck_assert_int_eq(ranks.world.size, found[_i].size);
    ck_assert_int_eq(ranks.must_launch, found[_i].must_launch);
    ck_assert_int_eq(ranks.world.is_planned, found[_i].use == WEFT_RANKS_PLANNED && found[_i].asked > 0);
    ck_assert_int_eq(ranks.world.is_alone, found[_i].use == WEFT_RANKS_NONE);
    ck_assert_str_eq(ranks.world.comm, found[_i].member);
    ck_assert_str_eq(ranks.world.launched_by, found[_i].launched_by);
    ck_assert_uint_ge(strlen(ranks.launch), strlen(found[_i].launch_ends));
    ck_assert_str_eq(ranks.launch + strlen(ranks.launch) - strlen(found[_i].launch_ends), found[_i].launch_ends);
}

TEST(a_choice_is_explained) {
    weft_launch ranks;
    weft_launch_want(WEFT_RANKS_TRAINED, 2);
    ck_assert_msg(find(&ranks, "", NULL) == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(ranks.why,
                     "[comm] plugin = mpi is mpi-aa: its launcher is there (mpi-bb: it comes later; mpi-cc: it "
                     "comes later)");
    ck_assert_msg(find(&ranks, "BB_RANK=0 BB_SIZE=2", "mpi") == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(ranks.why, "[comm] plugin = mpi is mpi-bb: its launcher set BB_RANK");
    ck_assert_msg(find(&ranks, "BB_RANK=1 BB_SIZE=2", "mpi") == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(ranks.why, ""); /* only once */
    ck_assert_msg(find(&ranks, "BB_RANK=0 BB_SIZE=2", "mpi-bb") == WEFT_OK, "%s", err.text);
    ck_assert_str_eq(ranks.why, ""); /* no plugin was selected */
}

/* ---- errors ---- */

static const struct {
    weft_launch_use use;
    int32_t asked;
    const char *environment, *comm;
    weft_status status;
    const char *says;
} refused[] = {
    {WEFT_RANKS_TRAINED, 4, "", "self", WEFT_E_USER, "[comm] plugin = self"},
    {WEFT_RANKS_TRAINED, 4, "", "mpi-cc", WEFT_E_USER, "there is no /nowhere/mpiexec"},
    {WEFT_RANKS_TRAINED, 4, "", "nil", WEFT_E_USER, "there are: broken, mpi-aa"},
    {WEFT_RANKS_TRAINED, 4, "", "broken", WEFT_E_USER, "[comm] plugin = broken cannot start ranks (broken: "},
    {WEFT_RANKS_TRAINED, 4, "AA_RANK=0 AA_SIZE=2", NULL, WEFT_E_PEER, "the launcher started 2 (AA_SIZE)"},
    {WEFT_RANKS_TRAINED, 4, "AA_RANK=0 AA_SIZE=1", NULL, WEFT_E_PEER, "the launcher started 1 (AA_SIZE)"},
    {WEFT_RANKS_TRAINED, 1, "AA_RANK=0 AA_SIZE=2", NULL, WEFT_E_PEER, "--ranks is 1, but the launcher started 2"},
    {WEFT_RANKS_TRAINED, 2, "AA_RANK=0 AA_SIZE=2", "mpi-bb", WEFT_E_USER, "the launcher of mpi-aa started (AA_RANK)"},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=0 AA_SIZE=2", "self", WEFT_E_USER, "take it out, or set it to mpi-aa"},
    {WEFT_RANKS_TRAINED, 0, "ODD_RANK=0 ODD_SIZE=2", "mpi", WEFT_E_USER, "the launcher of odd-one started"},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=2 AA_SIZE=2", NULL, WEFT_E_USER, "AA_RANK=2 and AA_SIZE=2"},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=x AA_SIZE=2", NULL, WEFT_E_USER, "AA_RANK=x and AA_SIZE=2"},
    {WEFT_RANKS_TRAINED, 0, "AA_RANK=0 AA_SIZE=", NULL, WEFT_E_USER, "which is no rank of a world"},
    {WEFT_RANKS_TRAINED, 4, WEFT_STARTED "=4/8", NULL, WEFT_E_SYSTEM, "its launcher set no rank"},
    {WEFT_RANKS_NONE, 0, "AA_RANK=1 AA_SIZE=2", NULL, WEFT_E_USER, "it is rank 1 of the 2"},
    {WEFT_RANKS_PLANNED, 2, "AA_RANK=1 AA_SIZE=2", NULL, WEFT_E_USER, "this command runs on one rank"},
};

TESTS(what_cannot_be_is_refused, LENGTH(refused)) {
    weft_launch ranks;
    weft_launch_want(refused[_i].use, refused[_i].asked);
    ck_assert_int_eq(find(&ranks, refused[_i].environment, refused[_i].comm), refused[_i].status);
    ck_assert_says(err, refused[_i].says);
}

TEST(without_an_mpi_the_packages_are_named) {
    weft_launch ranks;
    (void)setenv("WEFT_PLUGIN_PATH", "/nowhere", 1);
    weft_launch_want(WEFT_RANKS_TRAINED, 2);
    ck_assert_int_eq(find(&ranks, "", NULL), WEFT_E_USER);
    ck_assert_says(err, "there is no communicator mpi-* that could start ranks: install an MPI (Debian: mpich and "
                        "libmpich-dev, or openmpi-bin and libopenmpi-dev) and build again");
    weft_launch_want(WEFT_RANKS_TRAINED, 0);
    ck_assert_int_eq(find(&ranks, "", "mpi"), WEFT_E_USER);
    ck_assert_says(err, "there is no communicator mpi-*");
    ck_assert_says(err, "One rank needs no communicator: [comm] plugin = self");
}

/* ---- the resulting world ---- */

static weft_comm_info told(int32_t rank, int32_t size, int32_t local_rank, int32_t local_size) {
    weft_comm_info info = {.struct_size = (uint32_t)sizeof info, .rank = rank, .size = size, .backend = "Some MPI 1.2"};
    info.local_rank = local_rank;
    info.local_size = local_size;
    return info;
}

TEST(the_communicator_confirms_or_refuses) {
    const weft_world world = {.rank = 2, .size = 4, .local_rank = 2, .local_size = 4, .launched_by = "AA_RANK"};
    const weft_host_world *shown = weft_services()->extension(weft_services(), WEFT_HOST_WORLD);
    weft_comm_info info = told(1, 4, 1, 4);
    weft_world_set(&world);
    ck_assert_int_eq(shown->local_size, 4);
    ck_assert_int_eq(weft_world_confirm(&info, &err), WEFT_E_PEER);
    ck_assert_says(err, "Some MPI 1.2 reports that this is rank 1 of 4, and AA_RANK reports rank 2 of 4");
    info = told(2, 4, 2, 2);
    ck_assert_int_eq(weft_world_confirm(&info, &err), WEFT_E_PLUGIN);
    info = told(2, 4, 0, 2);
    ck_assert_int_eq(weft_world_confirm(&info, &err), WEFT_OK);
    ck_assert_int_eq(shown->rank, 2);
    ck_assert_int_eq(shown->size, 4);
    ck_assert_int_eq(shown->local_rank, 0);
    ck_assert_int_eq(shown->local_size, 2);
}

/* P processors, all available to this process, or a share equal to P divided by the ranks. */
TEST(local_ranks_share_the_processors) {
    const weft_host_world *shown = weft_services()->extension(weft_services(), WEFT_HOST_WORLD);
    const int32_t all = weft_services_processors();
    weft_world world = {.size = 1, .local_size = 1};
    char text[32];
    weft_world_set(&world);
    ck_assert_int_eq(shown->processors, all);
    world.size = world.local_size = 2;
    (void)snprintf(text, sizeof text, "2/%d", all);
    (void)setenv(WEFT_STARTED, text, 1);
    weft_world_set(&world);
    ck_assert_int_eq(shown->processors, all > 1 ? all / 2 : 1);
    (void)snprintf(text, sizeof text, "2/%d", 2 * all); /* bound to one half by the launcher */
    (void)setenv(WEFT_STARTED, text, 1);
    weft_world_set(&world);
    ck_assert_int_eq(shown->processors, all);
    world.size = world.local_size = 4 * all;
    weft_world_set(&world);
    ck_assert_int_eq(shown->processors, 1);
}

static int32_t threads_of_cpu(void) {
    const weft_plugins_settings options = {.path = NULL};
    const int64_t keys[] = {WEFT_AUTO_I64}; /* threads = auto */
    const weft_device_plugin *table = NULL;
    const weft_loaded *loaded = NULL;
    weft_plugins *plugins = NULL;
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    weft_device *device = NULL;
    char path[600];
    (void)snprintf(path, sizeof path, "%s/plugins/weft-device-cpu.so", getenv("WEFT_BUILD"));
    ck_assert_int_eq(weft_plugins_create(&plugins, &options, &err), WEFT_OK);
    ck_assert_msg(weft_plugins_get(plugins, &loaded, "device", path, &err) == WEFT_OK, "%s", err.text);
    ck_assert_uint_eq(loaded->plugin->config_size, sizeof keys);
    table = weft_loaded_table(loaded, device);
    ck_assert_msg(table->create(&device, weft_services(), keys, 0, &err) == WEFT_OK, "%s", err.text);
    table->info(device, &info);
    table->destroy(device);
    weft_plugins_destroy(plugins);
    return info.threads;
}

TEST(the_cpu_takes_its_rank_s_share) {
    ck_assert_int_eq(threads_of_cpu(), weft_services_processors());
    weft_services_world()->processors = 3;
    ck_assert_int_eq(threads_of_cpu(), 3);
}

int main(void) {
    TCase *tests = tcase_create("ranks");
    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, build_all, scratch_remove);
    tcase_add_checked_fixture(tests, clear_environment, NULL);
    return run_tests(tests);
}
