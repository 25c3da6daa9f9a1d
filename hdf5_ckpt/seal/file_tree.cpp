// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/file_tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/seal/seal.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

bool is_left_out(std::string_view name, bool is_top) {
  const bool is_seal = name == kSealName || name.starts_with(kSealDraftPrefix);
  return (is_top && is_seal) || name.starts_with(".nfs");
}

FoundFile found(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_size), modified_ns(status),
          static_cast<std::uint64_t>(status.st_ino)};
}

std::string link_target(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error) throw IoError("read the link", path, error.value());
  return target.native();
}

class Walk {
 public:
  explicit Walk(std::size_t most) : most_(most) {}

  void enter(const fs::path& path, const std::string& name) {
    if (++count_ > most_)
      throw Error(fmt::format("there are more than {} entries up to '{}'", most_, path.string()));
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT) return;  // removed since it was listed
      throw IoError("inspect", path, errno);
    }
    if (S_ISDIR(status.st_mode)) {
      tree_.directories.push_back(path);
      for (const std::string& child : names_in_directory(system_file_ops(), path))
        if (!is_left_out(child, name.empty()))
          enter(path / child, (fs::path(name) / child).native());
    } else if (S_ISREG(status.st_mode)) {
      tree_.files[name] = found(status);
    } else if (S_ISLNK(status.st_mode)) {
      tree_.links[name] = link_target(path);
    } else {
      tree_.others.push_back(name);
    }
  }

  FileTree take() {
    std::ranges::sort(tree_.others);
    std::ranges::sort(tree_.directories);
    return std::move(tree_);
  }

 private:
  std::size_t most_;
  std::size_t count_ = 0;
  FileTree tree_;
};

}  // namespace

std::int64_t modified_ns(const struct stat& status) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec;
}

FileTree read_file_tree(const fs::path& checkpoint, std::size_t most) {
  struct stat status = {};
  if (::lstat(checkpoint.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
    throw DamagedError(fmt::format("'{}' does not exist", checkpoint.string()));
  Walk walk(most);
  walk.enter(checkpoint, "");
  return walk.take();
}

}  // namespace ddp::ckpt
