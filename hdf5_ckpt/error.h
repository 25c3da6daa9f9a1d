#pragma once
// What the library throws. Every message is one sentence or two: what is wrong, where, and what to
// do about it where that is known.

#include <filesystem>
#include <stdexcept>
#include <string>

namespace ddp::ckpt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The operating system refused; code() is the errno value (ENOSPC, EIO, ...).
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

// What could not be read just now, with nothing known about its bytes: no permission, a file server
// that does not answer, a disk that reports an error. It may be whole: nothing older may take its
// place, and nobody may move it away.
class UnreadableError : public Error {
 public:
  using Error::Error;
};

// The checkpoint is sound, but not what the caller asked for (names, shapes, dtypes): falling back
// to an older one would not help.
class MismatchError : public Error {
 public:
  using Error::Error;
};

}  // namespace ddp::ckpt
