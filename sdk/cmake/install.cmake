# What an out-of-tree plugin builds against: headers, the CMake package Weft, weft.pc and the templates; and what says of two
# sets of headers what breaks between them. All of it finds its files relative to itself, so that the installed tree may be
# moved.
include(CMakePackageConfigHelpers)
set(WEFT_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Weft")
set(WEFT_PC_DIR "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH WEFT_PC_TO_PREFIX "/${WEFT_PC_DIR}" "/")
string(REGEX REPLACE "/$" "" WEFT_PC_TO_PREFIX "${WEFT_PC_TO_PREFIX}")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/WeftConfig.cmake.in ${CMAKE_BINARY_DIR}/sdk/WeftConfig.cmake
  INSTALL_DESTINATION ${WEFT_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR WEFT_PLUGIN_DIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sdk/WeftConfigVersion.cmake COMPATIBILITY SameMajorVersion)
set(WEFT_PC_PREFIX "\${pcfiledir}/${WEFT_PC_TO_PREFIX}")
set(WEFT_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
set(WEFT_PC_PLUGINDIR "\${prefix}/${WEFT_PLUGIN_DIR}")
set(WEFT_PC_MAP "\${prefix}/${WEFT_CMAKE_DIR}/weft-plugin.map")
configure_file(${CMAKE_CURRENT_LIST_DIR}/weft.pc.in ${CMAKE_BINARY_DIR}/sdk/weft.pc @ONLY)
# The same of the build tree, beside its program, for what `weft plugins new` of that program writes.
set(WEFT_PC_PREFIX "${CMAKE_BINARY_DIR}")
set(WEFT_PC_INCLUDEDIR "${WEFT_SDK_INCLUDE}")
set(WEFT_PC_PLUGINDIR "\${prefix}/plugins")
set(WEFT_PC_MAP "${CMAKE_CURRENT_LIST_DIR}/weft-plugin.map")
configure_file(${CMAKE_CURRENT_LIST_DIR}/weft.pc.in ${CMAKE_BINARY_DIR}/share/pkgconfig/weft.pc @ONLY)

install(FILES ${CMAKE_BINARY_DIR}/sdk/WeftConfig.cmake ${CMAKE_BINARY_DIR}/sdk/WeftConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/WeftPlugin.cmake ${CMAKE_CURRENT_LIST_DIR}/weft-plugin.map
        DESTINATION ${WEFT_CMAKE_DIR})
install(FILES ${CMAKE_BINARY_DIR}/sdk/weft.pc DESTINATION ${WEFT_PC_DIR})
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/sdk/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/sdk/template/ DESTINATION ${WEFT_TEMPLATE_DIR})
set(WEFT_ARCHIVE ${CMAKE_CURRENT_SOURCE_DIR}/tests/archive)
install(FILES ${WEFT_ARCHIVE}/compare.sh ${WEFT_ARCHIVE}/measure.sh ${WEFT_ARCHIVE}/read_headers.awk
        DESTINATION ${WEFT_SHARE_DIR}/abi)
install(FILES ${WEFT_ARCHIVE}/sdk-1.0/measured.txt DESTINATION ${WEFT_SHARE_DIR}/abi RENAME sdk-1.0.txt)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/configs DESTINATION ${WEFT_SHARE_DIR} USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE PATTERN *.so EXCLUDE
        PATTERN build.sh EXCLUDE PATTERN quickstart.sh EXCLUDE PATTERN bundle.sh EXCLUDE) # they build the source tree
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Pages lead to templates and examples, which lie elsewhere when installed, and examples to pages.
file(RELATIVE_PATH WEFT_DOC_TO_TEMPLATE "/${CMAKE_INSTALL_DOCDIR}" "/${WEFT_TEMPLATE_DIR}")
file(RELATIVE_PATH WEFT_DOC_TO_CONFIGS "/${CMAKE_INSTALL_DOCDIR}" "/${WEFT_SHARE_DIR}/configs")
file(RELATIVE_PATH WEFT_CONFIGS_TO_DOC "/${WEFT_SHARE_DIR}/configs" "/${CMAKE_INSTALL_DOCDIR}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/links.cmake.in ${CMAKE_BINARY_DIR}/sdk/links.cmake @ONLY)
install(SCRIPT ${CMAKE_BINARY_DIR}/sdk/links.cmake)
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
