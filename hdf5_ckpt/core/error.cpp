// SPDX-License-Identifier: Apache-2.0
// The text of an operating system error, with a remedy for the common ones.

#include "hdf5_ckpt/core/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace ddp::ckpt {
namespace {

std::string remedy(int code) {
  switch (code) {
    case ENOSPC:
      return "; free space there or choose another checkpoint directory";
    case EDQUOT:
      return "; your quota there is used up: delete old checkpoints or choose another directory";
    case EFBIG:
      return "; raise the file size limit (ulimit -f) or choose another file system";
    case EACCES:
    case EPERM:
      return "; check the owner and mode of the directory";
    case EROFS:
      return "; the file system is mounted read-only";
    case EIO:
      return "; the disk or the file server failed, see dmesg on this node";
    default:
      return "";
  }
}

}  // namespace

IoError::IoError(const std::string& action, const std::filesystem::path& path, int code)
    : Error(fmt::format("cannot {} '{}': {}{}", action, path.string(),
                        std::generic_category().message(code), remedy(code))),
      code_(code) {}

std::string dangling_link_text(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error)) || fs::exists(path, error)) return "";
  return fmt::format("'{}' is a symbolic link to '{}', which does not exist", path.string(),
                     fs::read_symlink(path, error).string());
}

}  // namespace ddp::ckpt
