// SPDX-License-Identifier: Apache-2.0
// A file system with injected faults: any call of a save can be made to fail, to crash the process,
// to be cut short, or to report false success. All calls are recorded in order.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hdf5_ckpt/core/file_ops.h"

namespace ddp::ckpt::test {

// Thrown where the process would die. It is not an Error, so that the library does not handle it.
struct Crashed {};

enum class Fault {
  none,
  error,               // the call fails with `code`
  error_from_here_on,  // this and every later call fail
  crash_before,        // the process dies before the call has any effect
  crash_after,         // the process dies after the effect of the call
  crash_half_written,  // after half of the bytes of a pwrite, or before any other call
  lie,                 // the call does nothing and reports success
};

// After a crash every call fails without effect, even cleanup while the exception unwinds, because
// the process would be dead.
class FaultyOps : public FileOps {
 public:
  struct Call {
    std::string what;  // "pwrite"
    std::string path;
    std::size_t size = 0;  // bytes of a pwrite
    bool direct = false;   // with O_DIRECT
  };

  FaultyOps() = default;
  FaultyOps(Fault fault, std::size_t index, int code = 0)
      : fault_(fault), index_(index), code_(code) {}

  // Simulates missing features of file systems.
  void without_fallocate() { has_fallocate_ = false; }
  void without_rename_flags() { has_rename_flags_ = false; }
  void without_direct_open() { has_direct_open_ = false; }
  void without_direct_write() { has_direct_write_ = false; }
  // pwrite accepts at most `bytes` at a time; every interruptible call is interrupted once.
  void with_short_writes(std::size_t bytes) { most_written_ = bytes; }
  void with_interruptions() { interrupts_ = true; }
  void with_free_bytes(std::int64_t bytes) { free_bytes_ = bytes; }

  const std::vector<Call>& calls() const { return calls_; }
  // Returns the call that was made to fail, if it was reached.
  Call struck() const { return index_ < calls_.size() ? calls_[index_] : Call{}; }

  int open(const char* path, int flags, mode_t mode) override;
  int close(int fd) override;
  ssize_t pwrite(int fd, const void* data, std::size_t size, off_t offset) override;
  int fsync(int fd) override;
  int fallocate(int fd, off_t size) override;
  int ftruncate(int fd, off_t size) override;
  std::int64_t free_bytes(int fd) override;
  int mkdir(const char* path, mode_t mode) override;
  int rename(const char* from, const char* to, unsigned flags) override;
  int unlink(const char* path) override;
  int rmdir(const char* path) override;
  int stat(const char* path, struct stat* status) override;
  int lstat(const char* path, struct stat* status) override;
  int list(int directory, std::vector<std::string>& names) override;
  int unlinkat(int directory, const char* name) override;

 private:
  template <typename Real, typename Half>
  ssize_t call(const Call& made, ssize_t success, const Real& real, const Half& half);
  template <typename Real>
  int call(const char* what, const std::string& path, const Real& real);
  bool interrupted(int fd);

  Fault fault_ = Fault::none;
  std::size_t index_ = 0;
  int code_ = 0;
  bool has_fallocate_ = true;
  bool has_rename_flags_ = true;
  bool has_direct_open_ = true;
  bool has_direct_write_ = true;
  std::size_t most_written_ = 0;
  bool interrupts_ = false;
  std::int64_t free_bytes_ = -2;

  std::recursive_mutex mutex_;
  bool crashed_ = false;
  bool interrupt_next_ = true;
  std::vector<Call> calls_;
  std::unordered_map<int, std::string> paths_;
};

}  // namespace ddp::ckpt::test
