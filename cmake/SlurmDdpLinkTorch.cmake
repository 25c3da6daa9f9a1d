# SPDX-License-Identifier: Apache-2.0
# Gives an interface target what find_package(Torch) found: headers as system headers (their warnings are
# not ours), libraries and flags. The interface of Torch's own imported targets does not always do that.
# Installed, too: there slurm_ddp::torch is the Torch that the user's project finds.
function(slurm_ddp_link_torch target)
  target_link_libraries(${target} INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(${target} SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(${target} INTERFACE ${flags})
endfunction()
