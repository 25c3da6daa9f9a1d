// SPDX-License-Identifier: Apache-2.0
// Opens, verifies and reads one checkpoint.

#include "hdf5_ckpt/read/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <system_error>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/extents.h"
#include "hdf5_ckpt/core/parts.h"
#include "hdf5_ckpt/io/block_reader.h"
#include "hdf5_ckpt/io/posix_read.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListed = 10;
constexpr std::uint64_t kMetadataPiece = 1ULL << 20;

FileDescriptor open_directory(const fs::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) return fd;
  const int code = errno;
  if (const std::string link = dangling_link_text(path); !link.empty()) throw DamagedError(link);
  const bool missing = code == ENOENT || code == ENOTDIR;
  throw_read_error(fmt::format("'{}' {}: {}", path.string(),
                               missing ? "is not a checkpoint" : "cannot be opened",
                               std::generic_category().message(code)),
                   code);
}

Manifest read_manifest(int directory) {
  const std::string name(kManifestName);
  const std::string text = text_of(open_regular_file(directory, name), name, kMaxManifestBytes);
  try {
    return parse_manifest(text);
  } catch (const DamagedError& error) {
    throw DamagedError(fmt::format("'{}' is not valid: {}", kManifestName, error.what()));
  }
}

using WantedByFile = std::map<std::string_view, std::vector<Wanted>>;

void check_metadata(int fd, const FileInfo& file, std::vector<Extent> claimed, Meter& meter) {
  std::sort(claimed.begin(), claimed.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<std::byte> piece;
  std::uint32_t crc = 0;
  for (const Extent& gap : gaps_between(claimed, file.size))
    for (std::uint64_t at = gap.offset; at < gap.end(); at += piece.size()) {
      piece.resize(std::min(kMetadataPiece, gap.end() - at));
      const ReadResult result = read_fully(fd, piece, at);
      if (result.code != 0)
        throw_read_error(
            fmt::format("the HDF5 metadata of '{}' cannot be read at offset {}: {}", file.name,
                        at + result.bytes, std::generic_category().message(result.code)),
            result.code);
      if (result.bytes != piece.size())
        throw DamagedError(fmt::format("the HDF5 metadata of '{}' cannot be read at offset {}",
                                       file.name, at + result.bytes));
      crc = crc32c(piece, crc);
      meter.add(piece.size());
    }
  if (crc != file.metadata_crc32c)
    throw DamagedError(
        fmt::format("the HDF5 metadata of '{}' is damaged: crc32c is {:08x} and should be {:08x}",
                    file.name, crc, file.metadata_crc32c));
}

// Formats a list of at most kMaxListed items for one message.
std::string bounded_list(const char* title, const std::vector<std::string>& items) {
  if (items.empty()) return "";
  const std::size_t shown = std::min(items.size(), kMaxListed);
  std::string text = fmt::format(
      "; {}: {}", title,
      fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < items.size()) text += fmt::format(" and {} more", items.size() - shown);
  return text;
}

// Returns the reason why `target` cannot be filled from `stored`; empty if it can.
std::string misfit_of(const StoredArray& stored, const MutableArrayView& target) {
  const Shape& whole = target.part ? target.part->global_shape : target.shape;
  if (stored.dtype != target.dtype || stored.shape != whole)
    return fmt::format("is {} {} there and {} {} here", dtype_name(stored.dtype),
                       shape_text(stored.shape), dtype_name(target.dtype), shape_text(whole));
  if (target.part)
    if (std::string problem = part_problem(target.dtype, target.shape, *target.part);
        !problem.empty())
      return "is requested in a part that " + problem;
  const auto bytes = byte_count(target.dtype, target.shape);
  if (bytes != target.bytes.size())
    return fmt::format("takes {} bytes, not {}", bytes.value_or(0), target.bytes.size());
  return "";
}

// Describes the differences between `targets` and the arrays of the checkpoint, in both directions.
std::string mismatch_text(const Checkpoint& checkpoint, std::span<const MutableArrayView> targets,
                          Match match) {
  std::vector<std::string> missing;
  std::vector<std::string> different;
  std::vector<std::string> unexpected;
  std::set<std::string_view> asked;
  for (const MutableArrayView& target : targets) {
    const StoredArray* stored = checkpoint.find(target.name);
    // Several parts of one array may be requested, but a whole array only once.
    if (!asked.insert(target.name).second && !target.part)
      different.push_back(fmt::format("'{}' is requested twice", target.name));
    else if (stored == nullptr)
      missing.push_back(fmt::format("'{}'", target.name));
    else if (const std::string problem = misfit_of(*stored, target); !problem.empty())
      different.push_back(fmt::format("'{}' {}", target.name, problem));
  }
  if (match == Match::exact)
    for (const StoredArray& array : checkpoint.arrays())
      if (!asked.contains(array.name)) unexpected.push_back(fmt::format("'{}'", array.name));
  return bounded_list("missing in the checkpoint", missing) +
         bounded_list("not expected here", unexpected) + bounded_list("different", different);
}

std::vector<StoredArray> arrays_of(const Manifest& manifest) {
  std::vector<StoredArray> arrays;
  const std::span<const ArrayInfo> all(manifest.arrays);
  for (std::size_t first = 0, next = 0; first < all.size(); first = next) {
    for (next = first + 1; next < all.size() && all[next].name == all[first].name;) ++next;
    const ArrayInfo& info = all[first];
    arrays.push_back({info.name, info.dtype, info.global_shape(),
                      byte_count(info.dtype, info.global_shape()).value(),
                      all.subspan(first, next - first)});
  }
  return arrays;
}

// Prefixes errors from inside the checkpoint with its name.
template <typename Work>
auto named(const fs::path& path, const Work& work) {
  try {
    return work();
  } catch (const DamagedError& error) {
    throw DamagedError(fmt::format("checkpoint '{}': {}", path.string(), error.what()));
  } catch (const UnreadableError& error) {
    throw UnreadableError(fmt::format("checkpoint '{}': {}", path.string(), error.what()));
  }
}

}  // namespace

Checkpoint::Checkpoint(fs::path path, FileDescriptor directory, Manifest manifest)
    : path_(std::move(path)),
      directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      arrays_(arrays_of(manifest_)) {}

Checkpoint Checkpoint::open(const fs::path& path) {
  const FileDescriptor directory = open_directory(path);
  return open(path, named(path, [&] { return read_manifest(directory.get()); }));
}

Checkpoint Checkpoint::open(const fs::path& path, Manifest manifest) {
  FileDescriptor directory = open_directory(path);
  return named(path, [&] {
    Checkpoint checkpoint(path, std::move(directory), std::move(manifest));
    for (const FileInfo& file : checkpoint.manifest().files) checkpoint.open_file(file);
    return checkpoint;
  });
}

FileDescriptor Checkpoint::open_file(const FileInfo& file) const {
  OpenedFile opened = open_regular_file(directory_.get(), file.name);
  if (opened.size != file.size)
    throw DamagedError(
        fmt::format("'{}' has {} bytes and should have {}", file.name, opened.size, file.size));
  return std::move(opened.fd);
}

const StoredArray* Checkpoint::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      arrays_.begin(), arrays_.end(), name,
      [](const StoredArray& array, std::string_view wanted) { return array.name < wanted; });
  return found != arrays_.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t Checkpoint::total_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const FileInfo& file : manifest_.files) bytes += file.size;
  return bytes;
}

void Checkpoint::read_wanted(WantedByFile by_file, bool from_disk,
                             const ReadOptions& options) const {
  std::vector<std::pair<const FileInfo*, BlockList>> lists;
  std::uint64_t bytes = 0;
  for (const FileInfo& file : manifest_.files) {
    const auto found = by_file.find(file.name);
    if (found == by_file.end()) continue;
    lists.emplace_back(&file, BlockList(std::move(found->second), file.block_bytes));
    bytes += lists.back().second.bytes();
  }
  Meter meter(options.progress, bytes);
  for (const auto& [file, list] : lists) {
    FileDescriptor fd = open_file(*file);
    if (from_disk) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    FileDescriptor around_cache = options.direct_io ? open_around_cache(fd) : FileDescriptor();
    SourceFile source(std::move(fd), std::move(around_cache));
    read_blocks(source, list, options.threads, meter);
  }
}

void Checkpoint::verify(const ReadOptions& options) const {
  named(path_, [&] {
    WantedByFile wanted;
    for (const ArrayInfo& info : manifest_.arrays) wanted[info.file].push_back({&info, {}, {}});
    // Both phases count toward one total, the size of all files.
    const std::uint64_t all = total_bytes();
    std::uint64_t read = 0;
    ReadOptions reading = options;
    if (options.progress)
      reading.progress = [&](std::uint64_t done, std::uint64_t) {
        read = done;
        options.progress(done, all);
      };
    // Bypass the page cache, because its pages prove nothing about the disk.
    read_wanted(std::move(wanted), true, reading);
    Progress further;
    if (options.progress)
      further = [&](std::uint64_t done, std::uint64_t) { options.progress(read + done, all); };
    Meter meter(further, all - read);
    check_all_metadata(meter);
  });
}

void Checkpoint::verify_file(const fs::path& directory, const FileRecord& record,
                             const ReadOptions& options) {
  Manifest manifest;
  manifest.files = {record.file};
  manifest.arrays = record.arrays;
  const Checkpoint part(directory, open_directory(directory), std::move(manifest));
  part.verify(options);
}

void Checkpoint::verify_metadata() const {
  const Progress no_progress;
  Meter meter(no_progress, 0);
  named(path_, [&] { check_all_metadata(meter); });
}

void Checkpoint::check_all_metadata(Meter& meter) const {
  std::map<std::string_view, std::vector<Extent>> claimed;
  for (const ArrayInfo& array : manifest_.arrays)
    if (array.length != 0) claimed[array.file].push_back({array.offset, array.length});
  for (const FileInfo& file : manifest_.files)
    check_metadata(open_file(file).get(), file, claimed[file.name], meter);
}

OwnedArray Checkpoint::read(std::string_view name, const ReadOptions& options) const {
  const StoredArray* stored = find(name);
  if (stored == nullptr)
    throw MismatchError(fmt::format("checkpoint '{}' has no array '{}'", path_.string(), name));
  OwnedArray array{stored->dtype, stored->shape, {}};
  try {
    array.bytes.resize(stored->length);
  } catch (const std::exception&) {
    throw Error(fmt::format("array '{}' needs {} bytes of memory, more than is available", name,
                            stored->length));
  }
  const MutableArrayView target{stored->name, stored->dtype, stored->shape, array.bytes};
  read_into({&target, 1}, Match::subset, options);
  return array;
}

void Checkpoint::stream(std::string_view name, std::uint64_t piece_bytes,
                        const ReadOptions& options,
                        const std::function<void(std::span<const std::byte>)>& take) const {
  const StoredArray* stored = find(name);
  if (stored == nullptr)
    throw MismatchError(fmt::format("checkpoint '{}' has no array '{}'", path_.string(), name));
  std::vector<std::byte> piece;
  for_each_piece(stored->dtype, stored->shape, piece_bytes, [&](const Box& box) {
    piece.resize(byte_count(stored->dtype, box.extent).value());
    const MutableArrayView target{stored->name, stored->dtype, box.extent, piece,
                                  PartOf{stored->shape, box.start}};
    read_into({&target, 1}, Match::subset, options);
    take(piece);
  });
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
    for (const MutableArrayView& target : targets)
      for (const ArrayInfo& part : find(target.name)->parts) {
        Overlap overlap(box_of(part.shape, part.part), box_of(target.shape, target.part),
                        itemsize(part.dtype));
        if (overlap.runs() != 0)
          wanted[part.file].push_back({&part, std::move(overlap), target.bytes});
      }
    read_wanted(std::move(wanted), false, options);
  });
}

}  // namespace ddp::ckpt
