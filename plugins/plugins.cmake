# The built-in plugins and what each one links. Included by the top CMakeLists.txt.
find_library(DNNL_LIBRARY NAMES dnnl REQUIRED)
foreach(row
    "model;llama;PkgConfig::JANSSON"
    "policy;block"
    "strategy;single"
    "optimizer;sgd"
    "optimizer;adamw"
    "data;text;PkgConfig::JANSSON"
    "tokenizer;bpe;PkgConfig::JANSSON;PkgConfig::PCRE2;PkgConfig::UTF8PROC"
    "device;cpu;${DNNL_LIBRARY};OpenMP::OpenMP_C"
    "comm;self")
  list(GET row 0 kind)
  list(GET row 1 id)
  list(REMOVE_AT row 0 1)
  file(GLOB found CONFIGURE_DEPENDS plugins/${kind}/${id}/*.c)
  if(found)
    weft_add_builtin(${kind} ${id} ${row})
  endif()
endforeach()
