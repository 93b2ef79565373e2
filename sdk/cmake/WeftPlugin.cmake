# weft_add_plugin(<kind> <id> SOURCES file... [LIBRARIES library...])
#
# Builds weft-<kind>-<id>.so from C or C++ files the way every plugin is built, in this tree and out of it: the SDK's
# headers, optimised without the freedoms that change numbers, and nothing visible but the two exports. The target has
# the file's name without its end, and is installed where Weft of the same prefix finds it.
set(WEFT_PLUGIN_MAP "${CMAKE_CURRENT_LIST_DIR}/weft-plugin.map")

function(weft_add_plugin kind id)
  cmake_parse_arguments(PARSE_ARGV 2 plugin "" "" "SOURCES;LIBRARIES")
  if(NOT plugin_SOURCES OR plugin_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_add_plugin(<kind> <id> SOURCES file... [LIBRARIES library...])")
  endif()
  set(target weft-${kind}-${id})
  add_library(${target} MODULE ${plugin_SOURCES})
  target_link_libraries(${target} PRIVATE Weft::sdk ${plugin_LIBRARIES} m)
  target_compile_options(${target} PRIVATE
    $<$<NOT:$<CONFIG:Debug>>:-O3> -fno-math-errno -ffp-contract=off -fvisibility=hidden)
  target_link_options(${target} PRIVATE
    "-Wl,--version-script=${WEFT_PLUGIN_MAP}" -Wl,--no-undefined -Wl,-z,nodelete)
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so" POSITION_INDEPENDENT_CODE ON
                        LINK_DEPENDS "${WEFT_PLUGIN_MAP}")
  if(WEFT_PLUGIN_SUBDIRECTORY) # out of the tree; Weft's own say themselves where they go
    install(TARGETS ${target} LIBRARY DESTINATION ${WEFT_PLUGIN_SUBDIRECTORY})
  endif()
endfunction()
