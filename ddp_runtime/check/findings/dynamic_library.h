// SPDX-License-Identifier: Apache-2.0
// A vendor library, loaded by name at run time, so that the build does not depend on it.
#pragma once

#include <string>

namespace ddp::check {

// Never unloaded, because drivers start threads that outlive a dlclose().
class DynamicLibrary {
 public:
  // `name` may be a path. Throws RuntimeError with the dynamic linker's message.
  explicit DynamicLibrary(const std::string& name);
  // Returns nullptr if the library does not have this function.
  void* find(const char* function) const noexcept;
  // Throws RuntimeError if the library does not have this function.
  void* require(const char* function) const;

 private:
  std::string name_;
  void* handle_;
};

}  // namespace ddp::check
