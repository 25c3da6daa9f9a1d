#pragma once
// Where libhdf5 may create a file that never sees the real disk.

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddp::ckpt {

// A new directory, in memory if possible; gone when the object is, with the file that libhdf5 makes
// in it.
class ScratchDirectory {
 public:
  // Room for `bytes`. An empty `preferred` means /dev/shm, else the system's directory for
  // temporary files. Throws Error.
  ScratchDirectory(const std::filesystem::path& preferred, std::uint64_t bytes);
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();

  // The one file in it, which the caller makes.
  std::filesystem::path file() const;

 private:
  std::string make_in(const std::filesystem::path& place, std::uint64_t bytes);

  std::filesystem::path path_;
};

}  // namespace ddp::ckpt
