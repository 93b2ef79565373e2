# The fuzz targets, for the ordinary build, which replays seeds/, and for that of clang's libFuzzer.
#   weft_add_fuzz_targets(<library or flags that each target links>...)
# weft_host, Weft::sdk, weft_flags and the libraries of the plugins are the caller's.
set(WEFT_FUZZ_HERE ${CMAKE_CURRENT_LIST_DIR})
set(WEFT_FUZZ_TARGETS ini safetensors safetensors_index config_json tokenizer_json tokenizer_text data_text manifest
                      preflight note)

# A plugin as a library of the program: its entry is weft_plugin_entry_<id>.
function(weft_fuzz_plugin kind id)
  file(GLOB sources CONFIGURE_DEPENDS ${WEFT_FUZZ_HERE}/../../plugins/${kind}/${id}/*.c)
  add_library(fuzz_plugin_${id} STATIC ${sources})
  target_compile_definitions(fuzz_plugin_${id} PRIVATE WEFT_STATIC=${id})
  target_compile_options(fuzz_plugin_${id} PRIVATE -fvisibility=hidden)
  target_link_libraries(fuzz_plugin_${id} PUBLIC Weft::sdk weft_flags ${ARGN} m)
endfunction()

function(weft_add_fuzz_targets)
  weft_fuzz_plugin(model llama PkgConfig::JANSSON)
  weft_fuzz_plugin(tokenizer bpe PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::UTF8PROC)
  weft_fuzz_plugin(data text PkgConfig::JANSSON)
  add_library(fuzz_common STATIC ${WEFT_FUZZ_HERE}/fuzz.c ${WEFT_FUZZ_HERE}/tokenizer.c)
  target_link_libraries(fuzz_common PUBLIC weft_host fuzz_plugin_bpe)
  add_executable(fuzz_broken_json ${WEFT_FUZZ_HERE}/broken_json.c)
  target_link_libraries(fuzz_broken_json PRIVATE fuzz_common fuzz_plugin_llama)
  foreach(target ${WEFT_FUZZ_TARGETS})
    add_executable(fuzz_${target} ${WEFT_FUZZ_HERE}/${target}.c)
    target_link_libraries(fuzz_${target} PRIVATE fuzz_common fuzz_plugin_llama fuzz_plugin_text ${ARGN})
  endforeach()
endfunction()
