// A library of a vendor, loaded by name if it is there: no build needs it.
#pragma once

#include <string>

namespace ddp::check {

// Loaded once and for good: drivers run threads of their own, which outlive a dlclose().
class DynamicLibrary {
 public:
  // `name` or a path. Throws RuntimeError with the linker's words.
  explicit DynamicLibrary(const std::string& name);
  // nullptr if the library has no such function.
  void* find(const char* function) const noexcept;
  // Throws RuntimeError instead.
  void* require(const char* function) const;

 private:
  std::string name_;
  void* handle_;
};

}  // namespace ddp::check
