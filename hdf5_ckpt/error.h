// SPDX-License-Identifier: Apache-2.0
// The exceptions of the library. Every message is one or two sentences: what is wrong, where, and,
// where known, what to do about it.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace ddp::ckpt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An operating system call failed; code() is the errno value (ENOSPC, EIO, ...).
class IoError : public Error {
 public:
  // "cannot <action> '<path>': <text of code>; <remedy for that code>".
  IoError(const std::string& action, const std::filesystem::path& path, int code);
  int code() const noexcept { return code_; }

 private:
  int code_;
};

// A checkpoint that is torn, flipped, incomplete or malformed: an older one may still be good.
class DamagedError : public Error {
 public:
  using Error::Error;
};

// The data cannot be read at the moment, and nothing is known about its bytes: permission denied, a
// file server that does not answer, a disk that reports an error. It may be whole, so it must not
// be moved away or replaced by anything older.
class UnreadableError : public Error {
 public:
  using Error::Error;
};

// The checkpoint is whole but does not match what the caller requested (names, shapes, dtypes):
// falling back to an older one would not help.
class MismatchError : public Error {
 public:
  using Error::Error;
};

}  // namespace ddp::ckpt
