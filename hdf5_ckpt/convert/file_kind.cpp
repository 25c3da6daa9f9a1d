// SPDX-License-Identifier: Apache-2.0
// Tables: the bytes or names that identify a kind, and the sentence for it.

#include "hdf5_ckpt/convert/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/torch_contents.h"

namespace ddp::ckpt {
namespace {

using Bytes = std::span<const std::byte>;
using namespace std::literals;

bool has_at(Bytes bytes, std::uint64_t at, std::string_view signature) {
  return at < bytes.size() && bytes.size() - at >= signature.size() &&
         std::memcmp(bytes.data() + at, signature.data(), signature.size()) == 0;
}

// HDF5 data begins at the start of a file, or after a user block of 512 bytes times a power of two,
// such as MATLAB writes.
bool is_hdf5(Bytes bytes) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  constexpr std::uint64_t kLeastUserBlock = 512;
  if (has_at(bytes, 0, kSignature)) return true;
  for (std::uint64_t at = kLeastUserBlock; at < bytes.size(); at *= 2)
    if (has_at(bytes, at, kSignature)) return true;
  return false;
}

// The length of the header, then the header.
bool is_safetensors(Bytes bytes) {
  std::uint64_t length = 0;
  if (bytes.size() <= sizeof length) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length <= kMaxExternalHeader && bytes[sizeof length] == std::byte{'{'};
}

struct Foreign {
  std::uint64_t at;
  std::string_view signature;
  std::string_view sentence;
};

constexpr std::string_view kArchive =
    "it is a compressed file or an archive; unpack it, and name the file in it";
constexpr std::string_view kWebPage =
    "it is a web page, perhaps an error message in place of the file; download it again";
constexpr std::string_view kGguf =
    "it is a GGUF or GGML file of llama.cpp, whose tensors are usually quantized; name the "
    "safetensors files of the same model";
constexpr std::string_view kLegacyTar =
    "it is an archive of tar, as torch.save wrote before PyTorch 0.1.10 if its members are called "
    "storages and tensors; in Python: torch.save(torch.load('FILE', weights_only=False), "
    "'NEW.pt'), "
    "else unpack it, and name the file in it";
constexpr std::array kForeign = {
    Foreign{0, "GGUF", kGguf},
    Foreign{0, "lmgg", kGguf},
    Foreign{0, "tjgg", kGguf},
    Foreign{0, "\x93NUMPY",
            "it is a numpy array (.npy); in Python: safetensors.numpy.save_file({'NAME': "
            "numpy.load('FILE')}, 'NEW.safetensors')"},
    Foreign{0, "version https://git-lfs",
            "it is a pointer of Git LFS in place of the file; type: git lfs pull"},
    Foreign{0, "\x1f\x8b", kArchive},
    Foreign{0, "\x28\xb5\x2f\xfd", kArchive},
    Foreign{0,
            "\xfd"
            "7zXZ",
            kArchive},
    Foreign{0, "BZh", kArchive},
    Foreign{0, "7z\xbc\xaf", kArchive},
    Foreign{0, "Rar!", kArchive},
    Foreign{257, "ustar", kLegacyTar},
    Foreign{4, "TFL3", "it is a model of TensorFlow Lite; name the file that it was made from"},
    Foreign{0, "CDF\x01", "it is a netCDF file of version 3; type: nccopy -k nc4 FILE NEW.h5"},
    Foreign{0, "CDF\x02", "it is a netCDF file of version 3; type: nccopy -k nc4 FILE NEW.h5"},
    Foreign{0, "MATLAB 5.0", "it is a MATLAB file before version 7.3; save it with -v7.3"},
    Foreign{0, "SQLite format 3", "it is a database of SQLite"},
    Foreign{0,
            "\x7f"
            "ELF",
            "it is a program or a library"},
    Foreign{0, "#!", "it is a script"},
};

// The beginning as lower-case text, without leading white space.
std::string beginning_of_text(Bytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()),
                   std::min<std::size_t>(bytes.size(), 256));
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

void require_not_foreign(Bytes bytes) {
  for (const Foreign& kind : kForeign)
    if (has_at(bytes, kind.at, kind.signature)) throw UnsupportedError(std::string(kind.sentence));
  const std::string text = beginning_of_text(bytes);
  for (const char* tag : {"<!doctype html", "<html", "<?xml", "<head"})
    if (text.starts_with(tag)) throw UnsupportedError(std::string(kWebPage));
  if (text.starts_with("{") || text.starts_with("["))
    throw UnsupportedError(
        "it is a JSON file; name the file with the weights, or the index whose name ends in "
        ".index.json");
  if (!bytes.empty() && bytes[0] == std::byte{0x80})
    throw UnsupportedError(
        "it is a pickle that torch.save did not write; in Python: torch.save(pickle.load(open("
        "'FILE', 'rb')), 'NEW.pt'), if you trust the file, because this runs code in it");
}

struct ZipKind {
  std::string_view name;
  enum class Where : std::uint8_t { ending, part } where;
  std::string_view sentence;
};
constexpr std::string_view kTorchScript =
    "it is a TorchScript program; in Python: torch.save(torch.jit.load('FILE', "
    "map_location='cpu').state_dict(), 'NEW.pt')";
constexpr std::string_view kExported =
    "it is a program of torch.export; in Python: torch.save(torch.export.load('FILE').state_dict, "
    "'NEW.pt')";
constexpr std::array kZipKinds = {
    ZipKind{"constants.pkl", ZipKind::Where::ending, kTorchScript},
    ZipKind{"/code/", ZipKind::Where::part, kTorchScript},
    ZipKind{"/.data/extern_modules", ZipKind::Where::part,
            "it is a torch.package; in Python, load the model in it and torch.save its "
            "state_dict()"},
    ZipKind{"serialized_exported_program.json", ZipKind::Where::ending, kExported},
    ZipKind{"archive_format", ZipKind::Where::ending, kExported},
    ZipKind{"model.weights.h5", ZipKind::Where::ending,
            "it is a Keras archive; type: unzip FILE model.weights.h5, and name that file"},
    ZipKind{".npy", ZipKind::Where::ending,
            "it is a numpy archive (.npz); in Python: safetensors.numpy.save_file(dict("
            "numpy.load('FILE')), 'NEW.safetensors')"},
};

bool matches(const ZipKind& kind, const std::string& entry) {
  if (kind.where == ZipKind::Where::ending) return entry.ends_with(kind.name);
  return entry.find(kind.name) != std::string::npos;
}

// Endings of files that a checkpoint's directory must not have.
constexpr std::array kFileEndings = {".h5",    ".hdf5", ".npz",  ".npy",     ".gguf", ".keras",
                                     ".onnx",  ".pkl",  ".zip",  ".tar",     ".gz",   ".json",
                                     ".jsonl", ".txt",  ".yaml", ".msgpack", ".sft",  ".torch"};

}  // namespace

FileKind kind_of(const std::filesystem::path& path, Bytes bytes) {
  if (has_at(bytes, 0, "PK\x03\x04") || has_at(bytes, 0, "PK\x05\x06")) return FileKind::torch_save;
  if (is_old_torch_file(bytes)) return FileKind::torch_save;
  if (is_safetensors(bytes)) return FileKind::safetensors;
  require_not_foreign(bytes);
  if (is_hdf5(bytes)) return FileKind::hdf5;
  if (path.extension() == ".safetensors") return FileKind::safetensors;
  throw UnsupportedError(
      "its first bytes are of none of the kinds that are read: safetensors, torch.save, HDF5; if "
      "it "
      "should be one of them, copy or download it again");
}

std::string_view kind_name(FileKind kind) noexcept {
  switch (kind) {
    case FileKind::safetensors:
      return "safetensors";
    case FileKind::torch_save:
      return "torch.save";
    case FileKind::hdf5:
      return "HDF5";
  }
  return "";
}

void require_torch_entries(const ZipEntries& entries) {
  bool has_pickle = false;
  for (const auto& entry : entries)
    if (entry.first.ends_with("/data.pkl")) has_pickle = true;
  for (const ZipKind& kind : kZipKinds) {
    if (has_pickle && kind.sentence != kTorchScript) continue;
    for (const auto& entry : entries)
      if (matches(kind, entry.first)) throw UnsupportedError(std::string(kind.sentence));
  }
  if (!has_pickle)
    throw UnsupportedError(
        "it is a zip file without the data.pkl of torch.save; unpack it, and name the file in it");
}

TargetKind target_kind(const std::filesystem::path& to) {
  const auto ending = to.extension();
  if (ending == ".safetensors") return TargetKind::safetensors;
  for (const char* known : {".pt", ".pth", ".bin", ".ckpt"})
    if (ending == known) return TargetKind::torch_save;
  for (const char* file : kFileEndings)
    if (ending == file)
      throw UnsupportedError(
          fmt::format("'{}' cannot be written: the ending selects the format, which is "
                      ".safetensors, or .pt (.pth, .bin, .ckpt) for torch.save's format, or none "
                      "for the directory of a checkpoint",
                      to.string()));
  return TargetKind::directory;
}

}  // namespace ddp::ckpt
