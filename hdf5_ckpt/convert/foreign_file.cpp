// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/foreign_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/errors.h"
#include "base/text.h"
#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/manifest.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".index.json";
constexpr std::size_t kMaxParts = 10000;

// "part 1 of 3" of "model-00001-of-00003.safetensors"; empty for other names.
std::string part_text(const fs::path& path) {
  const std::string stem = path.stem().string();
  const auto of = stem.rfind("-of-");
  const auto dash = of == std::string::npos ? of : stem.rfind('-', of - 1);
  if (dash == std::string::npos) return "";
  const auto number = [&](std::size_t begin, std::size_t end) {
    const std::string digits = stem.substr(begin, end - begin);
    const bool all = digits.find_first_not_of("0123456789") == std::string::npos;
    return all && !digits.empty() && digits.size() < 9 ? std::stoul(digits) : 0UL;
  };
  const auto part = number(dash + 1, of);
  const auto parts = number(of + 4, stem.size());
  return part != 0 && parts > 1 ? fmt::format("part {} of {}", part, parts) : "";
}

std::optional<fs::path> index_in(const fs::path& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().filename().string().ends_with(kIndexEnding)) return entry.path();
  return std::nullopt;
}

constexpr std::string_view kDistributed =
    "it was written by torch.distributed.checkpoint; join its files first: python -m "
    "torch.distributed.checkpoint.format_utils dcp_to_torch {} NEW.pt";

void require_whole(const fs::path& path) {
  if (path.extension() == ".distcp")
    throw UnsupportedError(fmt::format(fmt::runtime(kDistributed),
                                       shell_word(fs::absolute(path).parent_path().string())));
  const std::string part = part_text(path);
  const auto index = part.empty() ? std::nullopt : index_in(fs::absolute(path).parent_path());
  if (index)
    throw UnsupportedError(fmt::format("it is only {} of a model; name the directory or '{}'", part,
                                       index->filename().string()));
}

FileContents parse(const fs::path& path, std::span<const std::byte> bytes, FileKind kind,
                   PlainHdf5 hdf5) {
  switch (kind) {
    case FileKind::safetensors:
      return parse_safetensors(bytes, bytes.size());
    case FileKind::torch_save:
      return parse_torch_file(bytes);
    case FileKind::hdf5:
      break;
  }
  if (hdf5 == PlainHdf5::read) return parse_hdf5(path, bytes.size());
  const fs::path directory = fs::absolute(path).parent_path();
  std::error_code ignored;
  if (fs::exists(directory / kManifestName, ignored))
    throw UnsupportedError(
        fmt::format("it is one file of a checkpoint, which is read as a whole; "
                    "name the directory '{}'",
                    directory.string()));
  throw UnsupportedError(
      fmt::format("it is a plain HDF5 file; convert it first: ddp-ckpt convert {} DIRECTORY "
                  "--prefix model/",
                  shell_word(path.string())));
}

// Our own HDF5 files have the checksums of their arrays.
void check_sum(std::span<const std::byte> file, const ExternalArray& array) {
  if (!array.crc32c || !is_plain(array)) return;
  const std::uint64_t bytes = byte_count(array.dtype, array.shape).value();
  if (crc32c(file.subspan(array.offset, bytes)) != *array.crc32c)
    throw DamagedError(fmt::format("array '{}' does not have its checksum", array.name));
}

// The files of an index, each with the names of its arrays.
using IndexedFiles = std::map<std::string, std::set<std::string>>;

IndexedFiles parts_in(const MappedFile& index) {
  const auto* text = reinterpret_cast<const char*>(index.bytes().data());
  if (index.bytes().size() > kMaxExternalHeader) throw DamagedError("the index is too long");
  const nlohmann::json root = parse_json({text, index.bytes().size()});
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object())
    throw UnsupportedError("it is an index without a 'weight_map', which names the files");
  IndexedFiles parts;
  for (const auto& [name, file] : map->items()) {
    const std::string path = file.is_string() ? file.get<std::string>() : "";
    if (path.empty() || path.find('/') != std::string::npos || path == "." || path == "..")
      throw DamagedError(fmt::format("the file of tensor '{}' is not a plain file name", name));
    parts[path].insert(name);
    if (parts.size() > kMaxParts) throw DamagedError("the index names too many files");
  }
  return parts;
}

// Moves what `names` lists from the contents of one file to those of all.
void take(FileContents& all, FileContents part, std::set<std::string> names, std::size_t file,
          const std::string& file_name) {
  for (ExternalArray& array : part.arrays) {
    array.file = file;
    if (names.erase(array.name) != 0)
      all.arrays.push_back(std::move(array));
    else
      all.left_out.add(array.name, fmt::format("in '{}', but not in the index", file_name));
  }
  for (Omission& one : part.unreadable)
    if (names.erase(one.name) != 0) all.unreadable.push_back(std::move(one));
  for (Omission& one : part.renamed) all.renamed.push_back(std::move(one));
  if (!names.empty())
    throw DamagedError(
        fmt::format("'{}' lacks tensor '{}', which the index names; download it again", file_name,
                    *names.begin()));
  for (const auto& [path, value] : part.values.items()) all.values[path] = value;
  all.left_out.add(part.left_out);
}

struct DirectoryKind {
  std::string_view file;  // a name, or an ending with a star before it
  std::string_view sentence;
};
constexpr std::array kDirectoryKinds = {
    DirectoryKind{"*.distcp", kDistributed},
    DirectoryKind{
        "zero_to_fp32.py",
        "it was written by DeepSpeed; join its files first: python {0}/zero_to_fp32.py {0} "
        "NEW_DIRECTORY"},
    DirectoryKind{"saved_model.pb",
                  "it is a SavedModel of TensorFlow; in Python, save the weights as safetensors"},
    DirectoryKind{"_CHECKPOINT_METADATA",
                  "it was written by Orbax; in Python, restore it and save the arrays with "
                  "safetensors.numpy.save_file"},
    DirectoryKind{"*.data-00000-of-00001",
                  "it is a checkpoint of TensorFlow; in Python, save the weights as safetensors"},
};

bool fits(std::string_view pattern, const std::string& name) {
  return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
}

// The only file with this ending; throws UnsupportedError if there are several.
std::optional<fs::path> only_one(const fs::path& directory, const std::set<std::string>& names,
                                 std::string_view ending) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (name.ends_with(ending)) found.push_back(name);
  if (found.size() > 1)
    throw UnsupportedError(
        fmt::format("it has several files of weights; name one of them, such as "
                    "'{}'",
                    (directory / found.front()).string()));
  return found.empty() ? std::nullopt : std::optional(directory / found.front());
}

}  // namespace

void ForeignFile::open_file(const fs::path& path, PlainHdf5 hdf5) {
  files_.emplace_back(path);
  require_whole(path);
  kind_ = kind_of(path, files_.front().bytes());
  contents_ = parse(path, files_.front().bytes(), kind_, hdf5);
  for (const ExternalArray& array : contents_.arrays) check_sum(files_.front().bytes(), array);
}

void ForeignFile::open_index(const fs::path& path) {
  const fs::path directory = fs::absolute(path).parent_path();
  for (const auto& [name, arrays] : parts_in(MappedFile(path))) {
    if (!fs::exists(directory / name)) {
      const std::string link = dangling_link_text(directory / name);
      throw UnsupportedError(
          link.empty()
              ? fmt::format("it names '{}', which is not beside it; download this file, too", name)
              : link + "; download it again");
    }
    MappedFile file(directory / name);
    kind_ = kind_of(name, file.bytes());
    take(contents_, parse(directory / name, file.bytes(), kind_, PlainHdf5::refused), arrays,
         files_.size(), name);
    files_.push_back(std::move(file));
  }
  std::sort(contents_.arrays.begin(), contents_.arrays.end(),
            [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
}

ForeignFile ForeignFile::open(const fs::path& path, PlainHdf5 hdf5) {
  std::error_code error;
  if (const std::string link = dangling_link_text(path); !link.empty()) throw UsageError(link);
  if (!fs::exists(path, error))
    throw UsageError(fmt::format("there is no file or checkpoint '{}'{}", path.string(),
                                 error ? ": " + error.message() : std::string()));
  ForeignFile file;
  file.path_ = path;
  try {
    if (fs::is_directory(path)) {
      const auto found = weights_in(path);
      if (!found)
        throw UsageError(
            fmt::format("there is no checkpoint in '{}', and no file of weights", path.string()));
      file.path_ = *found;
    }
    if (file.path_.filename().string().ends_with(kIndexEnding))
      file.open_index(file.path_);
    else
      file.open_file(file.path_, hdf5);
  } catch (const DamagedError& e) {
    throw DamagedError(fmt::format("'{}' cannot be read: {}", file.path_.string(), e.what()));
  } catch (const UnsupportedError& e) {
    throw UnsupportedError(fmt::format("'{}' cannot be read: {}", file.path_.string(), e.what()));
  }
  return file;
}

void ForeignFile::decode(std::span<const Decoding> arrays, int to) const {
  if (arrays.empty()) return;
  try {
    decode_hdf5(path_, arrays, to);
  } catch (const DamagedError& e) {
    throw DamagedError(fmt::format("'{}' cannot be read: {}", path_.string(), e.what()));
  }
}

std::optional<fs::path> weights_in(const fs::path& directory) {
  constexpr std::size_t kMaxEntries = 100000;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
    if (names.size() > kMaxEntries) break;
  }
  for (const DirectoryKind& kind : kDirectoryKinds)
    for (const std::string& name : names)
      if (fits(kind.file, name))
        throw UnsupportedError(
            fmt::format(fmt::runtime(kind.sentence), shell_word(directory.string())));
  for (const char* known : {"model.safetensors.index.json", "model.safetensors",
                            "pytorch_model.bin.index.json", "pytorch_model.bin"})
    if (names.contains(known)) return directory / known;
  for (const std::string_view ending :
       {".safetensors.index.json", ".bin.index.json", ".safetensors"})
    if (auto found = only_one(directory, names, ending)) return found;
  return std::nullopt;
}

}  // namespace ddp::ckpt
