# SPDX-License-Identifier: Apache-2.0
# Prints what slurm_ddp_inspect_wheel or slurm_ddp_python_torch says: cmake -DROOT=DIR -P find_torch.cmake, or
# without ROOT for the second.
cmake_minimum_required(VERSION 3.23)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/SlurmDdpFindTorch.cmake")
if(DEFINED ROOT)
  slurm_ddp_inspect_wheel("${ROOT}" found problem)
else()
  slurm_ddp_python_torch(found problem)
endif()
message(STATUS "found=[${found}] problem=[${problem}]")
