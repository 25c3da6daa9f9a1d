// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt convert: converts arrays to and from files of other programs, piece by piece, so that
// memory use does not grow with the file.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/spool.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// Bytes of an array that are read at a time, and the limit for the additional buffers of the
// threads.
constexpr std::uint64_t kPieceBytes = 16ULL << 20;

// A file mapped into memory, read on access.
class MappedFile {
 public:
  // The user's path may be a symbolic link, because some model caches consist of links.
  explicit MappedFile(const fs::path& named) {
    std::error_code error;
    const fs::path target = fs::canonical(named, error);
    const fs::path& path = error ? named : target;
    const FileDescriptor directory(::open(path.has_parent_path() ? path.parent_path().c_str() : ".",
                                          O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) throw IoError("open the directory of", path, errno);
    const OpenedFile file = open_regular_file(directory.get(), path.filename().string());
    if (file.size == 0) throw DamagedError("the file is empty");
    void* const memory = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
    if (memory == MAP_FAILED) throw IoError("map", path, errno);
    bytes_ = {static_cast<const std::byte*>(memory), file.size};
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors";
}

bool has_at(std::span<const std::byte> bytes, std::uint64_t at, std::string_view signature) {
  return at < bytes.size() && bytes.size() - at > signature.size() &&
         std::memcmp(bytes.data() + at, signature.data(), signature.size()) == 0;
}

// HDF5 data begins at the start of a file, or after a user block of 512 bytes times a power of two,
// such as MATLAB writes.
bool is_hdf5(std::span<const std::byte> bytes) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  constexpr std::uint64_t kLeastUserBlock = 512;
  if (has_at(bytes, 0, kSignature)) return true;
  for (std::uint64_t at = kLeastUserBlock; at < bytes.size(); at *= 2)
    if (has_at(bytes, at, kSignature)) return true;
  return false;
}

// Only torch.save files contain more than arrays.
TorchFile parse(const fs::path& path, std::span<const std::byte> bytes) {
  constexpr std::string_view kZip = "PK";
  if (is_safetensors(path)) return {parse_safetensors(bytes, bytes.size())};
  if (!has_at(bytes, 0, kZip) && is_hdf5(bytes)) return {parse_hdf5(path, bytes.size())};
  return parse_torch_file(bytes);
}

void say_what_became_of_values(const TorchFile& content) {
  if (!content.values.empty())
    fmt::print("stored {} numbers and texts as 'values' in the checkpoint's state\n",
               content.values.size());
  if (content.left_out != 0)
    fmt::print(
        "{} numbers or texts were omitted: too many, too long, or not representable in JSON\n",
        content.left_out);
}

std::size_t import_file(const fs::path& from, const fs::path& to, const std::string& prefix) {
  const MappedFile file(from);
  const TorchFile content = [&] {
    try {
      return parse(from, file.bytes());
    } catch (const DamagedError& error) {
      throw DamagedError(fmt::format("'{}' cannot be converted: {}", from.string(), error.what()));
    }
  }();
  const std::vector<ExternalArray>& arrays = content.arrays;
  const Spool spool(file.bytes(), arrays, to);
  std::vector<ArrayView> views;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    views.push_back(
        {prefix + arrays[i].name, arrays[i].dtype, arrays[i].shape, spool.dense(i), {}});
  nlohmann::json state = {{"source", from.filename().string()}};
  if (!content.values.empty()) state["values"] = content.values;
  SaveOptions options;
  options.write.progress = terminal_progress(to.filename().string());
  CheckpointDirectory(to, options)
      .save(0, OwnerTag::of_this_process("convert", 0), views,
            {.run_id = "converted", .state = std::move(state)});
  say_what_became_of_values(content);
  return arrays.size();
}

std::vector<const StoredArray*> with_prefix(const Checkpoint& checkpoint,
                                            const std::string& prefix) {
  std::vector<const StoredArray*> chosen;
  for (const StoredArray& array : checkpoint.arrays())
    if (array.name.starts_with(prefix) && array.name.size() > prefix.size())
      chosen.push_back(&array);
  if (chosen.empty())
    throw Error(fmt::format("'{}' has no array whose name starts with '{}'",
                            checkpoint.path().string(), prefix));
  return chosen;
}

// The number of threads that can hold one block each within the memory limit.
unsigned threads_for(const Checkpoint& checkpoint, const Output& output) {
  std::uint64_t block = kMinBlockBytes;
  for (const FileInfo& file : checkpoint.manifest().files)
    block = std::max(block, file.block_bytes);
  return static_cast<unsigned>(std::min<std::uint64_t>(output.threads, 1 + kPieceBytes / block));
}

std::size_t export_to(const fs::path& to, const Checkpoint& checkpoint, const std::string& prefix,
                      const Output& output) {
  const auto chosen = with_prefix(checkpoint, prefix);
  std::vector<ArrayHeader> headers;
  std::uint64_t total = 0;
  for (const StoredArray* array : chosen) {
    headers.push_back({array->name.substr(prefix.size()), array->dtype, array->shape});
    total += array->length;
  }
  const Progress progress = terminal_progress(to.filename().string());
  Meter meter(progress, total);
  const ReadOptions options{threads_for(checkpoint, output), {}};
  const auto give = [&](std::size_t index, const TakeBytes& take) {
    checkpoint.stream(chosen[index]->name, kPieceBytes, options,
                      [&](std::span<const std::byte> bytes) {
                        take(bytes);
                        meter.add(bytes.size());
                      });
  };
  (is_safetensors(to) ? write_safetensors : write_torch_file)(to, headers, give);
  return headers.size();
}

// Checks the extension now, because a wrong extension would be noticed only when the file is read,
// much later.
void require_known_ending(const fs::path& to) {
  for (const char* ending : {".safetensors", ".pt", ".pth", ".bin", ".ckpt"})
    if (to.extension() == ending) return;
  throw Error(fmt::format(
      "'{}': the extension selects the format: .safetensors, or .pt (.pth, .bin, .ckpt) for "
      "torch.save's format",
      to.string()));
}

}  // namespace

int run_convert(const fs::path& from, const fs::path& to, const std::string& prefix,
                const Output& output) {
  if (fs::is_directory(from)) require_known_ending(to);
  const std::size_t count =
      fs::is_directory(from) ? export_to(to, Checkpoint::open(checkpoint_at(from)), prefix, output)
                             : import_file(from, to, prefix);
  fmt::print("{} arrays: '{}' to '{}'\n", count, from.string(), to.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
