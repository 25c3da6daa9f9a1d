// SPDX-License-Identifier: Apache-2.0
// torch.save's format before PyTorch 1.6, which _use_new_zipfile_serialization=False still writes:
// the pickles of a magic number, of a version, of facts about the machine, of the objects and of
// the keys of all storages; then for each key the number of elements and the elements. Elements are
// little-endian on every machine.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "hdf5_ckpt/convert/torch_contents.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

constexpr std::string_view kMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
constexpr std::size_t kMagicRegion = 32;  // before it: the protocol, and the size of a frame
constexpr std::int64_t kVersion = 1001;

// Sizes of elements by the keys of the storages that the pickle names.
std::map<std::string, std::size_t> element_sizes(const Pickle& pickle) {
  std::map<std::string, std::size_t> sizes;
  for (const PickleValue& value : pickle.values)
    if (const auto* storage = pickle_as<std::shared_ptr<const PickleStorage>>(&value)) {
      const std::string& type = (*storage)->type;
      if (const auto dtype = storage_dtype(type)) sizes[(*storage)->key] = itemsize(*dtype);
      if (type == "QInt8Storage" || type == "QUInt8Storage") sizes[(*storage)->key] = 1;
      if (type == "QInt32Storage" || type == "ComplexHalfStorage") sizes[(*storage)->key] = 4;
    }
  return sizes;
}

class Parts {
 public:
  explicit Parts(std::span<const std::byte> file) : file_(file) {}

  Pickle pickle() {
    Pickle pickle = parse_pickle(file_.subspan(at_));
    at_ += pickle.size;
    return pickle;
  }

  ZipEntry storage(std::size_t element_size) {
    std::int64_t elements = 0;
    if (file_.size() - at_ < sizeof elements) end_too_early();
    std::memcpy(&elements, file_.data() + at_, sizeof elements);
    at_ += sizeof elements;
    const std::uint64_t room = (file_.size() - at_) / element_size;
    if (elements < 0 || static_cast<std::uint64_t>(elements) > room) end_too_early();
    ZipEntry place;
    place.offset = at_;
    place.size = static_cast<std::uint64_t>(elements) * element_size;
    at_ += place.size;
    return place;
  }

 private:
  [[noreturn]] void end_too_early() const {
    throw DamagedError(fmt::format(
        "the file ends after {} bytes, before its last tensor; copy or download it again",
        file_.size()));
  }

  std::span<const std::byte> file_;
  std::uint64_t at_ = 0;
};

}  // namespace

bool is_old_torch_file(std::span<const std::byte> file) {
  if (file.empty() || file[0] != std::byte{0x80}) return false;
  const auto head = file.first(std::min(file.size(), kMagicRegion));
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return text.find(kMagic) != std::string_view::npos;
}

FileContents parse_old_torch_file(std::span<const std::byte> file) {
  Parts parts(file);
  parts.pickle();  // the magic number
  const Pickle version = parts.pickle();
  const auto* number = pickle_as<std::int64_t>(version.root);
  if (number == nullptr || *number != kVersion)
    throw DamagedError("it has an unknown version of the format before PyTorch 1.6");
  parts.pickle();  // the machine
  const Pickle objects = parts.pickle();
  const Pickle keys = parts.pickle();
  const auto* list = pickle_as<PickleList>(keys.root);
  if (list == nullptr) throw DamagedError("it does not list its storages");
  const auto sizes = element_sizes(objects);
  TorchStorages storages{{}, false, file.size()};
  for (const PicklePointer item : list->items) {
    const auto* key = pickle_as<std::string>(item);
    const auto size = key != nullptr ? sizes.find(*key) : sizes.end();
    if (size == sizes.end())
      throw DamagedError(
          "it has a storage of a type that is unknown here; in Python, save it again: "
          "torch.save(torch.load(FILE), NEW_FILE)");
    if (!storages.places.emplace(*key, parts.storage(size->second)).second)
      throw DamagedError("it lists a storage twice");
  }
  return torch_contents(objects.root, storages);
}

}  // namespace ddp::ckpt
