# The CUDA double (README.md): its library, and plugins that are built against it. Included by tests/CMakeLists.txt, where
# C++ is on.
file(GLOB double_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/double/*.cpp)
set(WEFT_DOUBLE_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/include)
set(double_warnings -Wall -Wextra -Werror -Wno-unknown-pragmas)
# Vector types are read where floats were written, and at the wrong alignment that is an error, as on the card.
set(double_device_code -std=c++17 -O2 -fno-strict-aliasing -ffp-contract=off -fno-math-errno)
set(double_sanitizers)
if(NOT WEFT_SANITIZE)
  list(APPEND double_device_code -fsanitize=alignment -fsanitize-undefined-trap-on-error)
else()
  set(double_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
endif()

add_library(weft-cuda-double SHARED ${double_sources})
target_include_directories(weft-cuda-double PUBLIC ${WEFT_DOUBLE_INCLUDE})
target_compile_features(weft-cuda-double PRIVATE cxx_std_17)
target_compile_definitions(weft-cuda-double PRIVATE DOUBLE_CXX="${CMAKE_CXX_COMPILER}"
                           DOUBLE_INCLUDE="${WEFT_DOUBLE_INCLUDE}")
target_compile_options(weft-cuda-double PRIVATE ${double_warnings} -Wno-maybe-uninitialized -Wconversion -Wshadow -fvisibility=hidden -ffp-contract=off
                       -fno-math-errno ${double_sanitizers})
target_link_options(weft-cuda-double PRIVATE ${double_sanitizers} -Wl,-z,nodelete)
target_link_libraries(weft-cuda-double PRIVATE pthread ${CMAKE_DL_LIBS})
set_target_properties(weft-cuda-double PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)

# libcudnn.so.9, which the device loads by that name: it has its functions of the double.
add_library(weft-cudnn-double SHARED ${CMAKE_CURRENT_LIST_DIR}/libcudnn.c)
target_link_options(weft-cudnn-double PRIVATE -Wl,--no-as-needed ${double_sanitizers})
target_link_libraries(weft-cudnn-double PRIVATE weft-cuda-double)
set_target_properties(weft-cudnn-double PROPERTIES OUTPUT_NAME cudnn SOVERSION 9
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda)

# Sources of device code, to be compiled as C++ by the host's compiler, of a target that links the double.
function(weft_double_sources target)
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
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${double_device_code}>"
    "$<$<COMPILE_LANGUAGE:CXX>:${double_warnings};${double_sanitizers}>")
  target_link_libraries(${target} PRIVATE weft-cuda-double)
endfunction()

# The plugin's own sources, unchanged, against the double: <directory>/weft-<kind>-<id>.so, target weft-<kind>-<id>-<form>.
function(weft_add_form kind id form directory)
  set(target weft-${kind}-${id}-${form})
  weft_add_plugin(${kind} ${id}-${form} SOURCES ${ARGN} LIBRARIES weft_flags_c)
  weft_double_sources(${target} ${ARGN})
  target_include_directories(${target} BEFORE PRIVATE ${WEFT_DOUBLE_INCLUDE})
  target_compile_definitions(${target} PRIVATE CUDA_HAS_CUDNN)
  add_dependencies(${target} weft-cudnn-double)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME weft-${kind}-${id} LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

#   weft_add_double(<kind> <id> source...)      into build/tests/cuda
function(weft_add_double kind id)
  weft_add_form(${kind} ${id} double ${CMAKE_BINARY_DIR}/tests/cuda ${ARGN})
endfunction()

#   weft_add_counted(<kind> <id> source...)     into build/tests/cuda/counted
# The same with a call at each load and store of device code, which double/bytes.cpp counts.
function(weft_add_counted kind id)
  weft_add_form(${kind} ${id} counted ${CMAKE_BINARY_DIR}/tests/cuda/counted ${ARGN})
  target_compile_options(weft-${kind}-${id}-counted PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0>")
endfunction()

# The host's flags, for C alone: device code has its own.
add_library(weft_flags_c INTERFACE)
target_compile_definitions(weft_flags_c INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags_c INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Werror;-ffp-contract=off;-fno-math-errno>"
  "$<$<COMPILE_LANGUAGE:C>:${double_sanitizers}>")
target_link_options(weft_flags_c INTERFACE ${double_sanitizers})
