// SPDX-License-Identifier: Apache-2.0
// The exceptions of the library. Every message is one or two sentences: what is wrong, where, and
// what to do about it, if known.
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

// The checkpoint is torn, bit-flipped, incomplete or malformed; an older one may still be good.
class DamagedError : public Error {
 public:
  using Error::Error;
};

// The data cannot be read at the moment (permission denied, a file server that does not answer, a
// disk error), and nothing is known about its bytes. It may be whole, so it must not be moved away,
// and nothing older may be used in its place.
class UnreadableError : public Error {
 public:
  using Error::Error;
};

// The checkpoint is whole but does not match what the caller requested (names, shapes, dtypes): an
// older one would not help.
class MismatchError : public Error {
 public:
  using Error::Error;
};

// "'<path>' is a symbolic link to '<target>', which does not exist"; empty unless it is that.
std::string dangling_link_text(const std::filesystem::path& path);

}  // namespace ddp::ckpt
