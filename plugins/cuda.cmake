# The CUDA device, where a toolkit is found: the system's, or the one that `configs/packages.sh cuda` has put into the
# build tree. Without one all else is built as ever. Included by plugins.cmake.
#
# Device code is compiled by nvcc in commands of its own rather than as a language of CMake's, which would have to be
# enabled for a whole project: a machine without nvcc, or one that compiles for a double of CUDA, has none.
option(WEFT_CUDA "Build the CUDA device where a toolkit (12.4 to 13) is found" ON)
set(WEFT_CUDA_ROOT "" CACHE PATH "A toolkit with bin/nvcc, include/ and lib/; empty: the system's, or the build tree's")
set(WEFT_CUDA_ARCHITECTURES 80 89 90 CACHE STRING "Compute capabilities that device code is compiled for; PTX for the last one")

set(WEFT_CUDA_FLAGS "" CACHE STRING "More of nvcc's options: -lineinfo names lines of the source to profilers, and takes 20 MB")

# What is missing goes to `missing`. Sets CUDA_NVCC, CUDA_INCLUDES, CUDA_RUNTIME, CUDA_RTC (which tests link) and
# CUDA_LIBRARY_DIRECTORIES.
macro(weft_find_cuda missing)
  set(installed "${CMAKE_BINARY_DIR}/cuda/nvidia")
  file(GLOB parts LIST_DIRECTORIES true "${installed}/*")
  file(GLOB base LIST_DIRECTORIES true "${installed}/cu1*")
  if(WEFT_CUDA_ROOT)
    find_program(CUDA_NVCC nvcc PATHS "${WEFT_CUDA_ROOT}" PATH_SUFFIXES bin NO_DEFAULT_PATH NO_CACHE)
  else()
    find_program(CUDA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda ${base} PATH_SUFFIXES bin NO_CACHE)
  endif()
  set(${missing})
  if(NOT CUDA_NVCC)
    set(${missing} nvcc)
  else()
    get_filename_component(home "${CUDA_NVCC}" REALPATH)
    get_filename_component(home "${home}" DIRECTORY)
    get_filename_component(home "${home}" DIRECTORY)
    set(CUDA_INCLUDES)
    foreach(header cuda_runtime.h cublasLt.h nvrtc.h cudnn_graph.h)
      find_path(where_${header} ${header} PATHS "${home}" ${base} ${parts} /usr PATH_SUFFIXES include NO_DEFAULT_PATH NO_CACHE)
      if(where_${header})
        list(APPEND CUDA_INCLUDES "${where_${header}}")
      else()
        list(APPEND ${missing} ${header})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES CUDA_INCLUDES)
    find_library(CUDA_RUNTIME libcudart_static.a PATHS "${home}" ${base} ${parts} /usr PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu
                 NO_DEFAULT_PATH NO_CACHE)
    if(NOT CUDA_RUNTIME)
      list(APPEND ${missing} libcudart_static.a)
    endif()
    find_library(CUDA_RTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 PATHS "${home}" ${base} ${parts} /usr
                 PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu NO_DEFAULT_PATH NO_CACHE)
    if(NOT CUDA_RTC)
      list(APPEND ${missing} libnvrtc.so)
    endif()
    set(CUDA_LIBRARY_DIRECTORIES)
    foreach(place "${home}" ${base} ${parts})
      foreach(directory lib64 lib)
        if(EXISTS "${place}/${directory}")
          list(APPEND CUDA_LIBRARY_DIRECTORIES "${place}/${directory}")
          break()
        endif()
      endforeach()
    endforeach()
    list(REMOVE_DUPLICATES CUDA_LIBRARY_DIRECTORIES)
  endif()
endmacro()

# Adds the objects of .cu files to `out`. The host code in them is what nvcc writes around launches, of one thread and
# without a C++ library. What ptxas says of each kernel, its registers and what it spills, is kept
# beside the object as NAME.ptxas.
#   weft_compile_cuda(<out> <directory> <file>...)
function(weft_compile_cuda out directory)
  set(objects)
  set(flags -std=c++17 -O3 --expt-relaxed-constexpr -Werror all-warnings -Xptxas -v -Xfatbin -compress-all ${WEFT_CUDA_FLAGS}
      -Xcompiler -Wall,-Wextra,-Werror,-fPIC,-fvisibility=hidden,-ffp-contract=off,-fno-exceptions,-fno-threadsafe-statics)
  foreach(architecture ${WEFT_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
    set(last ${architecture})
  endforeach()
  list(APPEND flags -gencode arch=compute_${last},code=compute_${last} -I "${WEFT_SDK_INCLUDE}")
  foreach(include ${CUDA_INCLUDES})
    list(APPEND flags -isystem "${include}")
  endforeach()
  foreach(source ${ARGN})
    get_filename_component(name "${source}" NAME_WE)
    set(object "${directory}/${name}.o")
    set(exact)
    if(name IN_LIST CUDA_EXACT)
      set(exact -fmad=false)
    endif()
    add_custom_command(OUTPUT "${object}" BYPRODUCTS "${directory}/${name}.ptxas" DEPFILE "${object}.d" DEPENDS "${source}" VERBATIM
      COMMAND sh "${CMAKE_SOURCE_DIR}/plugins/nvcc.sh" "${directory}/${name}.ptxas" ${CMAKE_CUDA_COMPILER_LAUNCHER}
              "${CUDA_NVCC}" ${flags} ${exact} -MD -MF "${object}.d" -c "${source}" -o "${object}"
      COMMENT "Compiling ${name}.cu for the GPU")
    list(APPEND objects "${object}")
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# In these no product is joined with a sum unless it is written so: what they give is defined to the bit, or added to what
# was there as it is.
set(CUDA_EXACT activation add clip convert embedding factors head norm rope row_sums scale square_sum)

if(NOT WEFT_CUDA)
  message(STATUS "WEFT_CUDA is OFF: no CUDA device")
elseif(WEFT_SANITIZE)
  message(STATUS "Sanitizers do not follow device code: no CUDA device for a card")
else()
  weft_find_cuda(cuda_missing)
  if(cuda_missing)
    list(JOIN cuda_missing ", " cuda_missing)
    message(STATUS "CUDA was not found (${cuda_missing}): no CUDA device. `configs/packages.sh cuda` installs what it is "
                   "built with.")
  else()
    message(STATUS "CUDA device: ${CUDA_NVCC}")
    file(GLOB cuda_sources CONFIGURE_DEPENDS plugins/device/cuda/*.cu)
    set(cuda_directory "${CMAKE_BINARY_DIR}/cuda-objects")
    file(MAKE_DIRECTORY "${cuda_directory}")
    weft_compile_cuda(cuda_objects "${cuda_directory}" ${cuda_sources})
    add_library(weft_cuda INTERFACE)
    target_include_directories(weft_cuda SYSTEM INTERFACE ${CUDA_INCLUDES})
    target_compile_definitions(weft_cuda INTERFACE CUDA_HAS_CUDNN) # attention_graph.h
    target_link_libraries(weft_cuda INTERFACE ${cuda_objects} "${CUDA_RUNTIME}" PkgConfig::CRYPTO ${CMAKE_DL_LIBS} rt pthread)
    add_custom_target(weft_cuda_objects DEPENDS ${cuda_objects})
    weft_add_builtin(device cuda weft_cuda)
    target_sources(weft-device-cuda PRIVATE ${device_common})
    add_dependencies(weft-device-cuda weft_cuda_objects)
    set_target_properties(weft-device-cuda PROPERTIES INSTALL_RPATH "${CUDA_LIBRARY_DIRECTORIES}" BUILD_WITH_INSTALL_RPATH TRUE
                          LINK_DEPENDS "${WEFT_PLUGIN_MAP};${cuda_objects}")
    # Communicator nccl needs NCCL beside the toolkit; what it is linked with is found again where it was.
    find_path(nccl_header nccl.h PATHS ${CUDA_INCLUDES} ${parts} /usr PATH_SUFFIXES include NO_DEFAULT_PATH NO_CACHE)
    find_library(nccl_library NAMES nccl libnccl.so.2 PATHS ${CUDA_LIBRARY_DIRECTORIES} ${parts} /usr /usr/local
                 PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu NO_DEFAULT_PATH NO_CACHE)
    if(nccl_header AND nccl_library)
      add_library(weft_nccl INTERFACE)
      target_include_directories(weft_nccl SYSTEM INTERFACE ${CUDA_INCLUDES} "${nccl_header}")
      target_link_libraries(weft_nccl INTERFACE "${nccl_library}" pthread)
      weft_add_builtin(comm nccl weft_nccl)
      target_sources(weft-comm-nccl PRIVATE plugins/comm/common/asked.c)
      get_filename_component(nccl_directory "${nccl_library}" DIRECTORY)
      set_target_properties(weft-comm-nccl PROPERTIES INSTALL_RPATH "${nccl_directory}" BUILD_WITH_INSTALL_RPATH TRUE)
    else()
      message(STATUS "NCCL was not found: no communicator nccl")
    endif()
  endif()
endif()
