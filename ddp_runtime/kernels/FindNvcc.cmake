# SPDX-License-Identifier: Apache-2.0
# Decides whether this build compiles the kernels, says so in one sentence, and sets SLURM_DDP_NVCC.
set(SLURM_DDP_CUDA_KERNELS AUTO CACHE STRING
    "Compile the kernels for GPUs: AUTO if there is a suitable nvcc, ON to require it, OFF")
set_property(CACHE SLURM_DDP_CUDA_KERNELS PROPERTY STRINGS AUTO ON OFF)

# The first release that compiles for sm_100.
set(oldest_nvcc 12.8)

set(SLURM_DDP_NVCC "")
set(reason "")
if(NOT SLURM_DDP_CUDA_KERNELS)
  set(reason "SLURM_DDP_CUDA_KERNELS is ${SLURM_DDP_CUDA_KERNELS}")
else()
  # Not kept in the cache, so that a toolkit installed later is found.
  unset(nvcc)
  find_program(nvcc nvcc NO_CACHE PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT nvcc)
    set(reason "there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda")
  else()
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
      set(reason "${nvcc} --version fails")
    elseif(CMAKE_MATCH_1 VERSION_LESS oldest_nvcc)
      set(reason "${nvcc} is ${CMAKE_MATCH_1}, and the oldest that compiles them is ${oldest_nvcc}")
    else()
      set(SLURM_DDP_NVCC "${nvcc}")
      message(STATUS "CUDA kernels: compiled by ${nvcc} ${CMAKE_MATCH_1} for sm_80, sm_90, sm_100 and later GPUs")
    endif()
  endif()
endif()
if(reason AND SLURM_DDP_CUDA_KERNELS AND NOT SLURM_DDP_CUDA_KERNELS STREQUAL "AUTO")
  message(FATAL_ERROR "SLURM_DDP_CUDA_KERNELS is ${SLURM_DDP_CUDA_KERNELS}, but ${reason}. Install CUDA's nvcc "
    "${oldest_nvcc} or newer, set CUDA_HOME to its directory, or configure with -DSLURM_DDP_CUDA_KERNELS=OFF")
elseif(reason)
  message(STATUS "CUDA kernels: left out, because ${reason}")
endif()
