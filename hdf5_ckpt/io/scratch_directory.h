// SPDX-License-Identifier: Apache-2.0
// A temporary directory in which libhdf5 can create a file that never reaches the real disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddp::ckpt {

// A new directory, in memory if possible; removed with the object, together with the file that
// libhdf5 creates in it.
class ScratchDirectory {
 public:
  // Provides room for `bytes`. An empty `preferred` means /dev/shm, else the system's directory for
  // temporary files. Throws Error.
  ScratchDirectory(const std::filesystem::path& preferred, std::uint64_t bytes);
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();

  // Returns the path of the one file in it, which the caller creates.
  std::filesystem::path file() const;

 private:
  std::string make_in(const std::filesystem::path& place, std::uint64_t bytes);

  std::filesystem::path path_;
};

}  // namespace ddp::ckpt
