# SPDX-License-Identifier: Apache-2.0
# The program, what it reads (configs), and a CMake package for those who use the libraries:
#   find_package(meshplan REQUIRED)
#   target_link_libraries(mine PRIVATE meshplan::search)
include(CMakePackageConfigHelpers)

install(TARGETS meshplan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/meshplan FILES_MATCHING PATTERN "*.json")
install(DIRECTORY schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/meshplan FILES_MATCHING PATTERN "*.json")
set(written ${PROJECT_BINARY_DIR}/apps/written)
install(FILES ${written}/meshplan.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${written}/meshplan DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${written}/_meshplan DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${written}/meshplan.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

foreach(module IN LISTS MESHPLAN_LAYERS)
  set_target_properties(meshplan_${module} PROPERTIES EXPORT_NAME ${module})
  install(TARGETS meshplan_${module} EXPORT meshplanTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/meshplan)
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/meshplan)
install(EXPORT meshplanTargets NAMESPACE meshplan:: DESTINATION ${package_folder})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/meshplanConfig.cmake.in ${PROJECT_BINARY_DIR}/meshplanConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/meshplanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/meshplanConfig.cmake ${PROJECT_BINARY_DIR}/meshplanConfigVersion.cmake
        DESTINATION ${package_folder})
