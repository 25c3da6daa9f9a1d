# SPDX-License-Identifier: Apache-2.0
# Decides whether this build compiles libslurm_ddp_cuda_graph.so, and says so in one sentence. Nothing links it:
# make_cuda_graph() loads it after libtorch's CUDA half, which has what it needs.
set(reason "")
set(cuda_include "")
set(cuda_runtime "")
if(NOT SLURM_DDP_TORCH_ROOT)
  set(reason "this libtorch is not a PyTorch 2.x of SLURM_DDP_TORCH_ROOT or of python3")
elseif(NOT EXISTS "${SLURM_DDP_TORCH_ROOT}/lib/libtorch_cuda.so")
  set(reason "this PyTorch has no CUDA")
else()
  # The headers and the runtime that the PyTorch comes with, or those of a toolkit.
  file(GLOB beside LIST_DIRECTORIES true "${SLURM_DDP_TORCH_ROOT}/../nvidia/*")
  find_path(cuda_include_found cuda_runtime_api.h NO_CACHE NO_DEFAULT_PATH
    PATHS ${beside} ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES include)
  file(GLOB runtimes "${SLURM_DDP_TORCH_ROOT}/../nvidia/*/lib/libcudart.so.*")
  if(NOT runtimes AND cuda_include_found)
    file(GLOB runtimes "${cuda_include_found}/../lib*/libcudart.so.*")
  endif()
  if(NOT cuda_include_found)
    set(reason "there is no cuda_runtime_api.h beside PyTorch, in CUDA_HOME or in /usr/local/cuda")
  elseif(NOT runtimes)
    set(reason "there is no libcudart beside PyTorch or ${cuda_include_found}")
  else()
    set(cuda_include "${cuda_include_found}")
    list(GET runtimes 0 cuda_runtime)
  endif()
endif()
if(reason)
  message(STATUS "Graphs of CUDA: left out, because ${reason}")
  return()
endif()
message(STATUS "Graphs of CUDA: compiled with the headers in ${cuda_include}")

add_library(slurm_ddp_cuda_graph MODULE device/cuda_graph_library.cpp)
target_include_directories(slurm_ddp_cuda_graph PRIVATE "${PROJECT_SOURCE_DIR}")
target_include_directories(slurm_ddp_cuda_graph SYSTEM PRIVATE "${cuda_include}")
target_link_libraries(slurm_ddp_cuda_graph PRIVATE slurm_ddp_torch slurm_ddp_build_flags
  "${SLURM_DDP_TORCH_ROOT}/lib/libtorch_cuda.so" "${SLURM_DDP_TORCH_ROOT}/lib/libc10_cuda.so" "${cuda_runtime}")
# Every symbol that it needs must be in these libraries. What they themselves need may be missing on a machine that
# only builds.
target_link_options(slurm_ddp_cuda_graph PRIVATE LINKER:-z,defs LINKER:--allow-shlib-undefined)
set_target_properties(slurm_ddp_cuda_graph PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  UNITY_BUILD OFF LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
install(TARGETS slurm_ddp_cuda_graph LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT tools)
