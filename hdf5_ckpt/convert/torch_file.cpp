// SPDX-License-Identifier: Apache-2.0
// torch.save's format since PyTorch 1.6: a zip file with <name>/data.pkl, which describes the
// tensors and their storages, and <name>/data/<key>, the storages.

#include <fmt/format.h>

#include <algorithm>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/convert/pickle.h"
#include "hdf5_ckpt/convert/torch_contents.h"
#include "hdf5_ckpt/convert/zip.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

// Writes opcodes of pickle protocol 2.
class PickleText {
 public:
  PickleText& raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  PickleText& text(std::string_view text) {
    text_ += 'X';
    return little(text.size(), 4).raw(text);
  }
  PickleText& number(std::uint64_t value) {
    text_ += '\x8a';
    return little(8, 1).little(value, 8);
  }
  PickleText& tuple(const std::vector<std::uint64_t>& values) {
    text_ += '(';
    for (const std::uint64_t value : values) number(value);
    text_ += 't';
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  PickleText& little(std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string text_;
};

std::string_view storage_name_of(const ArrayHeader& array) {
  const std::string_view name = storage_name(array.dtype);
  if (!name.empty()) return name;
  throw Error(
      fmt::format("array '{}' is {}, for which PyTorch files have no storage type; convert to "
                  "safetensors instead",
                  array.name, dtype_name(array.dtype)));
}

std::uint64_t bytes_of(const ArrayHeader& array) {
  return byte_count(array.dtype, array.shape).value();
}

std::string pickle_of(std::span<const ArrayHeader> arrays) {
  PickleText pickle;
  pickle.raw("\x80\x02}(");
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayHeader& array = arrays[i];
    pickle.text(array.name).raw("ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle.text("storage").raw(fmt::format("ctorch\n{}\n", storage_name_of(array)));
    pickle.text(std::to_string(i)).text("cpu").number(bytes_of(array) / itemsize(array.dtype));
    pickle.raw("tQK")
        .raw(std::string_view("\0", 1))
        .tuple(array.shape)
        .tuple(dense_strides(array.shape));
    pickle.raw(
        "\x89"
        "ccollections\nOrderedDict\n)RtR");
  }
  return pickle.raw("u.").str();
}

void require_stored(const std::string& name, const ZipEntry& entry) {
  if (entry.compressed)
    throw UnsupportedError(fmt::format(
        "'{:.100}' in the zip file is compressed; unpack it, and pack it again with zip -0 -r",
        name));
}

// The text of an entry; empty if there is none.
std::string_view text_of(std::span<const std::byte> file, const ZipEntries& zip,
                         const std::string& name) {
  const auto found = zip.find(name);
  if (found == zip.end()) return {};
  require_stored(name, found->second);
  return {reinterpret_cast<const char*>(file.data() + found->second.offset), found->second.size};
}

bool is_big_endian(std::string_view order) {
  if (order == "little" || order.empty()) return false;
  if (order == "big") return true;
  throw DamagedError("it has a byte order that is neither little nor big");
}

// The storages in <directory>data/<key>.
TorchStorages storages_of(std::span<const std::byte> file, const ZipEntries& zip,
                          const std::string& directory) {
  TorchStorages storages{
      {}, is_big_endian(text_of(file, zip, directory + "byteorder")), file.size()};
  const std::string data = directory + "data/";
  for (auto at = zip.lower_bound(data); at != zip.end() && at->first.starts_with(data); ++at) {
    require_stored(at->first, at->second);
    storages.places.emplace(at->first.substr(data.size()), at->second);
  }
  return storages;
}

}  // namespace

FileContents parse_torch_file(std::span<const std::byte> file) {
  if (is_old_torch_file(file)) return parse_old_torch_file(file);
  const ZipEntries zip = parse_zip(file);
  require_torch_entries(zip);
  check_zip(file, zip);
  constexpr std::string_view kPickle = "data.pkl";
  const auto& [name, entry] = *std::find_if(
      zip.begin(), zip.end(), [](const auto& one) { return one.first.ends_with("/data.pkl"); });
  require_stored(name, entry);
  const TorchStorages storages =
      storages_of(file, zip, name.substr(0, name.size() - kPickle.size()));
  const Pickle pickle = parse_pickle(file.subspan(entry.offset, entry.size));
  return torch_contents(pickle.root, storages);
}

void write_torch_file(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                      const GiveBytes& give) {
  if (arrays.size() > kMaxPlainEntries - 2)  // besides the pickle and the version
    throw Error(
        fmt::format("a .pt file has room for {} arrays; write .safetensors", kMaxPlainEntries - 2));
  const std::string pickle = pickle_of(arrays);
  const std::string version = "3\n";
  std::vector<ZipSource> sources;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    sources.push_back({fmt::format("archive/data/{}", i), bytes_of(arrays[i])});
  sources.push_back({"archive/data.pkl", pickle.size()});
  sources.push_back({"archive/version", version.size()});
  TargetFile file(system_file_ops(), path, false);
  write_zip(file, sources, [&](std::size_t index, const TakeBytes& take) {
    if (index < arrays.size()) return give(index, take);
    take(std::as_bytes(std::span(index == arrays.size() ? pickle : version)));
  });
  file.sync();
  file.close();
}

}  // namespace ddp::ckpt
