// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/gpu/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::gpu {
namespace {

std::string reason_of_linker() {
  const char* const reason = dlerror();
  return reason == nullptr ? "unknown error" : reason;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::string& name)
    : opened_as_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw RuntimeError(reason_of_linker());
}

SharedLibrary::SharedLibrary(std::string purpose, std::span<const char* const> names,
                             const std::string& path)
    : purpose_(std::move(purpose)) {
  const auto open = [this](const std::string& name, int mode) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | mode);
    opened_as_ = name;
    return handle_ != nullptr;
  };
  if (!path.empty() && open(path, RTLD_NOLOAD)) return;
  for (const char* name : names) {
    if (open(name, RTLD_NOLOAD)) return;
  }
  if (!path.empty()) {
    if (open(path, 0)) return;
    throw UsageError(fmt::format("{} cannot be loaded from the given file: {}", purpose_,
                                 sanitize_lines(reason_of_linker(), 300)));
  }
  std::vector<std::string> reasons;
  for (const char* name : names) {
    if (open(name, 0)) return;
    reasons.push_back(sanitize_lines(reason_of_linker(), 300));
  }
  throw UsageError(fmt::format(
      "{} is neither in this process nor on the search path of libraries ({}); use a PyTorch with "
      "CUDA, add the library's directory to LD_LIBRARY_PATH, or use --device cpu",
      purpose_, join(reasons, "; ")));
}

Symbol SharedLibrary::operator[](const char* name) const {
  const Symbol function = find(name);
  if (function.address != nullptr || handle_ == nullptr) return function;
  if (purpose_.empty()) {
    throw RuntimeError(fmt::format("{} does not contain {}", opened_as_, name));
  }
  throw UsageError(
      fmt::format("{} in {} does not contain {}; install a newer version, or use --device cpu",
                  purpose_, opened_as_, name));
}

Symbol SharedLibrary::find(const char* name) const noexcept {
  // dlsym() would look for nullptr's functions in the whole process.
  return {handle_ == nullptr ? nullptr : dlsym(handle_, name)};
}

std::string SharedLibrary::file_of(const char* function) const {
  Dl_info info{};
  const Symbol found = find(function);
  if (found.address == nullptr || dladdr(found.address, &info) == 0 || info.dli_fname == nullptr) {
    return opened_as_;
  }
  return info.dli_fname;
}

}  // namespace ddp::gpu
