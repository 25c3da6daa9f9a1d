// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/torch_release.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "base/errors.h"
#include "ddp_runtime/comm/start_check.h"

// Refers to nothing. The linker takes this file from the library because every program that links
// the library asks for this name (CMakeLists.txt).
extern "C" {
extern const char slurm_ddp_checks_torch_release;
const char slurm_ddp_checks_torch_release = 1;
}

namespace ddp {
namespace {

// "2.15" of "2.15.0".
std::string_view two_numbers(std::string_view release) {
  return release.substr(0, release.find('.', release.find('.') + 1));
}

std::string file_of(const void* function) {
  Dl_info info{};
  const bool found = dladdr(function, &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : "libtorch_cpu.so";
}

struct Loaded {
  std::string release;
  std::string file;
};

// Both functions have the same name and type in all releases that have them, and use nothing that
// releases changed. at::show_config() asks for CUDA: if libtorch's CUDA half is not loaded yet,
// libtorch remembers for the rest of the process that there is none. So it is called only for
// releases without the other function, for which this project does not support GPUs.
Loaded loaded_libtorch() {
  using AbiVersion = std::uint64_t();
  if (void* const found = dlsym(RTLD_DEFAULT, "aoti_torch_abi_version")) {
    return {torch_release_of(reinterpret_cast<AbiVersion*>(found)()), file_of(found)};
  }
  return {torch_release_in(at::show_config()),
          file_of(reinterpret_cast<const void*>(&at::show_config))};
}

void require_built_torch() {
  const auto built =
      fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  const auto loaded = loaded_libtorch();
  const auto problem = torch_release_problem(built, loaded.release, loaded.file);
  if (problem) throw RuntimeError(*problem);
}

[[maybe_unused]] const bool kChecksTorchRelease =
    (comm::add_start_check(&require_built_torch), true);

}  // namespace

std::string torch_release_of(std::uint64_t abi_version) {
  return fmt::format("{}.{}.{}", abi_version >> 56, (abi_version >> 48) & 0xff,
                     (abi_version >> 40) & 0xff);
}

std::string torch_release_in(std::string_view configuration) {
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const auto key = configuration.find(kKey);
  if (key == std::string_view::npos) return {};
  const auto value = configuration.substr(key + kKey.size());
  return std::string(value.substr(0, value.find_first_not_of("0123456789.")));
}

std::optional<std::string> torch_release_problem(std::string_view built, std::string_view loaded,
                                                 std::string_view path) {
  if (loaded.empty() || two_numbers(built) == two_numbers(loaded)) return std::nullopt;
  return fmt::format(
      "this program was built with libtorch {}, but {} is libtorch {}; remove its directory from "
      "LD_LIBRARY_PATH, install libtorch {} there, or build slurm-ddp and the program with {}",
      built, path, loaded, two_numbers(built), two_numbers(loaded));
}

}  // namespace ddp
