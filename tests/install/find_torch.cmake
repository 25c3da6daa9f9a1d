# SPDX-License-Identifier: Apache-2.0
# Prints the result of slurm_ddp_inspect_wheel (cmake -DROOT=DIR -P find_torch.cmake) or, without ROOT, that of
# slurm_ddp_python_torch.
cmake_minimum_required(VERSION 3.23)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/SlurmDdpFindTorch.cmake")
if(DEFINED ROOT)
  slurm_ddp_inspect_wheel("${ROOT}" found problem)
else()
  slurm_ddp_python_torch(found problem)
endif()
message(STATUS "found=[${found}] problem=[${problem}]")
