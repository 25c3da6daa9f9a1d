# SPDX-License-Identifier: Apache-2.0
# libtorch: Debian's 1.13, or a PyTorch 2.x; see SlurmDdpFindTorch.cmake.
include(SlurmDdpFindTorch)
add_library(slurm_ddp_found_torch INTERFACE)
slurm_ddp_find_torch(slurm_ddp_found_torch torch_problem)
if(torch_problem)
  message(FATAL_ERROR "slurm_ddp: ${torch_problem}")
endif()
if(SLURM_DDP_TORCH_ROOT)
  message(STATUS "libtorch ${Torch_VERSION}: ${SLURM_DDP_TORCH_ROOT}")
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # installed programs find the wheel's libraries, too
else()
  message(STATUS "libtorch ${Torch_VERSION}: ${Torch_DIR}")
endif()

# slurm_ddp_torch is exported empty, so that no paths of this machine are installed: slurm_ddpConfig.cmake gives it the
# libtorch of the machine that uses the package.
add_library(slurm_ddp_torch INTERFACE)
target_link_libraries(slurm_ddp_torch INTERFACE $<BUILD_INTERFACE:slurm_ddp_found_torch>)
set_target_properties(slurm_ddp_torch PROPERTIES EXPORT_NAME torch)
target_compile_features(slurm_ddp_torch INTERFACE cxx_std_20)  # for the headers of 2.15
set_property(GLOBAL APPEND PROPERTY SLURM_DDP_EXPORTED slurm_ddp_torch)

# Parsing Torch's headers takes about ten seconds. All files that include them share one precompiled
# header, so that a change to one file rebuilds in seconds.
add_library(slurm_ddp_torch_pch STATIC "${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp")
target_link_libraries(slurm_ddp_torch_pch PRIVATE slurm_ddp_torch slurm_ddp_build_flags Threads::Threads)
target_precompile_headers(slurm_ddp_torch_pch PRIVATE <torch/torch.h>)
# Tests take longer to compile than to run, so they are not optimized, which needs a header of its own.
if(SLURM_DDP_TESTS)
  add_library(slurm_ddp_torch_test_pch STATIC "${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp")
  target_link_libraries(slurm_ddp_torch_test_pch PRIVATE slurm_ddp_torch slurm_ddp_build_flags Threads::Threads)
  target_compile_options(slurm_ddp_torch_test_pch PRIVATE -O0)
  target_precompile_headers(slurm_ddp_torch_test_pch PRIVATE <torch/torch.h>)
endif()

# From GCC 13 on, what -O1 turns off may not differ from the precompiled header.
function(slurm_ddp_fit_torch_pch target)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if("${options}" MATCHES "-O1" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
  endif()
endfunction()

# For libraries: torch is part of their interface.
function(slurm_ddp_uses_torch target)
  target_link_libraries(${target} PUBLIC slurm_ddp_torch)
  slurm_ddp_fit_torch_pch(${target})
  target_precompile_headers(${target} REUSE_FROM slurm_ddp_torch_pch)
endfunction()

# For executables that link such a library. The header was compiled with -fPIC and cannot be shared
# with -fPIE, which CMake uses for executables.
function(slurm_ddp_torch_executable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  slurm_ddp_fit_torch_pch(${target})
  target_precompile_headers(${target} REUSE_FROM slurm_ddp_torch_pch)
endfunction()

function(slurm_ddp_torch_test target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -O0)
  target_precompile_headers(${target} REUSE_FROM slurm_ddp_torch_test_pch)
endfunction()
