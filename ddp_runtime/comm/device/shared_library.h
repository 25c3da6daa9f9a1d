// SPDX-License-Identifier: Apache-2.0
// A vendor's library, found at run time, so that neither the build nor a machine without GPUs needs
// it. Two copies of such a library in one process are two sets of state, so the copy that is in the
// process already, which libtorch has loaded, comes first.
#pragma once

#include <span>
#include <string>

namespace ddp::comm {

// Never unloaded, because drivers start threads that outlive a dlclose().
class SharedLibrary {
 public:
  // Takes a library that is in this process: the file `path`, if it is not empty, or one under one
  // of `names`. Otherwise takes the file `path`, or the first of `names` that the dynamic linker
  // finds. `purpose` is the subject of error texts: "the CUDA runtime". Throws UsageError.
  SharedLibrary(std::string purpose, std::span<const char* const> names, const std::string& path);

  // Sets `function`; throws UsageError if the library does not contain `name`.
  template <class Function>
  void require(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(required(name));
  }
  // Sets `function`, to nullptr if the library does not contain `name`.
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(found(name));
  }
  // The file that contains `function`, for messages; the name under which the library was opened if
  // that is unknown.
  std::string file_of(const char* function) const;

 private:
  void* found(const char* name) const noexcept;
  void* required(const char* name) const;

  std::string purpose_;
  std::string opened_as_;
  void* handle_ = nullptr;
};

}  // namespace ddp::comm
