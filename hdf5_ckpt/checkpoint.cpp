// Opening, verifying and reading one checkpoint.

#include "hdf5_ckpt/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <system_error>

#include "hdf5_ckpt/crc32c.h"
#include "hdf5_ckpt/detail/blocks.h"
#include "hdf5_ckpt/detail/extents.h"
#include "hdf5_ckpt/detail/parallel_for.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListed = 10;
constexpr std::uint64_t kMetadataPiece = 1ULL << 20;
constexpr unsigned kMaxThreads = 64;

UniqueFd open_folder(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) return fd;
  if (is_own_fault(errno)) throw IoError("open", path, errno);
  throw DamagedError(fmt::format("'{}' is not a checkpoint: {}", path.string(),
                                 std::generic_category().message(errno)));
}

std::string read_manifest_text(int folder) {
  const OpenedFile file = open_regular_file(folder, std::string(kManifestName));
  if (file.size > kMaxManifestBytes)
    throw DamagedError(
        fmt::format("'{}' is larger than {} bytes", kManifestName, kMaxManifestBytes));
  std::string text(file.size, '\0');
  const ReadResult result = read_fully(file.fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (result.code != 0)
    throw DamagedError(fmt::format("'{}' cannot be read: {}", kManifestName,
                                   std::generic_category().message(result.code)));
  text.resize(result.bytes);
  return text;
}

Manifest read_manifest(int folder) {
  const std::string text = read_manifest_text(folder);
  try {
    return parse_manifest(text);
  } catch (const DamagedError& error) {
    throw DamagedError(fmt::format("'{}' is not valid: {}", kManifestName, error.what()));
  }
}

// Adds up progress from several threads and passes it on one call at a time.
class Meter {
 public:
  Meter(const Progress& progress, std::uint64_t total) : progress_(progress), total_(total) {}
  void add(std::uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_(done_, total_);
  }

 private:
  const Progress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

// An array and where its bytes go; nowhere, if they are only to be checked.
struct Wanted {
  const ArrayInfo* info = nullptr;
  std::span<std::byte> target;
};

using WantedByFile = std::map<std::string_view, std::vector<Wanted>>;

// Reads block `block` of the array into `bytes` and compares its checksum.
void read_block(int fd, const ArrayInfo& array, std::size_t block, std::uint64_t block_bytes,
                std::span<std::byte> bytes) {
  const std::uint64_t start = block * block_bytes;
  const ReadResult result = read_fully(fd, bytes, array.offset + start);
  const auto where = [&] {
    return fmt::format("array '{}': bytes {} to {} (in '{}' at offset {})", array.name, start,
                       start + bytes.size() - 1, array.file, array.offset + start);
  };
  if (result.code != 0)
    throw DamagedError(fmt::format("{} cannot be read: {}", where(),
                                   std::generic_category().message(result.code)));
  if (result.bytes != bytes.size())
    throw DamagedError(fmt::format("{} are missing: the file has been cut off", where()));
  const std::uint32_t crc = crc32c(bytes);
  if (crc != array.block_crc32c[block])
    throw DamagedError(fmt::format("{} are damaged: crc32c is {:08x} and should be {:08x}", where(),
                                   crc, array.block_crc32c[block]));
}

// Reads and checks all blocks of `wanted`, which lie in one file.
void read_arrays(int fd, std::uint64_t block_bytes, std::vector<Wanted> wanted,
                 const ReadOptions& options, Meter& meter) {
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.info->offset < b.info->offset; });
  std::vector<std::uint64_t> lengths(wanted.size());
  std::transform(wanted.begin(), wanted.end(), lengths.begin(),
                 [](const Wanted& array) { return array.info->length; });
  const std::vector<Block> blocks = blocks_of(lengths, block_bytes);
  const unsigned threads = std::clamp(options.threads, 1U, kMaxThreads);
  std::vector<std::vector<std::byte>> scratch(threads);
  parallel_for(blocks.size(), threads, [&](std::size_t index, unsigned worker) {
    const auto [array, block] = blocks[index];
    const auto& [info, target] = wanted[array];
    std::span<std::byte> bytes;
    if (target.empty()) {
      scratch[worker].resize(std::min(block_bytes, info->length - block * block_bytes));
      bytes = scratch[worker];
    } else {
      bytes = block_of(target, block, block_bytes);
    }
    read_block(fd, *info, block, block_bytes, bytes);
    meter.add(bytes.size());
  });
}

void check_metadata(int fd, const FileInfo& file, std::vector<Extent> claimed) {
  std::sort(claimed.begin(), claimed.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<std::byte> piece;
  std::uint32_t crc = 0;
  for (const Extent& gap : gaps_between(claimed, file.size))
    for (std::uint64_t at = gap.offset; at < gap.end(); at += piece.size()) {
      piece.resize(std::min(kMetadataPiece, gap.end() - at));
      const ReadResult result = read_fully(fd, piece, at);
      if (result.bytes != piece.size())
        throw DamagedError(fmt::format("the HDF5 metadata of '{}' cannot be read at offset {}",
                                       file.name, at + result.bytes));
      crc = crc32c(piece, crc);
    }
  if (crc != file.metadata_crc32c)
    throw DamagedError(
        fmt::format("the HDF5 metadata of '{}' is damaged: crc32c is {:08x} and should be {:08x}",
                    file.name, crc, file.metadata_crc32c));
}

// Lists for one message: at most kMaxListed of them.
std::string bounded_list(const char* title, const std::vector<std::string>& items) {
  if (items.empty()) return "";
  const std::size_t shown = std::min(items.size(), kMaxListed);
  std::string text = fmt::format(
      "; {}: {}", title,
      fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < items.size()) text += fmt::format(" and {} more", items.size() - shown);
  return text;
}

// What of `targets` the checkpoint does not have as asked for, and the reverse.
std::string mismatch_text(const Checkpoint& checkpoint, std::span<const MutableArrayView> targets,
                          Match match) {
  std::vector<std::string> missing;
  std::vector<std::string> different;
  std::vector<std::string> unexpected;
  std::set<std::string_view> asked;
  for (const MutableArrayView& target : targets) {
    const ArrayInfo* info = checkpoint.find(target.name);
    if (!asked.insert(target.name).second)
      different.push_back(fmt::format("'{}' is asked for twice", target.name));
    else if (info == nullptr)
      missing.push_back(fmt::format("'{}'", target.name));
    else if (info->dtype != target.dtype || info->shape != target.shape)
      different.push_back(fmt::format("'{}' is {} {} there and {} {} here", target.name,
                                      dtype_name(info->dtype), shape_text(info->shape),
                                      dtype_name(target.dtype), shape_text(target.shape)));
    else if (info->length != target.bytes.size())
      different.push_back(fmt::format("'{}' takes {} bytes, not {}", target.name, info->length,
                                      target.bytes.size()));
  }
  if (match == Match::kExact)
    for (const ArrayInfo& info : checkpoint.arrays())
      if (!asked.contains(info.name)) unexpected.push_back(fmt::format("'{}'", info.name));
  return bounded_list("missing in the checkpoint", missing) +
         bounded_list("not expected here", unexpected) + bounded_list("different", different);
}

// Puts the checkpoint's name in front of what went wrong inside it.
template <typename Work>
auto named(const fs::path& path, const Work& work) {
  try {
    return work();
  } catch (const DamagedError& error) {
    throw DamagedError(fmt::format("checkpoint '{}': {}", path.string(), error.what()));
  }
}

}  // namespace

Checkpoint::Checkpoint(fs::path path, UniqueFd folder, Manifest manifest)
    : path_(std::move(path)), folder_(std::move(folder)), manifest_(std::move(manifest)) {}

Checkpoint Checkpoint::open(const fs::path& path) {
  UniqueFd folder = open_folder(path);
  return named(path, [&] {
    Manifest manifest = read_manifest(folder.get());
    Checkpoint checkpoint(path, std::move(folder), std::move(manifest));
    for (const FileInfo& file : checkpoint.manifest().files) checkpoint.open_file(file);
    return checkpoint;
  });
}

UniqueFd Checkpoint::open_file(const FileInfo& file) const {
  OpenedFile opened = open_regular_file(folder_.get(), file.name);
  if (opened.size != file.size)
    throw DamagedError(
        fmt::format("'{}' has {} bytes and should have {}", file.name, opened.size, file.size));
  return std::move(opened.fd);
}

const ArrayInfo* Checkpoint::find(std::string_view name) const noexcept {
  const auto& arrays = manifest_.arrays;
  const auto found = std::lower_bound(
      arrays.begin(), arrays.end(), name,
      [](const ArrayInfo& array, std::string_view wanted) { return array.name < wanted; });
  return found != arrays.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t Checkpoint::total_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const FileInfo& file : manifest_.files) bytes += file.size;
  return bytes;
}

void Checkpoint::verify(const ReadOptions& options) const {
  named(path_, [&] {
    WantedByFile wanted;
    for (const ArrayInfo& array : manifest_.arrays) wanted[array.file].push_back({&array, {}});
    std::uint64_t bytes = 0;
    for (const ArrayInfo& array : manifest_.arrays) bytes += array.length;
    Meter meter(options.progress, bytes);
    for (const FileInfo& file : manifest_.files) {
      const UniqueFd fd = open_file(file);
      // What is in memory says nothing about the disk.
      ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
      read_arrays(fd.get(), file.block_bytes, wanted[file.name], options, meter);
    }
  });
  verify_metadata();
}

void Checkpoint::verify_metadata() const {
  named(path_, [&] {
    std::map<std::string_view, std::vector<Extent>> claimed;
    for (const ArrayInfo& array : manifest_.arrays)
      if (array.length != 0) claimed[array.file].push_back({array.offset, array.length});
    for (const FileInfo& file : manifest_.files)
      check_metadata(open_file(file).get(), file, claimed[file.name]);
  });
}

OwnedArray Checkpoint::read(std::string_view name, const ReadOptions& options) const {
  const ArrayInfo* info = find(name);
  if (info == nullptr)
    throw MismatchError(fmt::format("checkpoint '{}' has no array '{}'", path_.string(), name));
  OwnedArray array{info->dtype, info->shape, {}};
  try {
    array.bytes.resize(info->length);
  } catch (const std::exception&) {
    throw Error(fmt::format("array '{}' needs {} bytes of memory, more than there are", name,
                            info->length));
  }
  const MutableArrayView target{info->name, info->dtype, info->shape, array.bytes};
  read_into({&target, 1}, Match::kSubset, options);
  return array;
}

void Checkpoint::read_into(std::span<const MutableArrayView> targets, Match match,
                           const ReadOptions& options) const {
  if (const std::string problems = mismatch_text(*this, targets, match); !problems.empty())
    throw MismatchError(fmt::format(
        "checkpoint '{}' does not fit{}; build the same model and optimizer as the run that saved "
        "it, or choose another checkpoint (ddp-ckpt show lists what one holds)",
        path_.string(), problems));
  named(path_, [&] {
    WantedByFile wanted;
    std::uint64_t bytes = 0;
    for (const MutableArrayView& target : targets) {
      const ArrayInfo* info = find(target.name);
      if (info->length != 0) wanted[info->file].push_back({info, target.bytes});
      bytes += info->length;
    }
    Meter meter(options.progress, bytes);
    for (const FileInfo& file : manifest_.files) {
      const auto found = wanted.find(file.name);
      if (found == wanted.end()) continue;
      const UniqueFd fd = open_file(file);
      read_arrays(fd.get(), file.block_bytes, found->second, options, meter);
    }
  });
}

}  // namespace ddp::ckpt
