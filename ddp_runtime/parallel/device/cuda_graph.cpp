// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/device/cuda_graph.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/errors.h"
#include "base/text.h"

namespace ddp {
namespace {

constexpr const char* kLibrary = "libslurm_ddp_cuda_graph.so";
constexpr const char* kMakeFunction = "slurm_ddp_make_cuda_graph";

using MakeFunction = DeviceGraph* (*)(int device_index);

// In the build's tree and in an installed one.
std::string beside_the_program() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "lib" / kLibrary).string();
}

}  // namespace

std::unique_ptr<DeviceGraph> load_graph(const std::vector<std::string>& files, int device_index) {
  std::string reason;
  for (const auto& file : files) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      reason += (reason.empty() ? "" : "; ") + sanitize_lines(error == nullptr ? file : error, 300);
      continue;
    }
    const auto make = reinterpret_cast<MakeFunction>(dlsym(library, kMakeFunction));
    if (make == nullptr) throw UsageError(fmt::format("{} has no {}", file, kMakeFunction));
    return std::unique_ptr<DeviceGraph>(make(device_index));
  }
  throw UsageError(
      fmt::format("the library of CUDA graphs, which a build with a PyTorch for CUDA and CUDA's "
                  "headers makes, cannot be loaded ({})",
                  reason));
}

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device) {
  if (!device.is_cuda()) {
    throw UsageError(fmt::format("there are no graphs for {}, only for GPUs", device.str()));
  }
  if (!at::globalContext().hasCUDA()) {
    throw UsageError("libtorch's CUDA half is not loaded, see load_cuda()");
  }
  return load_graph({kLibrary, beside_the_program()}, device.has_index() ? device.index() : 0);
}

}  // namespace ddp
