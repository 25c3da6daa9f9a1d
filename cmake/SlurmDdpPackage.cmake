# SPDX-License-Identifier: Apache-2.0
# The installed CMake package: find_package(slurm_ddp) provides slurm_ddp::<room> and
# slurm_ddp::ddp.
include(SlurmDdpCPack)
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/slurm_ddp")

get_property(exported GLOBAL PROPERTY SLURM_DDP_EXPORTED)
if(NOT exported)
  return()
endif()
# Each COMPONENT applies to the kind of file named before it.
install(TARGETS ${exported} EXPORT slurm_ddp_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/slurm_ddp" COMPONENT development)
install(EXPORT slurm_ddp_targets NAMESPACE slurm_ddp:: FILE slurm_ddpTargets.cmake
  DESTINATION "${package_dir}" COMPONENT development)
install(FILES "${PROJECT_BINARY_DIR}/generated/slurm_ddp/version.h"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/slurm_ddp/slurm_ddp" COMPONENT development)

set(with_torch OFF)
if(TARGET slurm_ddp_torch)
  set(with_torch ON)
endif()
string(REGEX MATCH "^[0-9]+[.][0-9]+" torch_release "${Torch_VERSION}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/slurm_ddpConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/slurm_ddpConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/slurm_ddpConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/slurm_ddpConfig.cmake"
              "${PROJECT_BINARY_DIR}/slurm_ddpConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/SlurmDdpFindTorch.cmake"
  DESTINATION "${package_dir}" COMPONENT development)
