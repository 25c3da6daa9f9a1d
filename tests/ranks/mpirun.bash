# SPDX-License-Identifier: Apache-2.0
# Settings for mpirun: more ranks than cores, bound to none, started by root, and no word of Open MPI 4 about how they end.
# shellcheck shell=bash
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_orte_execute_quiet=1 # Open MPI 4
export OMPI_MCA_btl_tcp_if_include=lo # Open MPI 5 warns of other interfaces that do not reach each other
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none # from 5 on
