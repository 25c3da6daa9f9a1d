// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/device/cuda.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

// The file that contains libtorch's CPU half in this process.
std::filesystem::path file_of_libtorch() {
  Dl_info info{};
  const auto function = reinterpret_cast<const void*>(&at::globalContext);
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

}  // namespace

void load_cuda() {
  if (!torch_compat::kSupportsDevices) {
    throw UsageError(fmt::format(
        "training on GPUs needs PyTorch 2.11 or newer, but this program was built with {}; build "
        "slurm-ddp with -DSLURM_DDP_TORCH=python, or use --device cpu",
        TORCH_VERSION));
  }
  const auto library = file_of_libtorch().parent_path() / "libtorch_cuda.so";
  std::error_code ignored;
  if (!std::filesystem::exists(library, ignored)) {
    throw UsageError(fmt::format(
        "this program's PyTorch has no CUDA (there is no {}); install a PyTorch for CUDA, or use "
        "--device cpu",
        library.string()));
  }
  // Its static constructors register the operators for CUDA.
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* const reason = dlerror();
  throw UsageError(fmt::format(
      "{} cannot be loaded: {}; install all packages that PyTorch depends on, as 'pip install "
      "torch=={}' does, or use --device cpu",
      library.string(), sanitize_lines(reason == nullptr ? "unknown error" : reason, 300),
      TORCH_VERSION));
}

torch::Device cuda_device(int number) {
  const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(number));
  if (!at::globalContext().hasCUDA()) {
    throw RuntimeError(
        "libtorch does not use CUDA although this process sees a GPU: something asked it for CUDA "
        "before load_cuda() was called, such as torch::manual_seed()");
  }
  return device;
}

}  // namespace ddp
