// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/posix_read.h"

namespace ddp::ckpt {

namespace fs = std::filesystem;

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

}  // namespace ddp::ckpt
