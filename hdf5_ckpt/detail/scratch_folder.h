#pragma once
// Where libhdf5 may create a file that never sees the real disk.

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddp::ckpt {

// A new folder, in memory if possible; gone when the object is, with the file that libhdf5 makes in
// it.
class ScratchFolder {
 public:
  // Room for `bytes`. An empty `preferred` means /dev/shm, else the system's folder for temporary
  // files. Throws Error.
  ScratchFolder(const std::filesystem::path& preferred, std::uint64_t bytes);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  // The one file in it, which the caller makes.
  std::filesystem::path file() const;

 private:
  std::string make_in(const std::filesystem::path& place, std::uint64_t bytes);

  std::filesystem::path path_;
};

}  // namespace ddp::ckpt
