// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

bool has_at(std::span<const std::byte> bytes, std::uint64_t at, std::string_view signature) {
  return at < bytes.size() && bytes.size() - at > signature.size() &&
         std::memcmp(bytes.data() + at, signature.data(), signature.size()) == 0;
}

// HDF5 data begins at the start of a file, or after a user block of 512 bytes times a power of two,
// such as MATLAB writes.
bool is_hdf5(std::span<const std::byte> bytes) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  constexpr std::uint64_t kLeastUserBlock = 512;
  if (has_at(bytes, 0, kSignature)) return true;
  for (std::uint64_t at = kLeastUserBlock; at < bytes.size(); at *= 2)
    if (has_at(bytes, at, kSignature)) return true;
  return false;
}

}  // namespace

MappedFile::MappedFile(const fs::path& named) {
  std::error_code error;
  const fs::path target = fs::canonical(named, error);
  const fs::path& path = error ? named : target;
  const FileDescriptor directory(::open(path.has_parent_path() ? path.parent_path().c_str() : ".",
                                        O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) throw IoError("open the directory of", path, errno);
  const OpenedFile file = open_regular_file(directory.get(), path.filename().string());
  if (file.size == 0) throw DamagedError("the file is empty");
  void* const memory = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (memory == MAP_FAILED) throw IoError("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(memory), file.size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

MappedFile::~MappedFile() {
  unmap();
}

void MappedFile::unmap() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

FileKind kind_of(const fs::path& path, std::span<const std::byte> bytes) {
  constexpr std::string_view kZip = "PK";
  if (path.extension() == ".safetensors") return FileKind::safetensors;
  return !has_at(bytes, 0, kZip) && is_hdf5(bytes) ? FileKind::hdf5 : FileKind::torch_save;
}

}  // namespace ddp::ckpt
