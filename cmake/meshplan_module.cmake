# SPDX-License-Identifier: Apache-2.0
# One CMake target per module; the order of the layers is written here and nowhere else.
set(MESHPLAN_LAYERS lib graph cost_model plan search)  # low to high

add_library(meshplan_warnings INTERFACE)
target_compile_options(
  meshplan_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
            -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch-enum -Wextra-semi
            # the same sums on every machine: no fused multiply-add
            -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # false alarms on std::string in optimised builds (GCC bug 105651)
  target_compile_options(meshplan_warnings INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND MESHPLAN_SANITIZE)
  # false alarms on std::regex and std::function under the sanitizers (GCC manual, -Wmaybe-uninitialized)
  target_compile_options(meshplan_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
if(MESHPLAN_WARNINGS_AS_ERRORS)
  target_compile_options(meshplan_warnings INTERFACE -Werror)
endif()
if(MESHPLAN_SANITIZE)
  # null, alignment, object-size and vptr checks double the time of compilation and find nothing
  # that AddressSanitizer does not stop at as well; marking the scopes of locals takes another
  # quarter, and what outlives its scope here is memory of strings and vectors, which is watched
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,alignment,object-size,vptr
                      -fno-sanitize-address-use-after-scope -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(MESHPLAN_FUZZ)
  # counts what an input reaches; a broken invariant aborts, so that its input is kept
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_compile_definitions(MESHPLAN_FUZZ=1)
endif()
if(MESHPLAN_AUDITS)
  add_compile_definitions(MESHPLAN_AUDITS=1)
endif()

# meshplan_unity(target): with MESHPLAN_UNITY its sources are compiled six at a time, so what they all
# include is parsed once. Names in their anonymous namespaces must differ (tests: a namespace per file).
function(meshplan_unity target)
  if(MESHPLAN_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# meshplan_module(name [DEPENDS lower modules...] [EXTERNAL third-party targets...])
# Every .cpp below the folder belongs to the module. Its headers are included as "name/header.h";
# an include root of its own makes an undeclared "search/..." fail to compile.
function(meshplan_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;EXTERNAL" ${ARGN})
  list(FIND MESHPLAN_LAYERS ${name} rank)
  foreach(dep IN LISTS ARG_DEPENDS)
    list(FIND MESHPLAN_LAYERS ${dep} dep_rank)
    if(dep_rank EQUAL -1 OR dep_rank GREATER_EQUAL rank)
      message(FATAL_ERROR "layering: '${name}' may not depend on '${dep}'")
    endif()
  endforeach()
  set(root ${CMAKE_BINARY_DIR}/include_roots/${name})  # holds one link: <root>/<name> -> the folder
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${root}/${name} SYMBOLIC)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.h)
  add_library(meshplan_${name} STATIC ${sources})
  add_library(meshplan::${name} ALIAS meshplan_${name})
  target_sources(meshplan_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  # the file set would put the whole source tree on the include path; only the module's root may be there
  set_target_properties(meshplan_${name} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "" INCLUDE_DIRECTORIES "")
  target_include_directories(meshplan_${name} PUBLIC $<BUILD_INTERFACE:${root}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/meshplan>)
  target_compile_features(meshplan_${name} PUBLIC cxx_std_20)
  list(TRANSFORM ARG_DEPENDS PREPEND meshplan::)
  # libraries of headers only are none of a user's business: no header of ours includes them
  list(TRANSFORM ARG_EXTERNAL REPLACE "(nlohmann_json::.*|Eigen3::.*)" "$<BUILD_INTERFACE:\\1>")
  target_link_libraries(meshplan_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_EXTERNAL} $<BUILD_INTERFACE:meshplan_warnings>)
endfunction()
