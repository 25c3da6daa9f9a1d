// SPDX-License-Identifier: Apache-2.0
// Loads the kernels into the GPU of the calling thread, and launches them on streams. Nothing here
// waits for the GPU or allocates its memory, so launches may be captured into a graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ddp_runtime/comm/element_type.h"
#include "ddp_runtime/comm/memory.h"
#include "ddp_runtime/kernels/adamw.h"
#include "ddp_runtime/kernels/check.h"
#include "ddp_runtime/kernels/kernel_calls.h"
#include "ddp_runtime/kernels/pack.h"

namespace ddp::kernels {

// Whether this build has kernels.
bool has_kernels();

// For one GPU: the one that is current in the thread that calls the constructor, which must be
// current in every call, and whose context must exist. Launches are asynchronous; what the
// arguments point to must stay until they have run. Errors of a kernel itself show up in later
// calls of CUDA.
class KernelLauncher {
 public:
  // Loads all kernels. Throws UsageError if this build has none, or none for this GPU; RuntimeError
  // if the driver fails.
  explicit KernelLauncher(const KernelCalls& calls);
  KernelLauncher(const KernelLauncher&) = delete;
  KernelLauncher& operator=(const KernelLauncher&) = delete;
  ~KernelLauncher();

  // Without tiles, nothing is launched. Throws std::invalid_argument if there is no kernel for
  // these types (kernel_names.h).
  void pack(comm::ElementType from, comm::ElementType to, const PackArguments& arguments,
            comm::DeviceStream stream) const;
  // Without elements too, because the result must be written.
  void check(comm::ElementType type, const CheckArguments& arguments,
             comm::DeviceStream stream) const;
  void adamw(comm::ElementType gradient, const AdamWArguments& arguments,
             comm::DeviceStream stream) const;

 private:
  void load();
  void load_function(const char* name);
  // Unloads all that was loaded. Errors are ignored: at exit, the driver may be gone.
  void unload() noexcept;
  std::uint64_t blocks_for(std::uint64_t tiles) const;
  template <class Arguments>
  void launch(const char* name, std::uint64_t blocks, const Arguments& arguments,
              comm::DeviceStream stream) const;

  KernelCalls calls_;
  std::uint64_t max_blocks_ = 1;
  std::map<std::string, void*, std::less<>> libraries_;  // by name of the image
  std::map<std::string, void*, std::less<>> functions_;  // by name of the kernel
};

}  // namespace ddp::kernels
