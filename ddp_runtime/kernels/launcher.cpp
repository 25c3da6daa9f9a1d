// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "ddp_runtime/kernels/kernel_images.h"
#include "ddp_runtime/kernels/kernel_names.h"

namespace ddp::kernels {
namespace {

constexpr int kNoBinaryForGpu = 209;
constexpr int kUnsupportedPtxVersion = 222;
constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

template <class Names, class Matches>
const char* find_name(const Names& names, const Matches& matches, const std::string& what) {
  const auto found = std::ranges::find_if(names, matches);
  if (found == names.end()) throw std::invalid_argument("there is no kernel " + what);
  return found->name;
}

template <class Names>
const char* name_for(const Names& names, comm::ElementType type, const char* purpose) {
  return find_name(
      names, [&](const auto& entry) { return entry.type == type; },
      fmt::format("{} of {}", purpose, comm::to_string(type)));
}

}  // namespace

bool has_kernels() {
  return !kernel_images().empty();
}

KernelLauncher::KernelLauncher(const KernelCalls& calls) : calls_(calls) {
  if (!has_kernels()) {
    throw UsageError(
        "this build has no kernels for GPUs; install CUDA's nvcc and configure with "
        "-DSLURM_DDP_CUDA_KERNELS=ON");
  }
  try {
    load();
  } catch (...) {
    unload();
    throw;
  }
}

KernelLauncher::~KernelLauncher() {
  unload();
}

void KernelLauncher::load() {
  check_driver(calls_, calls_.init(0), "be initialized");
  int device = 0;
  int processors = 0;
  check_driver(calls_, calls_.current_device(&device), "be found by this thread");
  check_driver(calls_, calls_.device_attribute(&processors, kMultiprocessorCount, device),
               "tell the number of its multiprocessors");
  max_blocks_ = static_cast<std::uint64_t>(std::max(processors, 1)) * kBlocksPerProcessor;
  for (const auto& image : kernel_images()) {
    void* library = nullptr;
    check_driver(
        calls_,
        calls_.library_load(&library, image.bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "load kernels");
    libraries_.emplace(image.name, library);
  }
  for (const auto& entry : kPackNames) load_function(entry.name);
  for (const auto& entry : kCheckNames) load_function(entry.name);
  for (const auto& entry : kAdamWNames) load_function(entry.name);
}

void KernelLauncher::load_function(const char* name) {
  for (const auto& [image, library] : libraries_) {
    void* kernel = nullptr;
    if (calls_.library_kernel(&kernel, library, name) != 0) continue;
    void* function = nullptr;
    // Loads the code now. Otherwise the first launch would, perhaps within a capture.
    const int code = calls_.kernel_function(&function, kernel);
    if (code == kNoBinaryForGpu || code == kUnsupportedPtxVersion) {
      throw UsageError(
          "this build has no kernels for this GPU and driver; they run on GPUs of compute "
          "capability 8.0 and newer, and on those newer than 10.0 with a driver of the build's "
          "CUDA "
          "or newer");
    }
    check_driver(calls_, code, fmt::format("load the kernel {}", name));
    functions_.emplace(name, function);
    return;
  }
  throw RuntimeError(fmt::format("the kernel {} is in no image of this build", name));
}

void KernelLauncher::unload() noexcept {
  for (const auto& [name, library] : libraries_) calls_.library_unload(library);
}

std::uint64_t KernelLauncher::blocks_for(std::uint64_t tiles) const {
  return std::min(tiles, max_blocks_);
}

template <class Arguments>
void KernelLauncher::launch(const char* name, std::uint64_t blocks, const Arguments& arguments,
                            comm::DeviceStream stream) const {
  Arguments copy = arguments;
  void* parameters[] = {&copy};
  check_driver(calls_,
               calls_.launch(functions_.find(name)->second, static_cast<unsigned>(blocks), 1, 1,
                             kThreads, 1, 1, 0, stream, parameters, nullptr),
               fmt::format("launch the kernel {}", name));
}

void KernelLauncher::pack(comm::ElementType from, comm::ElementType to,
                          const PackArguments& arguments, comm::DeviceStream stream) const {
  const char* const name = find_name(
      kPackNames, [&](const PackName& entry) { return entry.from == from && entry.to == to; },
      fmt::format("that packs {} as {}", comm::to_string(from), comm::to_string(to)));
  if (arguments.tiles == 0) return;
  launch(name, blocks_for(arguments.tiles), arguments, stream);
}

void KernelLauncher::check(comm::ElementType type, const CheckArguments& arguments,
                           comm::DeviceStream stream) const {
  launch(name_for(kCheckNames, type, "that checks elements"), check_blocks(arguments.count),
         arguments, stream);
}

void KernelLauncher::adamw(comm::ElementType gradient, const AdamWArguments& arguments,
                           comm::DeviceStream stream) const {
  const char* const name = name_for(kAdamWNames, gradient, "for AdamW with gradients");
  if (arguments.tiles == 0) return;
  launch(name, blocks_for(arguments.tiles), arguments, stream);
}

}  // namespace ddp::kernels
