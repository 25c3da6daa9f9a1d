// SPDX-License-Identifier: Apache-2.0
// torch.save's format since PyTorch 1.6: a zip file with <name>/data.pkl, which describes the
// tensors and their storages, and <name>/data/<key>, the storages.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/pickle.h"
#include "hdf5_ckpt/convert/zip.h"
#include "hdf5_ckpt/detail/json_fields.h"
#include "hdf5_ckpt/detail/names.h"
#include "hdf5_ckpt/error.h"
#include "hdf5_ckpt/manifest.h"

namespace ddp::ckpt {
namespace {

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<StorageType, 12> kStorages = {{{"DoubleStorage", DType::float64},
                                                    {"FloatStorage", DType::float32},
                                                    {"HalfStorage", DType::float16},
                                                    {"BFloat16Storage", DType::bfloat16},
                                                    {"LongStorage", DType::int64},
                                                    {"IntStorage", DType::int32},
                                                    {"ShortStorage", DType::int16},
                                                    {"CharStorage", DType::int8},
                                                    {"ByteStorage", DType::uint8},
                                                    {"BoolStorage", DType::boolean},
                                                    {"ComplexFloatStorage", DType::complex64},
                                                    {"ComplexDoubleStorage", DType::complex128}}};
constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxStateValues = 10000;
constexpr std::size_t kMaxText = 4096;
// Limit on tensors that share a storage: a small file must not expand into a large checkpoint.
constexpr std::uint64_t kMaxSharing = 64;

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::map<std::string, ZipEntry>& entries,
         std::string directory)
      : file_(file), entries_(entries), directory_(std::move(directory)) {}

  void collect(PicklePointer value, const std::string& path, int depth) {
    if (depth > kMaxDepth) throw DamagedError("its objects are nested too deep");
    if (const auto* tensor = std::get_if<PickleTensor>(&value->value)) add(*tensor, path);
    if (const auto* truth = std::get_if<bool>(&value->value)) keep(*truth, path);
    if (const auto* number = std::get_if<std::int64_t>(&value->value)) keep(*number, path);
    if (const auto* number = std::get_if<double>(&value->value)) keep(*number, path);
    if (const auto* text = std::get_if<std::string>(&value->value)) keep_text(*text, path);
    const auto child = [&](const std::string& key, PicklePointer item) {
      if (++visited_ > kMaxArrays * 16) throw DamagedError("it holds too many objects");
      collect(item, path.empty() ? key : path + "/" + key, depth + 1);
    };
    if (const auto* dict = std::get_if<PickleDict>(&value->value))
      for (const auto& [key, item] : dict->items) child(key_text(key), item);
    if (const auto* list = std::get_if<PickleList>(&value->value))
      for (std::size_t i = 0; i < list->items.size(); ++i) child(std::to_string(i), list->items[i]);
  }

  TorchFile take() {
    std::sort(found_.arrays.begin(), found_.arrays.end(),
              [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  static std::string key_text(PicklePointer key) {
    if (const auto* text = std::get_if<std::string>(&key->value)) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&key->value)) return std::to_string(*number);
    throw DamagedError("a dictionary has a key that is neither text nor number");
  }

  void keep_text(const std::string& text, const std::string& path) {
    if (text.size() > kMaxText)
      ++found_.left_out;
    else
      keep(text, path);
  }

  void keep(nlohmann::json value, const std::string& path) {
    const bool room = found_.values.size() < kMaxStateValues && path.size() <= kMaxText;
    if (!room || !json_problem({{path, value}}).empty())
      ++found_.left_out;
    else
      found_.values[path] = std::move(value);
  }

  void add(const PickleTensor& tensor, const std::string& name) {
    if (const std::string problem = array_name_problem(name); !problem.empty())
      throw DamagedError(fmt::format("the name of a tensor {}", problem));
    const auto type =
        std::find_if(kStorages.begin(), kStorages.end(),
                     [&](const StorageType& known) { return known.name == tensor.storage.type; });
    if (type == kStorages.end())
      throw DamagedError(
          fmt::format("tensor '{}' is of a type that a checkpoint cannot hold", name));
    const auto entry = entries_.find(directory_ + "data/" + tensor.storage.key);
    if (entry == entries_.end())
      throw DamagedError(fmt::format("the storage of tensor '{}' is missing", name));
    check_inside(tensor, type->dtype, entry->second, name);
    found_.arrays.push_back({name, type->dtype, tensor.shape, tensor.strides,
                             entry->second.offset + tensor.offset * itemsize(type->dtype)});
  }

  // Checks that the last element is inside the storage, and that the elements together do not take
  // many times the storage's bytes.
  void check_inside(const PickleTensor& tensor, DType dtype, const ZipEntry& storage,
                    const std::string& name) {
    const auto refuse = [&] {
      throw DamagedError(fmt::format("tensor '{}' reaches beyond its storage", name));
    };
    if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > kMaxRank) refuse();
    const auto bytes = byte_count(dtype, tensor.shape);
    const std::uint64_t room = storage.size / itemsize(dtype);
    if (!bytes || tensor.offset > room) refuse();
    if (*bytes == 0) return;
    std::uint64_t last = tensor.offset;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::uint64_t steps = tensor.shape[i] - 1;
      if (steps != 0 && tensor.strides[i] > (room - last) / steps) refuse();
      last += steps * tensor.strides[i];
    }
    if (last >= room) refuse();
    total_ += *bytes;
    if (total_ / kMaxSharing > file_.size())
      throw DamagedError("its tensors claim far more bytes than the file has");
  }

  std::span<const std::byte> file_;
  const std::map<std::string, ZipEntry>& entries_;
  std::string directory_;
  TorchFile found_;
  std::uint64_t total_ = 0;
  std::size_t visited_ = 0;
};

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

const StorageType& storage_type_of(const ArrayHeader& array) {
  for (const StorageType& known : kStorages)
    if (known.dtype == array.dtype) return known;
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
    const StorageType& type = storage_type_of(array);
    std::vector<std::uint64_t> strides(array.shape.size(), 1);
    for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * array.shape[d];
    pickle.text(array.name).raw("ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle.text("storage").raw(fmt::format("ctorch\n{}\n", type.name));
    pickle.text(std::to_string(i)).text("cpu").number(bytes_of(array) / itemsize(array.dtype));
    pickle.raw("tQK").raw(std::string_view("\0", 1)).tuple(array.shape).tuple(strides);
    pickle.raw(
        "\x89"
        "ccollections\nOrderedDict\n)RtR");
  }
  return pickle.raw("u.").str();
}

}  // namespace

TorchFile parse_torch_file(std::span<const std::byte> file) {
  const auto entries = parse_zip(file);
  constexpr std::string_view kPickle = "/data.pkl";
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.ends_with(kPickle);
  });
  if (found == entries.end())
    throw DamagedError("the zip file lacks data.pkl, which every file of torch.save contains");
  const Pickle pickle = parse_pickle(file.subspan(found->second.offset, found->second.size));
  const std::string directory = found->first.substr(0, found->first.size() - kPickle.size() + 1);
  Reader reader(file, entries, directory);
  reader.collect(pickle.root, "", 0);
  return reader.take();
}

void write_torch_file(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                      const GiveBytes& give) {
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
