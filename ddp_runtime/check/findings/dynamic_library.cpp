// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::check {

DynamicLibrary::DynamicLibrary(const std::string& name)
    : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* why = dlerror();
  throw RuntimeError(why == nullptr ? name + " cannot be loaded" : std::string(why));
}

void* DynamicLibrary::find(const char* function) const noexcept {
  return dlsym(handle_, function);
}

void* DynamicLibrary::require(const char* function) const {
  void* const found = find(function);
  if (found == nullptr) throw RuntimeError(fmt::format("{} does not contain {}", name_, function));
  return found;
}

}  // namespace ddp::check
