// SPDX-License-Identifier: Apache-2.0
// A vendor's library, found at run time, so that neither the build nor a machine without GPUs needs
// it.
#pragma once

#include <span>
#include <string>
#include <type_traits>

namespace ddp::gpu {

// A function of a library. It becomes a pointer of the type that its caller declares.
struct Symbol {
  void* address = nullptr;
  template <class Function>
  requires std::is_function_v<Function>
  operator Function*() const noexcept { return reinterpret_cast<Function*>(address); }
};

// Never unloaded, because drivers start threads that outlive a dlclose().
class SharedLibrary {
 public:
  // No library: all of its functions are nullptr.
  SharedLibrary() = default;
  // Loads `name`, which may be a path. Throws RuntimeError with the dynamic linker's message.
  explicit SharedLibrary(const std::string& name);
  // Takes a library that is in this process, because two copies of it would be two sets of state:
  // the file `path`, if it is not empty, or one under one of `names`, such as the one that libtorch
  // has loaded. Otherwise takes the file `path`, or the first of `names` that the dynamic linker
  // finds. `purpose` is the subject of error texts: "the CUDA runtime". Throws UsageError.
  SharedLibrary(std::string purpose, std::span<const char* const> names, const std::string& path);

  // Throws the kind of error that the constructor throws if the library does not contain `name`.
  Symbol operator[](const char* name) const;
  // nullptr if the library does not contain `name`.
  Symbol find(const char* name) const noexcept;
  // The file that contains `function`, for messages; the name under which the library was opened if
  // that is unknown.
  std::string file_of(const char* function) const;

 private:
  std::string purpose_;
  std::string opened_as_;
  void* handle_ = nullptr;
};

}  // namespace ddp::gpu
