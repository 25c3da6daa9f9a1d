# SPDX-License-Identifier: Apache-2.0
# Packages built by CPack: `cpack -G DEB` or `cpack -G RPM` in the build directory. There are three:
# slurm-ddp-plugin, which is built for one release of SLURM, depends on that release, and names it in
# its own version; slurm-ddp, the programs; and slurm-ddp-dev (RPM: slurm-ddp-devel), the headers,
# libraries and CMake package for users' C++ programs.
set(CPACK_PACKAGE_NAME slurm-ddp)
set(CPACK_PACKAGE_VENDOR "slurm-ddp")
set(CPACK_PACKAGE_CONTACT "the slurm-ddp authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tools development)

# Installed files contain their prefix, so it must be the real one while they are staged.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME slurm-ddp)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS slurm-ddp-plugin)

# The dependencies of find_package(slurm_ddp). No package provides an MPI or libtorch that the
# site installed itself.
set(development_needs libhdf5-dev zlib1g-dev libssl-dev libfmt-dev nlohmann-json3-dev)
set(distribution "^/usr/(lib|lib64|include)(/|;|$)")
if(SLURM_DDP_RUNTIME AND "${MPI_C_INCLUDE_DIRS}" MATCHES "${distribution}")
  list(APPEND development_needs libopenmpi-dev)
endif()
if(TARGET slurm_ddp_torch AND "${TORCH_INCLUDE_DIRS}" MATCHES "${distribution}")
  list(APPEND development_needs libtorch-dev)
endif()
list(JOIN development_needs ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME slurm-ddp-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS slurm-ddp)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)  # static libraries only

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE "ASL 2.0")
set(CPACK_RPM_TOOLS_PACKAGE_NAME slurm-ddp)
set(CPACK_RPM_DEVELOPMENT_PACKAGE_NAME slurm-ddp-devel)
# Names that Fedora, RHEL with EPEL and openSUSE share.
set(CPACK_RPM_DEVELOPMENT_PACKAGE_REQUIRES "hdf5-devel, pkgconfig(zlib), cmake(fmt), cmake(nlohmann_json)")
if(SLURM_DDP_RUNTIME)
  string(APPEND CPACK_RPM_DEVELOPMENT_PACKAGE_REQUIRES ", pkgconfig(libcrypto)")
endif()
# Directories owned by the system.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/man /usr/share/man/man1
    /usr/share/man/man8 /usr/share/modulefiles ${CMAKE_INSTALL_FULL_LIBDIR}/slurm
    /usr/${CMAKE_INSTALL_LIBDIR} /usr/${CMAKE_INSTALL_LIBDIR}/slurm /usr/${CMAKE_INSTALL_LIBDIR}/cmake)

set(release 1)
if(SLURM_DDP_PLUGIN)
  # 22.05 -> "22.05" and, for "older than the next release", "22.06".
  string(REGEX MATCH "^([0-9]+)\\.0?([0-9]+)$" matched "${SLURM_DDP_SLURM_RELEASE}")
  set(year ${CMAKE_MATCH_1})
  math(EXPR next_month "${CMAKE_MATCH_2} + 1")
  if(next_month LESS 10)
    set(next_month "0${next_month}")
  endif()
  set(this "${SLURM_DDP_SLURM_RELEASE}")
  set(next "${year}.${next_month}")
  set(release "1+slurm${this}")
  list(APPEND CPACK_COMPONENTS_ALL plugin)
  set(CPACK_DEBIAN_PLUGIN_PACKAGE_NAME slurm-ddp-plugin)
  # Debian's packages, or those built from SLURM's own sources.
  set(CPACK_DEBIAN_PLUGIN_PACKAGE_DEPENDS
      "slurm-wlm-basic-plugins (>= ${this}) | slurm-smd (>= ${this}), slurm-wlm-basic-plugins (<< ${next}) | slurm-smd (<< ${next})")
  set(CPACK_RPM_PLUGIN_PACKAGE_NAME slurm-ddp-plugin)
  set(CPACK_RPM_PLUGIN_PACKAGE_REQUIRES "slurm >= ${this}, slurm < ${next}")
  install(FILES "${PROJECT_SOURCE_DIR}/docs/man/srun-ddp.1"
    DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT plugin)
  install(FILES "${PROJECT_SOURCE_DIR}/docs/man/ddp.8"
    DESTINATION "${CMAKE_INSTALL_MANDIR}/man8" COMPONENT plugin)
endif()
set(CPACK_DEBIAN_PACKAGE_RELEASE "${release}")
string(REPLACE "1+slurm" "1.sl" CPACK_RPM_PACKAGE_RELEASE "${release}")
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
