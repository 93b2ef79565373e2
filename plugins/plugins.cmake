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
    "model;llama;PkgConfig::JANSSON"
    "policy;block"
    "strategy;single"
    "optimizer;sgd"
    "optimizer;adamw"
    "data;text;PkgConfig::JANSSON"
    "tokenizer;bpe;PkgConfig::JANSSON;PkgConfig::PCRE2;PkgConfig::UTF8PROC"
    "device;cpu;weft_dnnl;OpenMP::OpenMP_C"
    "comm;self")
  list(GET row 0 kind)
  list(GET row 1 id)
  list(REMOVE_AT row 0 1)
  file(GLOB found CONFIGURE_DEPENDS plugins/${kind}/${id}/*.c)
  if(found)
    weft_add_builtin(${kind} ${id} ${row})
  endif()
endforeach()
if(WEFT_DNNL_ROOT)
  get_filename_component(dnnl_directory "${DNNL_LIBRARY}" DIRECTORY)
  set_target_properties(weft-device-cpu PROPERTIES INSTALL_RPATH "${dnnl_directory}")
endif()
