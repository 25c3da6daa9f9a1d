// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt convert: converts arrays to and from files of other programs, piece by piece, so that
// memory use does not grow with the file.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/spool.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/convert/mapped_file.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// Bytes of an array that are read at a time, and the limit for the additional buffers of the
// threads.
constexpr std::uint64_t kPieceBytes = 16ULL << 20;

bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors";
}

// Only torch.save files contain more than arrays.
TorchFile parse(const fs::path& path, std::span<const std::byte> bytes) {
  switch (kind_of(path, bytes)) {
    case FileKind::safetensors:
      return {parse_safetensors(bytes, bytes.size())};
    case FileKind::hdf5:
      return {parse_hdf5(path, bytes.size())};
    case FileKind::torch_save:
      break;
  }
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
