# The built-in plugins and what each one links. Included by the top CMakeLists.txt.

# oneDNN, of version 2 or 3: the system's, or that of a prefix, which the plugin then finds again when it is loaded.
set(WEFT_DNNL_ROOT "" CACHE PATH "A prefix with oneDNN's include/ and lib/; empty: the system's")
set(dnnl_where)
if(WEFT_DNNL_ROOT)
  set(dnnl_where PATHS "${WEFT_DNNL_ROOT}" NO_DEFAULT_PATH)
endif()
find_library(DNNL_LIBRARY NAMES dnnl ${dnnl_where} PATH_SUFFIXES lib lib64 NO_CACHE)
find_path(DNNL_INCLUDE_DIR NAMES dnnl.h ${dnnl_where} PATH_SUFFIXES include NO_CACHE)
if(NOT DNNL_LIBRARY OR NOT DNNL_INCLUDE_DIR)
  message(FATAL_ERROR "oneDNN was not found (WEFT_DNNL_ROOT is \"${WEFT_DNNL_ROOT}\"): install libdnnl-dev and leave it "
                      "empty, or name a prefix that holds include/dnnl.h and lib/libdnnl.so")
endif()
add_library(weft_dnnl INTERFACE)
target_link_libraries(weft_dnnl INTERFACE "${DNNL_LIBRARY}")
target_include_directories(weft_dnnl SYSTEM INTERFACE "${DNNL_INCLUDE_DIR}")

foreach(row
    "policy;block"
    "policy;class"
    "policy;size"
    "policy;whole"
    "strategy;single"
    "strategy;ddp"
    "strategy;fsdp"
    "strategy;mp"
    "optimizer;sgd"
    "optimizer;adamw"
    "optimizer;anyprecision"
    "data;text;PkgConfig::JANSSON"
    "data;instruct;PkgConfig::JANSSON"
    "tokenizer;bpe;weft_jinja;PkgConfig::JANSSON;PkgConfig::PCRE2;PkgConfig::UTF8PROC"
    "device;cpu;weft_dnnl;OpenMP::OpenMP_C"
    "comm;self"
    "adapter;lora;PkgConfig::JANSSON;PkgConfig::PCRE2"
    "adapter;ia3;PkgConfig::JANSSON;PkgConfig::PCRE2"
    "adapter;prefix;PkgConfig::JANSSON"
    "adapter;llama-adapter;PkgConfig::JANSSON"
    "adapter;mlp-head;PkgConfig::JANSSON")
  list(GET row 0 kind)
  list(GET row 1 id)
  list(REMOVE_AT row 0 1)
  file(GLOB found CONFIGURE_DEPENDS plugins/${kind}/${id}/*.c)
  if(found)
    weft_add_builtin(${kind} ${id} ${row})
  endif()
endforeach()
# A plugin for each family of models that the decoder computes; the rows are in families.c.
foreach(family llama mistral qwen2 qwen3 smollm3 olmo2 gemma gemma2 gemma3_text phi3)
  weft_add_builtin(model ${family} FROM decoder PkgConfig::JANSSON)
  target_compile_definitions(weft-model-${family} PRIVATE DECODER_FAMILY="${family}")
endforeach()
# What the data plugins share.
file(GLOB data_common CONFIGURE_DEPENDS plugins/data/common/*.c)
target_sources(weft-data-text PRIVATE ${data_common})
target_sources(weft-data-instruct PRIVATE ${data_common})
# Chat templates, for every tokenizer.
file(GLOB tokenizer_common CONFIGURE_DEPENDS plugins/tokenizer/common/*.c)
target_sources(weft-tokenizer-bpe PRIVATE ${tokenizer_common})
# What adapters share.
set(adapter_targets plugins/adapter/common/targets.c plugins/adapter/common/expression.c)
target_sources(weft-adapter-lora PRIVATE ${adapter_targets} plugins/adapter/common/source.c)
target_sources(weft-adapter-ia3 PRIVATE ${adapter_targets} plugins/adapter/common/source.c)
target_sources(weft-adapter-prefix PRIVATE plugins/adapter/common/source.c)
target_sources(weft-adapter-llama-adapter PRIVATE plugins/adapter/common/source.c)
target_sources(weft-adapter-mlp-head PRIVATE plugins/adapter/common/source.c)
# What devices share.
file(GLOB device_common CONFIGURE_DEPENDS plugins/device/common/*.c)
target_sources(weft-device-cpu PRIVATE ${device_common})
if(WEFT_DNNL_ROOT)
  get_filename_component(dnnl_directory "${DNNL_LIBRARY}" DIRECTORY)
  set_target_properties(weft-device-cpu PROPERTIES INSTALL_RPATH "${dnnl_directory}")
endif()

# comm/mpi, once per MPI that is found: their binary interfaces differ, so each is a plugin of its own, mpi-<id>. A wrapper
# compiler says what to include and to link; the launcher lies beside it.
#   weft_add_mpi(<id> <name> <a macro of its mpi.h> <launcher's options> <what a started process has> <compiler>...)
function(weft_add_mpi id name macro options launched)
  string(TOUPPER "WEFT_${id}_CC" variable)
  find_program(${variable} NAMES ${ARGN} DOC "${name}'s mpicc; NO: no plugin mpi-${id}")
  set(compiler "${${variable}}")
  if(NOT compiler)
    message(STATUS "${name} was not found (${ARGN}): no plugin mpi-${id}")
    return()
  endif()
  execute_process(COMMAND "${compiler}" -show OUTPUT_VARIABLE shown ERROR_QUIET)
  separate_arguments(words UNIX_COMMAND "${shown}")
  set(includes ${words})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  set(links ${words})
  list(FILTER links INCLUDE REGEX "^-(L|l|Wl,)")
  set(directories ${links})
  list(FILTER directories INCLUDE REGEX "^-L")
  list(TRANSFORM directories REPLACE "^-L" "")
  list(REMOVE_ITEM directories ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  get_filename_component(where "${compiler}" DIRECTORY)
  get_filename_component(launcher_name "${compiler}" NAME)
  string(REPLACE mpicc mpiexec launcher_name "${launcher_name}")
  find_program(launcher NAMES ${launcher_name} PATHS "${where}" NO_DEFAULT_PATH NO_CACHE)
  find_file(header NAMES mpi.h PATHS ${includes} NO_DEFAULT_PATH NO_CACHE)
  set(mine)
  if(header)
    file(STRINGS "${header}" mine REGEX "^#define ${macro} " LIMIT_COUNT 1)
  endif()
  if(NOT mine AND launcher_name STREQUAL mpiexec)
    message(STATUS "${compiler} is not ${name}'s: no plugin mpi-${id}")
    return()
  elseif(NOT launcher OR NOT mine)
    message(FATAL_ERROR "${compiler} is not ${name}'s: `-show` must name the directory of an mpi.h that defines "
                        "${macro}, and ${launcher_name} must lie beside it. Set ${variable} to ${name}'s mpicc, or to "
                        "NO for a build without it.")
  endif()
  add_library(weft_mpi_${id} INTERFACE)
  target_include_directories(weft_mpi_${id} SYSTEM INTERFACE ${includes})
  target_link_libraries(weft_mpi_${id} INTERFACE ${links})
  target_compile_definitions(weft_mpi_${id} INTERFACE RANKS_ID="mpi-${id}" RANKS_NAME="${name}"
    RANKS_LAUNCHER="${launcher}" RANKS_LAUNCH="${launcher} ${options}-n {ranks}" RANKS_LAUNCHED="${launched}")
  weft_add_builtin(comm mpi-${id} FROM mpi weft_mpi_${id})
  target_sources(weft-comm-mpi-${id} PRIVATE plugins/comm/common/asked.c)
  set_target_properties(weft-comm-mpi-${id} PROPERTIES INSTALL_RPATH "${directories}" BUILD_WITH_INSTALL_RPATH TRUE)
endfunction()

# Open MPI refuses to start as root and to start more ranks than cores; it ties a rank with all its threads to one core; it
# copies from one process's memory to another's by a call that containers forbid; and it has twenty lines to say where a
# rank that ends has one.
weft_add_mpi(mpich "MPICH" MPICH_VERSION "" "PMI_RANK PMI_SIZE" mpicc.mpich mpicc)
weft_add_mpi(openmpi "Open MPI" OMPI_MAJOR_VERSION
  "-quiet --allow-run-as-root --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none "
  "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_RANK SLURM_STEP_NUM_TASKS" mpicc.openmpi mpicc)

include(plugins/cuda.cmake)
