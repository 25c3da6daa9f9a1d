// SPDX-License-Identifier: Apache-2.0
// An owned file descriptor, closed on destruction.
#pragma once

#include <string_view>
#include <utility>

namespace ddp {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Ignores errors of close(2): code that needs the data to be safe calls fsync(2) first.
  void close() noexcept;

 private:
  int fd_ = -1;
};

// Writes all of `content` to a file, a pipe or a device. Returns false and sets errno on failure.
bool write_all(int file, std::string_view content) noexcept;

}  // namespace ddp
