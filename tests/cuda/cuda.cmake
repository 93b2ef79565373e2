# The CUDA emulator (README.md): its library, and the plugins built against it. Included by tests/CMakeLists.txt, which
# enables C++.
file(GLOB emulator_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/emulator/*.cpp)
set(WEFT_EMULATOR_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/include)
set(emulator_warnings -Wall -Wextra -Werror -Wno-unknown-pragmas)
# Device code reads floats through vector types, so strict aliasing is off. A misaligned access is an error, as on the
# GPU.
set(emulator_device_code -std=c++17 -O2 -fno-strict-aliasing -ffp-contract=off -fno-math-errno)
set(emulator_sanitizers)
if(NOT WEFT_SANITIZE)
  list(APPEND emulator_device_code -fsanitize=alignment -fsanitize-undefined-trap-on-error)
else()
  set(emulator_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
endif()

# NVRTC's built-in functions: an empty library, which the emulator requires to be loaded.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/emulator/module.h module_version REGEX "MODULE_VERSION = ")
string(REGEX REPLACE ".*MODULE_VERSION = ([0-9]+).*" "\\1" module_version "${module_version}")
math(EXPR nvrtc_minor "900 + ${module_version}")
file(WRITE ${CMAKE_BINARY_DIR}/tests/cuda/builtins.c "extern const int weft_no_builtins;\nconst int weft_no_builtins = 0;\n")
add_library(weft-nvrtc-builtins SHARED ${CMAKE_BINARY_DIR}/tests/cuda/builtins.c)
set_target_properties(weft-nvrtc-builtins PROPERTIES OUTPUT_NAME nvrtc-builtins SOVERSION 13.${nvrtc_minor}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)

add_library(weft-cuda-emulator SHARED ${emulator_sources})
add_dependencies(weft-cuda-emulator weft-nvrtc-builtins)
target_include_directories(weft-cuda-emulator PUBLIC ${WEFT_EMULATOR_INCLUDE})
target_compile_features(weft-cuda-emulator PRIVATE cxx_std_17)
target_compile_definitions(weft-cuda-emulator PRIVATE EMULATOR_CXX="${CMAKE_CXX_COMPILER}" EMULATOR_NVRTC_MINOR="${nvrtc_minor}"
                           EMULATOR_INCLUDE="${WEFT_EMULATOR_INCLUDE}")
target_compile_options(weft-cuda-emulator PRIVATE ${emulator_warnings} -Wno-maybe-uninitialized -Wconversion -Wshadow -fvisibility=hidden -ffp-contract=off
                       -fno-math-errno ${emulator_sanitizers})
target_link_options(weft-cuda-emulator PRIVATE ${emulator_sanitizers} -Wl,-z,nodelete)
target_link_libraries(weft-cuda-emulator PRIVATE pthread ${CMAKE_DL_LIBS})
set_target_properties(weft-cuda-emulator PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)

# libcudnn.so.9, which the device loads by that name: its functions are the emulator's.
add_library(weft-cudnn-emulator SHARED ${CMAKE_CURRENT_LIST_DIR}/libcudnn.c)
target_link_options(weft-cudnn-emulator PRIVATE -Wl,--no-as-needed ${emulator_sanitizers})
target_link_libraries(weft-cudnn-emulator PRIVATE weft-cuda-emulator)
set_target_properties(weft-cudnn-emulator PROPERTIES OUTPUT_NAME cudnn SOVERSION 9
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)

# Device sources, compiled as C++ by the host's compiler, for a target that links the emulator.
function(weft_emulator_sources target)
  foreach(source ${ARGN})
    if(source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
    endif()
  endforeach()
  get_target_property(there ${target} SOURCES)
  foreach(source ${ARGN})
    if(NOT source IN_LIST there)
      target_sources(${target} PRIVATE ${source})
    endif()
  endforeach()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${emulator_device_code}>"
    "$<$<COMPILE_LANGUAGE:CXX>:${emulator_warnings};${emulator_sanitizers}>")
  target_link_libraries(${target} PRIVATE weft-cuda-emulator)
endfunction()

# The plugin's own sources, unchanged, against the emulator: <directory>/weft-<kind>-<id>.so, target
# weft-<kind>-<id>-<form>.
function(weft_add_form kind id form directory)
  set(target weft-${kind}-${id}-${form})
  weft_add_plugin(${kind} ${id}-${form} SOURCES ${ARGN} LIBRARIES weft_flags_c)
  weft_emulator_sources(${target} ${ARGN})
  target_include_directories(${target} BEFORE PRIVATE ${WEFT_EMULATOR_INCLUDE})
  target_compile_definitions(${target} PRIVATE CUDA_HAS_CUDNN)
  add_dependencies(${target} weft-cudnn-emulator)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME weft-${kind}-${id} LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

#   weft_add_emulator(<kind> <id> source...)      into build/tests/cuda
function(weft_add_emulator kind id)
  weft_add_form(${kind} ${id} emulator ${CMAKE_BINARY_DIR}/tests/cuda ${ARGN})
endfunction()

#   weft_add_counted(<kind> <id> source...) into build/tests/cuda/counted
# Same with a call at each load and store of device code, which emulator/bytes.cpp counts.
function(weft_add_counted kind id)
  weft_add_form(${kind} ${id} counted ${CMAKE_BINARY_DIR}/tests/cuda/counted ${ARGN})
  target_compile_options(weft-${kind}-${id}-counted PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0>")
endfunction()

# The host's flags, for C only; device code has its own.
add_library(weft_flags_c INTERFACE)
target_compile_definitions(weft_flags_c INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags_c INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Werror;-ffp-contract=off;-fno-math-errno>"
  "$<$<COMPILE_LANGUAGE:C>:${emulator_sanitizers}>")
target_link_options(weft_flags_c INTERFACE ${emulator_sanitizers})
