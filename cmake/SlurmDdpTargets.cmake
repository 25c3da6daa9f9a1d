# SPDX-License-Identifier: Apache-2.0
# Settings of every target of the project: language level, warnings, hardening, output directories,
# and installation. A room adds itself with slurm_ddp_library, slurm_ddp_executable and
# slurm_ddp_unit_test; nothing else sets compiler flags.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A project that adds this one as a subdirectory chooses these for itself.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
endif()

find_package(Threads REQUIRED)

# Generated headers (the version) are included as "slurm_ddp/version.h".
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in"
               "${PROJECT_BINARY_DIR}/generated/slurm_ddp/version.h" @ONLY)

add_library(slurm_ddp_build_flags INTERFACE)
target_compile_options(slurm_ddp_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast
  -Wcast-qual -Wformat=2 -Wimplicit-fallthrough $<$<BOOL:${SLURM_DDP_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(slurm_ddp_build_flags INTERFACE -Wduplicated-cond -Wlogical-op)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # Warnings of the optimizer, which differ from release to release, about headers of libtorch and of the standard
    # library that were inlined.
    target_compile_options(slurm_ddp_build_flags INTERFACE
      -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow)
  endif()
endif()
if(SLURM_DDP_SANITIZE)
  # Sanitizers apply to every target, including the project's interface: mixing instrumented and
  # plain objects gives false reports.
  add_compile_options(-fsanitize=${SLURM_DDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLURM_DDP_SANITIZE})
  add_compile_definitions(SLURM_DDP_SANITIZED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Because of the sanitizers' code, GCC does not see which members are set, and warns about members that are set.
    target_compile_options(slurm_ddp_build_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Libraries loaded at run time, such as NVIDIA's, have types of their own.
    add_compile_options(-fno-sanitize=function)
  endif()
endif()

set_property(GLOBAL PROPERTY SLURM_DDP_EXPORTED "")

# slurm_ddp_library(<room> SOURCES ... [PUBLIC_HEADERS ...] [DEPS ...] [PRIVATE_DEPS ...] [INTERNAL] [COLD])
# Creates target slurm_ddp_<room> with alias slurm_ddp::<room>. Headers are included relative to the
# project's root ("base/errors.h"), both in the tree and in an installation. PUBLIC_HEADERS are
# installed: the headers meant for users' programs, and all headers that they include (tests/install/headers.bats names
# any missing header). INTERNAL rooms are not installed. COLD rooms run once or wait for others: -O1 saves a quarter of
# their compile time.
function(slurm_ddp_library room)
  cmake_parse_arguments(ARG "INTERNAL;COLD" "" "SOURCES;PUBLIC_HEADERS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target slurm_ddp_${room})
  add_library(${target} ${ARG_SOURCES})
  add_library(slurm_ddp::${room} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${room})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/slurm_ddp>)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS}
    $<BUILD_INTERFACE:slurm_ddp_build_flags>)
  if(ARG_COLD)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY SLURM_DDP_EXPORTED ${target})
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${ARG_PUBLIC_HEADERS})
  endif()
endfunction()

# slurm_ddp_executable(<name> SOURCES ... DEPS ...): build/bin/<name>, installed to bin/.
function(slurm_ddp_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} slurm_ddp_build_flags)
  install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
endfunction()

# slurm_ddp_test_program(<name> SOURCES ... DEPS ... [TORCH] [FULL]): build/tests/<name>, which tests start. Like most
# tests, it takes longer to compile than to run. TORCH: it includes torch. FULL: it is not needed by the gate, and
# only built if SLURM_DDP_TESTS is FULL.
function(slurm_ddp_test_program name)
  cmake_parse_arguments(ARG "TORCH;FULL" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} slurm_ddp_build_flags)
  if(ARG_TORCH)
    slurm_ddp_torch_test(${name})
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(ARG_FULL AND NOT SLURM_DDP_TESTS STREQUAL "FULL")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# slurm_ddp_unit_test(<name> SOURCES ... DEPS ... [LABELS ...] [SHARDS n] [OPTIMIZED] [TORCH]
#   [TOO_LONG_SANITIZED filter] [SINGLE_THREADED filter]): one
# GoogleTest executable, run as a whole or in n shards by ctest: a process for each case would take
# longer than the cases. Most tests take longer to compile than to run; OPTIMIZED is for the other tests.
# Labels: `torch` is added with TORCH; `threads` is for tests that the thread sanitizer should see. Targets with
# these tests: unit_tests (all but those for GPUs), torch_tests, threads_tests.
# Filters are GoogleTest's, without "-". Sanitizers leave out the cases of the first one, which take minutes there and do
# nothing that shorter cases do not do; the thread sanitizer also leaves out those of the second one.
add_custom_target(unit_tests)
add_custom_target(torch_tests)
add_custom_target(threads_tests)
function(slurm_ddp_unit_test name)
  cmake_parse_arguments(ARG "OPTIMIZED;TORCH" "SHARDS;TOO_LONG_SANITIZED;SINGLE_THREADED" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  if(SLURM_DDP_UNITY_TESTS)  # for tests/mutate, which changes no test
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main slurm_ddp_build_flags)
  target_compile_definitions(${name} PRIVATE SLURM_DDP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_TORCH)
    slurm_ddp_torch_test(${name})
    list(APPEND ARG_LABELS torch)
  elseif(ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT gpu IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${name})
  endif()
  foreach(group torch threads)
    if(group IN_LIST ARG_LABELS)
      add_dependencies(${group}_tests ${name})
    endif()
  endforeach()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  set(left_out "")
  if(SLURM_DDP_SANITIZE)
    list(APPEND left_out ${ARG_TOO_LONG_SANITIZED})
  endif()
  if(SLURM_DDP_SANITIZE MATCHES "thread")
    list(APPEND left_out ${ARG_SINGLE_THREADED})
  endif()
  set(filter "")
  if(left_out)
    list(JOIN left_out ":" left_out)
    set(filter ";GTEST_FILTER=-${left_out}")
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    set(test ${name})
    if(ARG_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES LABELS "unit;${ARG_LABELS}" TIMEOUT 600
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}${filter}")
  endforeach()
endfunction()

# The gate leaves out the rows of tables that are instantiated with the prefix "Full".
function(slurm_ddp_full_rows name)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=-Full/*")
  add_test(NAME ${name}.full COMMAND ${name} --gtest_filter=Full/*)
  set_tests_properties(${name}.full PROPERTIES LABELS "unit;torch;full" TIMEOUT 1200)
endfunction()
