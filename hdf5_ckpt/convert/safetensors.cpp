// SPDX-License-Identifier: Apache-2.0
// The format: eight bytes of header length, a JSON header, then all bytes without holes.
// https://github.com/huggingface/safetensors#format

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/io/target_file.h"

namespace ddp::ckpt {
namespace {

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<DTypeName, 16> kNames = {{{"F64", DType::float64},
                                               {"F32", DType::float32},
                                               {"F16", DType::float16},
                                               {"BF16", DType::bfloat16},
                                               {"I64", DType::int64},
                                               {"I32", DType::int32},
                                               {"I16", DType::int16},
                                               {"I8", DType::int8},
                                               {"U8", DType::uint8},
                                               {"BOOL", DType::boolean},
                                               {"F8_E4M3", DType::float8_e4m3fn},
                                               {"F8_E5M2", DType::float8_e5m2},
                                               {"U16", DType::uint16},
                                               {"U32", DType::uint32},
                                               {"U64", DType::uint64},
                                               {"C64", DType::complex64}}};

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kFormat = "format";
constexpr std::size_t kMaxMetadataText = 4096;  // bytes
constexpr std::size_t kMaxMetadata = 1000;      // texts

std::string_view name_of(const ArrayHeader& array) {
  for (const DTypeName& known : kNames)
    if (known.dtype == array.dtype) return known.name;
  throw Error(fmt::format("array '{}' is {}, for which safetensors has no name; write .pt",
                          array.name, dtype_name(array.dtype)));
}

std::optional<DType> dtype_named(const std::string& name) {
  for (const DTypeName& known : kNames)
    if (known.name == name) return known.dtype;
  return std::nullopt;
}

std::uint64_t unsigned_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number_unsigned())
    throw DamagedError(fmt::format("{} is not a number of at least 0", where));
  return value.get<std::uint64_t>();
}

struct Placed {
  ExternalArray array;
  std::string unknown_type;  // not empty: its elements cannot be read
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Placed parse_entry(const std::string& name, const nlohmann::json& entry) {
  if (const std::string problem = array_name_problem(name); !problem.empty())
    throw DamagedError(fmt::format("a tensor's name {}", problem));
  const JsonFields fields(entry, fmt::format("tensor '{}'", name));
  const auto dtype = dtype_named(fields.text("dtype"));
  Placed placed;
  placed.array.name = name;
  if (!dtype) placed.unknown_type = fields.text("dtype");
  for (const auto& extent : fields.list("shape", kMaxRank))
    placed.array.shape.push_back(unsigned_of(extent, fields.where() + ".shape"));
  const auto& offsets = fields.list("data_offsets", 2);
  if (offsets.size() != 2) fields.fail("data_offsets", "does not have two numbers");
  placed.begin = unsigned_of(offsets[0], fields.where() + ".data_offsets");
  placed.end = unsigned_of(offsets[1], fields.where() + ".data_offsets");
  if (placed.end < placed.begin) fields.fail("data_offsets", "are exchanged");
  if (!dtype) return placed;
  placed.array.dtype = *dtype;
  const auto bytes = byte_count(*dtype, placed.array.shape);
  if (!bytes || placed.end - placed.begin != *bytes)
    fields.fail("data_offsets", "do not fit the shape");
  placed.array.strides = dense_strides(placed.array.shape);
  return placed;
}

// Texts about the file as a whole.
void keep_metadata(const nlohmann::json& metadata, FileContents& contents) {
  if (metadata.is_null()) return;
  if (!metadata.is_object()) throw DamagedError("its __metadata__ is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (key == kFormat) continue;  // the library that wrote it: the bytes are the same for all
    const std::string path = "__metadata__/" + key;
    if (value.is_string() && value.get_ref<const std::string&>().size() <= kMaxMetadataText &&
        path.size() <= kMaxMetadataText && contents.values.size() < kMaxMetadata)
      contents.values[path] = value;
    else
      contents.left_out.add(path, "too long, or not a text");
  }
}

// Rejects holes, overlap and trailing bytes.
void check_cover(std::vector<Placed>& placed, std::uint64_t data_bytes) {
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const Placed& one : placed) {
    if (one.begin != at)
      throw DamagedError(fmt::format("tensor '{}' begins at byte {} of the data, not at {}",
                                     one.array.name, one.begin, at));
    at = one.end;
  }
  if (at != data_bytes)
    throw DamagedError(fmt::format("the tensors have {} bytes, the file has {}{}", at, data_bytes,
                                   at > data_bytes ? "; copy or download it again" : ""));
}

}  // namespace

FileContents parse_safetensors(std::span<const std::byte> head, std::uint64_t size) {
  std::uint64_t length = 0;
  if (head.size() < sizeof length) throw DamagedError("the file is too short for a header");
  std::memcpy(&length, head.data(), sizeof length);
  if (length > kMaxExternalHeader || length > size - sizeof length ||
      length > head.size() - sizeof length)
    throw DamagedError(
        fmt::format("the header claims {} bytes, and the file has {}; copy or download it again",
                    length, size));
  const auto* text = reinterpret_cast<const char*>(head.data() + sizeof length);
  const nlohmann::json header = parse_json({text, length});
  if (!header.is_object()) throw DamagedError("the header is not a JSON object");
  FileContents contents;
  std::vector<Placed> placed;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata)
      keep_metadata(entry, contents);
    else
      placed.push_back(parse_entry(name, entry));
  }
  check_cover(placed, size - sizeof length - length);
  for (Placed& one : placed) {
    one.array.offset = sizeof length + length + one.begin;
    if (one.unknown_type.empty())
      contents.arrays.push_back(std::move(one.array));
    else
      contents.unreadable.push_back(
          {one.array.name,
           fmt::format("its type is {:.40}, which a checkpoint cannot hold", one.unknown_type)});
  }
  std::sort(contents.arrays.begin(), contents.arrays.end(),
            [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
  return contents;
}

void write_safetensors(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                       const GiveBytes& give) {
  // transformers up to 4.48 refuses a file without this: it says that the names and shapes are
  // those of PyTorch.
  nlohmann::json header = {{kMetadata, {{kFormat, "pt"}}}};
  std::uint64_t offset = 0;
  for (const ArrayHeader& array : arrays) {
    const std::uint64_t end = offset + byte_count(array.dtype, array.shape).value();
    header[array.name] = {
        {"dtype", name_of(array)}, {"shape", array.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  TargetFile file(system_file_ops(), path, false);
  file.reserve(sizeof length + length + offset);
  std::uint64_t at = 0;
  const auto append = [&](std::span<const std::byte> bytes) {
    file.write(bytes, at);
    at += bytes.size();
  };
  append(std::as_bytes(std::span(&length, 1)));
  append(std::as_bytes(std::span(text)));
  for (std::size_t i = 0; i < arrays.size(); ++i) give(i, append);
  file.sync();
  file.close();
}

}  // namespace ddp::ckpt
