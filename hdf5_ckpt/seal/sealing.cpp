// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/sealing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/seal/file_checksums.h"
#include "hdf5_ckpt/seal/file_tree.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// So that most of the bytes are on the disk when it comes to sync().
void start_writing(std::span<const FileToRead> files) {
  for (const FileToRead& file : files) {
    const OpenedFile opened = open_named_file(file.path);
    ::sync_file_range(opened.fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // a hint
  }
}

void sync(FileOps& ops, std::span<const FileToRead> files, unsigned threads) {
  parallel_for(files.size(), threads, [&](std::size_t i, unsigned) {
    const OpenedFile opened = open_named_file(files[i].path);
    while (ops.fsync(opened.fd.get()) != 0)
      if (errno != EINTR) throw IoError("sync", files[i].path, errno);
  });
}

fs::path file_in(const fs::path& checkpoint, const std::string& path) {
  return path.empty() ? checkpoint : checkpoint / path;
}

std::vector<FileToRead> files_to_read(const fs::path& checkpoint, const FileTree& tree) {
  std::vector<FileToRead> files;
  for (const auto& [path, file] : tree.files)
    files.push_back({file_in(checkpoint, path), file.bytes});
  return files;
}

void require_sealable(const fs::path& checkpoint, const FileTree& tree) {
  if (!tree.others.empty())
    throw Error(fmt::format("'{}' cannot be sealed: {} is neither a file nor a link",
                            checkpoint.string(), quote_for_display(tree.others.front())));
  const bool has_bytes =
      std::ranges::any_of(tree.files, [](const auto& file) { return file.second.bytes != 0; });
  if (!has_bytes)
    throw Error(fmt::format("'{}' cannot be sealed: there is nothing in it", checkpoint.string()));
}

// The first path of which the two trees disagree.
std::string first_difference(const FileTree& before, const FileTree& after) {
  for (const auto& [path, file] : after.files) {
    const auto found = before.files.find(path);
    if (found == before.files.end() || found->second != file) return path;
  }
  for (const auto& [path, file] : before.files)
    if (!after.files.contains(path)) return path;
  return "";
}

void require_same(const fs::path& checkpoint, const FileTree& before, const FileTree& after) {
  if (before.files == after.files && before.links == after.links && after.others.empty()) return;
  const std::string path = first_difference(before, after);
  throw Error(fmt::format("'{}' changed while it was sealed{}: seal it when all ranks have saved",
                          checkpoint.string(),
                          path.empty() ? "" : fmt::format(" ({})", quote_for_display(path))));
}

Seal seal_for(const FileTree& tree, const std::vector<std::uint32_t>& checksums) {
  Seal seal;
  std::int64_t youngest = 0;
  for (const auto& [path, file] : tree.files) {
    seal.files.push_back({path, file.bytes, checksums[seal.files.size()]});
    youngest = std::max(youngest, file.modified_ns);
  }
  seal.written_ns = youngest;
  for (const auto& [path, target] : tree.links) seal.links.push_back({path, target});
  return seal;
}

std::string text_for(const fs::path& checkpoint, const Seal& seal) {
  try {
    return serialize_seal(seal);
  } catch (const Error& error) {
    throw Error(fmt::format("'{}' cannot be sealed: {}", checkpoint.string(), error.what()));
  }
}

// It may be whole if it cannot be listed.
FileTree readable_tree(const fs::path& checkpoint) {
  try {
    return read_file_tree(checkpoint, kMaxSealedFiles * 2);
  } catch (const IoError& error) {
    throw UnreadableError(error.what());
  }
}

// Another program may have a file of that name.
void require_own_place(const fs::path& seal) {
  constexpr std::size_t kBeginning = 256;
  if (!is_there(system_file_ops(), seal)) return;
  std::string text(kBeginning, '\0');
  read_fully(open_named_file(seal).fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (text.find("slurm-ddp/seal/") == std::string::npos)
    throw Error(fmt::format("'{}' is no seal, and is not replaced: move it away", seal.string()));
}

// Two containers may have the same host and process numbers.
fs::path draft_of(const fs::path& seal) {
  const std::string owner = OwnerTag::of_this_process("ddp-ckpt", 0).text();
  return seal.parent_path() /
         fmt::format("{}{}.{:08x}", kSealDraftPrefix, owner, std::random_device()());
}

// Programs delete old checkpoints by the time of their directories, so that stays as it is.
void put_in_place(FileOps& ops, const fs::path& checkpoint, const std::string& text) {
  const fs::path seal = seal_of(checkpoint);
  struct stat before = {};
  const bool is_known = ::stat(checkpoint.c_str(), &before) == 0;
  replace_durable_file(ops, seal, draft_of(seal), text);
  const std::array times = {before.st_atim, before.st_mtim};
  if (is_known && seal.parent_path() == checkpoint)
    ::utimensat(AT_FDCWD, checkpoint.c_str(), times.data(), 0);
}

SealedContents contents_of(const Seal& seal) {
  SealedContents contents{seal.files.size(), seal.links.size()};
  for (const SealedFile& file : seal.files) contents.bytes += file.bytes;
  return contents;
}

// What is wrong with a file before it is read; empty if it can be.
std::string problem_in(const FileTree& tree, const SealedFile& file) {
  const auto found = tree.files.find(file.path);
  if (found == tree.files.end()) {
    const bool is_link = tree.links.contains(file.path);
    const bool is_other = std::ranges::binary_search(tree.others, file.path);
    return is_link ? "is a link" : is_other ? "is not a regular file" : "is missing";
  }
  if (found->second.bytes == file.bytes) return "";
  return fmt::format("has {} bytes in place of {}", found->second.bytes, file.bytes);
}

class Problems {
 public:
  explicit Problems(const fs::path& checkpoint) : checkpoint_(checkpoint) {}

  void add(const std::string& path, const std::string& problem) {
    if (problem.empty()) return;
    if (++count_ > kMost) return;
    if (count_ > 1) text_ += "; ";
    text_ += path.empty() ? "it " + problem : quote_for_display(path) + " " + problem;
  }

  void raise() const {
    if (count_ == 0) return;
    throw DamagedError(
        fmt::format("'{}' is not what was sealed: {}{}", checkpoint_.string(), text_,
                    count_ > kMost ? fmt::format("; and {} more", count_ - kMost) : ""));
  }

 private:
  static constexpr std::size_t kMost = 5;
  const fs::path& checkpoint_;
  std::size_t count_ = 0;
  std::string text_;
};

void add_links(const Seal& seal, const FileTree& tree, Problems& problems) {
  for (const SealedLink& link : seal.links) {
    const auto found = tree.links.find(link.path);
    if (found == tree.links.end())
      problems.add(link.path, "is no longer a link");
    else if (found->second != link.target)
      problems.add(link.path, "points to another place");
  }
}

void require_seal(const fs::path& checkpoint, const fs::path& seal) {
  struct stat status = {};
  if (::lstat(seal.c_str(), &status) == 0) return;
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR)
    throw DamagedError(
        fmt::format("'{}' is not sealed: its save was not completed, or it was never sealed",
                    checkpoint.string()));
  throw UnreadableError(fmt::format("'{}' cannot be inspected: {}", checkpoint.string(),
                                    std::generic_category().message(code)));
}

}  // namespace

fs::path real_path(const fs::path& named) {
  std::error_code missing;
  const fs::path path = fs::canonical(named, missing);
  return missing ? absolute_directory(named) : path;
}

SealedContents seal_checkpoint(const fs::path& named, const SealOptions& options, FileOps& ops) {
  const fs::path checkpoint = real_path(named);
  const FileTree tree = read_file_tree(checkpoint, kMaxSealedFiles);
  require_sealable(checkpoint, tree);
  require_own_place(seal_of(checkpoint));
  const std::vector<FileToRead> files = files_to_read(checkpoint, tree);
  start_writing(files);
  const auto checksums = file_checksums(files, ReadFrom::cache, options.threads, options.progress);
  sync(ops, files, options.threads);
  for (const fs::path& directory : tree.directories) sync_directory(ops, directory);
  sync_directory(ops, checkpoint.parent_path());
  require_same(checkpoint, tree, read_file_tree(checkpoint, kMaxSealedFiles));
  const Seal seal = seal_for(tree, checksums);
  put_in_place(ops, checkpoint, text_for(checkpoint, seal));
  return contents_of(seal);
}

bool is_sealed(const fs::path& checkpoint) {
  return is_there(system_file_ops(), seal_of(real_path(checkpoint)));
}

Seal read_seal(const fs::path& named) {
  const fs::path checkpoint = real_path(named);
  const fs::path seal = seal_of(checkpoint);
  require_seal(checkpoint, seal);
  const std::string text = text_of(open_named_file(seal), seal.string(), kMaxSealBytes);
  try {
    return parse_seal(text);
  } catch (const DamagedError& error) {
    throw DamagedError(fmt::format("the seal '{}' is damaged: {}", seal.string(), error.what()));
  } catch (const UnreadableError&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("the seal '{}': {}", seal.string(), error.what()));
  }
}

SealedContents verify_sealed(const fs::path& named, const SealOptions& options) {
  const fs::path checkpoint = real_path(named);
  const Seal seal = read_seal(checkpoint);
  const FileTree tree = readable_tree(checkpoint);
  Problems problems(checkpoint);
  std::vector<FileToRead> files;
  std::vector<const SealedFile*> sealed;
  for (const SealedFile& file : seal.files) {
    const std::string problem = problem_in(tree, file);
    problems.add(file.path, problem);
    if (!problem.empty()) continue;
    files.push_back({file_in(checkpoint, file.path), file.bytes});
    sealed.push_back(&file);
  }
  add_links(seal, tree, problems);
  problems.raise();  // without a look at the other files, which may be large
  const auto checksums = file_checksums(files, ReadFrom::disk, options.threads, options.progress);
  for (std::size_t i = 0; i < files.size(); ++i)
    if (checksums[i] != sealed[i]->crc32c)
      problems.add(sealed[i]->path,
                   fmt::format("is damaged: its checksum is {} in place of {}",
                               checksum_text(checksums[i]), checksum_text(sealed[i]->crc32c)));
  problems.raise();
  SealedContents contents = contents_of(seal);
  contents.added =
      tree.files.size() + tree.links.size() + tree.others.size() - contents.files - contents.links;
  return contents;
}

}  // namespace ddp::ckpt
