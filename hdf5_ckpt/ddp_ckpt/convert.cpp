// ddp-ckpt convert: arrays to and from files of other programs.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/ddp_ckpt/commands.h"
#include "hdf5_ckpt/ddp_ckpt/text.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/error.h"
#include "hdf5_ckpt/foreign.h"
#include "hdf5_ckpt/foreign_hdf5.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// A file as memory, read when looked at.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path) {
    const UniqueFd folder(::open(path.has_parent_path() ? path.parent_path().c_str() : ".",
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) throw IoError("open the folder of", path, errno);
    const OpenedFile file = open_regular_file(folder.get(), path.filename().string());
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

// Arrays and the memory they are views of.
struct Held {
  std::vector<std::vector<std::byte>> memory;
  std::vector<ArrayView> views;
};

bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors";
}

bool is_hdf5(std::span<const std::byte> bytes) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  return bytes.size() > kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

std::vector<ForeignArray> parse(const fs::path& path, std::span<const std::byte> bytes) {
  if (is_safetensors(path)) return parse_safetensors(bytes, bytes.size());
  if (is_hdf5(bytes)) return parse_hdf5(path, bytes.size());
  return parse_torch_file(bytes);
}

Held import_from(const fs::path& path, const std::string& prefix) {
  const MappedFile file(path);
  const auto arrays = parse(path, file.bytes());
  Held held;
  for (const ForeignArray& array : arrays) {
    held.memory.push_back(dense_bytes(file.bytes(), array));
    held.views.push_back({prefix + array.name, array.dtype, array.shape, held.memory.back()});
  }
  return held;
}

Held read_with_prefix(const Checkpoint& checkpoint, const std::string& prefix,
                      const Output& output) {
  Held held;
  for (const StoredArray& info : checkpoint.arrays()) {
    if (!info.name.starts_with(prefix) || info.name.size() == prefix.size()) continue;
    held.memory.push_back(checkpoint.read(info.name, {.threads = output.threads}).bytes);
    held.views.push_back(
        {info.name.substr(prefix.size()), info.dtype, info.shape, held.memory.back()});
  }
  if (held.views.empty())
    throw Error(fmt::format("'{}' has no array whose name starts with '{}'",
                            checkpoint.path().string(), prefix));
  return held;
}

}  // namespace

int run_convert(const fs::path& from, const fs::path& to, const std::string& prefix,
                const Output& output) {
  std::size_t count = 0;
  if (fs::is_directory(from)) {
    const Checkpoint checkpoint = Checkpoint::open(checkpoint_at(from));
    const Held held = read_with_prefix(checkpoint, prefix, output);
    (is_safetensors(to) ? write_safetensors : write_torch_file)(to, held.views);
    count = held.views.size();
  } else {
    const Held held = [&] {
      try {
        return import_from(from, prefix);
      } catch (const DamagedError& error) {
        throw DamagedError(
            fmt::format("'{}' cannot be converted: {}", from.string(), error.what()));
      }
    }();
    CheckpointDirectory(to).save(
        0, OwnerTag::of_this_process("convert", 0), held.views,
        {.run_id = "converted", .state = {{"source", from.filename().string()}}});
    count = held.views.size();
  }
  fmt::print("{} arrays: '{}' to '{}'\n", count, from.string(), to.string());
  return 0;
}

}  // namespace ddp::ckpt::tool
