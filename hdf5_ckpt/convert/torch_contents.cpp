// SPDX-License-Identifier: Apache-2.0
// Walks the objects of a pickle. The path of an object consists of the keys that lead to it.

#include "hdf5_ckpt/convert/torch_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/names.h"

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
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxVisited = kMaxArrays * 16;
constexpr std::size_t kMaxStateValues = 10000;
constexpr std::size_t kMaxText = 4096;
// Limit on tensors that share a storage: a small file must not expand into a large checkpoint.
constexpr std::uint64_t kMaxSharing = 64;

// The key of a dictionary as Python prints it, except that a text has no quotes at the top.
std::string key_text(PicklePointer key, bool top = true) {
  if (const auto* text = pickle_as<std::string>(key)) return top ? *text : "'" + *text + "'";
  if (const auto* number = pickle_as<std::int64_t>(key)) return std::to_string(*number);
  if (const auto* number = pickle_as<std::uint64_t>(key)) return std::to_string(*number);
  if (const auto* number = pickle_as<double>(key)) {
    const std::string text = fmt::format("{}", *number);
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* truth = pickle_as<bool>(key)) return *truth ? "True" : "False";
  if (pickle_as<std::monostate>(key) != nullptr) return "None";
  if (const auto* bytes = pickle_as<PickleBytes>(key))
    return "b'" + bytes->bytes.substr(0, 100) + "'";
  if (const auto* global = pickle_as<PickleGlobal>(key)) return global->name;
  const auto* tuple = pickle_as<PickleList>(key);
  if (tuple == nullptr || !top || tuple->items.size() > 16) return "(...)";
  std::string text;
  for (const PicklePointer item : tuple->items)
    text += (text.empty() ? "" : ", ") + key_text(item, false);
  return "(" + text + ")";
}

// A name for an array: the path without the parts that the name of an array cannot have, such as
// those of a key that is an absolute path.
std::string usable_name(const std::string& path) {
  if (path.empty()) return "tensor";  // a file with a single tensor
  if (array_name_problem(path).empty()) return path;
  std::string name;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    std::string component = sanitize(path.substr(start, end - start));
    if (component == "." || component == "..") component += "_";
    if (!component.empty()) name += (name.empty() ? "" : "/") + component;
    start = end + 1;
  }
  return name;
}

bool is_type_name(const std::string& name) {
  constexpr std::string_view kTorch = "torch.";
  if (!name.starts_with(kTorch)) return false;
  const std::string_view type = std::string_view(name).substr(kTorch.size());
  for (const char* start : {"float", "bfloat", "double", "half", "int", "long", "short", "uint",
                            "bool", "complex", "cfloat", "cdouble", "qint", "quint", "bits"})
    if (type.starts_with(start) && type.find('.') == std::string_view::npos) return true;
  return false;
}

// The places of tensors in the file.
class ArrayPlaces {
 public:
  explicit ArrayPlaces(const TorchStorages& storages) : storages_(storages) {}

  // Fills in everything but the name. Returns the reason why a checkpoint cannot hold the tensor;
  // empty if it can.
  std::string place(const PickleTensor& tensor, ExternalArray& array);

 private:
  ZipEntry place_of(const PickleStorage& storage, std::size_t item, const std::string& name) const;
  void check_inside(const ExternalArray& array, std::uint64_t offset, const ZipEntry& storage);

  const TorchStorages& storages_;
  std::uint64_t total_ = 0;
};

std::string ArrayPlaces::place(const PickleTensor& tensor, ExternalArray& array) {
  const auto stored = storage_dtype(tensor.storage.type);
  const auto dtype = tensor.dtype.empty() ? stored : dtype_from_name(tensor.dtype);
  if (!dtype || !stored)
    return fmt::format("its type is {}, which a checkpoint cannot hold",
                       tensor.dtype.empty() ? tensor.storage.type : tensor.dtype);
  if (tensor.negated && *dtype == DType::boolean) return "it is a negated view of truth values";
  array.dtype = *dtype;
  array.shape = tensor.shape;
  array.strides = tensor.strides;
  array.big_endian = storages_.big_endian && itemsize(*dtype) > 1;
  array.negated = tensor.negated;
  array.conjugated = tensor.conjugated;
  const ZipEntry storage = place_of(tensor.storage, itemsize(*stored), array.name);
  // A view without elements may begin anywhere.
  const bool empty = std::find(array.shape.begin(), array.shape.end(), 0U) != array.shape.end();
  const std::uint64_t first = empty ? 0 : tensor.offset;
  check_inside(array, first, storage);
  array.offset = storage.offset + first * itemsize(*dtype);
  return "";
}

ZipEntry ArrayPlaces::place_of(const PickleStorage& storage, std::size_t item,
                               const std::string& name) const {
  const auto found = storages_.places.find(storage.key);
  if (found == storages_.places.end())
    throw DamagedError(fmt::format("the storage of tensor '{}' is missing", name));
  ZipEntry place = found->second;
  const std::uint64_t room = place.size / item;
  if (storage.elements > room)
    throw DamagedError(fmt::format("the storage of tensor '{}' is too short", name));
  if (!storage.view) return place;
  if (storage.view->offset > room || storage.view->size > room - storage.view->offset)
    throw DamagedError(fmt::format("the storage of tensor '{}' reaches beyond another", name));
  place.offset += storage.view->offset * item;
  place.size = storage.view->size * item;
  return place;
}

// Checks that the last element is inside the storage, and that the elements together do not take
// many times the storage's bytes.
void ArrayPlaces::check_inside(const ExternalArray& array, std::uint64_t offset,
                               const ZipEntry& storage) {
  const auto refuse = [&] {
    throw DamagedError(fmt::format("tensor '{}' reaches beyond its storage", array.name));
  };
  if (array.shape.size() != array.strides.size() || array.shape.size() > kMaxRank) refuse();
  const auto bytes = byte_count(array.dtype, array.shape);
  const std::uint64_t room = storage.size / itemsize(array.dtype);
  if (!bytes || offset > room) refuse();
  if (*bytes == 0) return;
  std::uint64_t last = offset;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const std::uint64_t steps = array.shape[i] - 1;
    if (steps != 0 && array.strides[i] > (room - last) / steps) refuse();
    last += steps * array.strides[i];
  }
  if (last >= room) refuse();
  total_ += *bytes;
  if (total_ / kMaxSharing > storages_.file_bytes)
    throw DamagedError("its tensors claim far more bytes than the file has");
}

class ObjectWalk {
 public:
  explicit ObjectWalk(const TorchStorages& storages) : places_(storages) {}

  FileContents run(PicklePointer root) {
    visit(root, "");
    std::sort(found_.arrays.begin(), found_.arrays.end(),
              [](const ExternalArray& a, const ExternalArray& b) { return a.name < b.name; });
    return std::move(found_);
  }

 private:
  void visit(PicklePointer value, const std::string& path);
  void visit_items(PicklePointer value, const std::string& path);
  void visit_item(const std::string& path, const std::string& key, PicklePointer item);
  void keep(nlohmann::json value, const std::string& path);
  void keep_text(const std::string& text, const std::string& path);
  void leave_out(const std::string& path, std::string reason) {
    found_.left_out.add(path.empty() ? "the whole file" : path, std::move(reason));
  }
  void visit_object(const PickleObject& object, const std::string& path);
  std::size_t tensors_in(const PickleObject& object);
  void add(const PickleTensor& tensor, const std::string& path);

  ArrayPlaces places_;
  FileContents found_;
  std::unordered_set<std::string> names_;
  std::vector<PicklePointer> within_;  // the containers that lead to the current object
  std::size_t visited_ = 0;
};

void ObjectWalk::visit(PicklePointer value, const std::string& path) {
  if (const auto* tensor = pickle_as<std::shared_ptr<const PickleTensor>>(value))
    return add(**tensor, path);
  if (const auto* truth = pickle_as<bool>(value)) return keep(*truth, path);
  if (const auto* number = pickle_as<std::int64_t>(value)) return keep(*number, path);
  if (const auto* number = pickle_as<std::uint64_t>(value)) return keep(*number, path);
  if (const auto* number = pickle_as<double>(value)) return keep(*number, path);
  if (const auto* text = pickle_as<std::string>(value)) return keep_text(*text, path);
  if (const auto* object = pickle_as<PickleObject>(value)) return visit_object(*object, path);
  if (const auto* integer = pickle_as<PickleInteger>(value))
    return leave_out(path, fmt::format("an integer of {} bits", integer->bits));
  if (const auto* bytes = pickle_as<PickleBytes>(value))
    return leave_out(path, fmt::format("{} bytes", bytes->bytes.size()));
  if (pickle_as<std::shared_ptr<const PickleStorage>>(value) != nullptr)
    return leave_out(path, "a storage without a tensor");
  if (const auto* global = pickle_as<PickleGlobal>(value)) {
    if (is_type_name(global->name)) return keep_text(global->name, path);
    return leave_out(path, fmt::format("the class '{}'", global->name));
  }
  visit_items(value, path);
}

void ObjectWalk::visit_items(PicklePointer value, const std::string& path) {
  const auto* const dict = pickle_as<PickleDict>(value);
  const auto* const list = pickle_as<PickleList>(value);
  if (dict == nullptr && list == nullptr) return;  // None
  if (std::find(within_.begin(), within_.end(), value) != within_.end())
    return leave_out(path, "an object that contains itself");
  if (within_.size() == kMaxDepth) return leave_out(path, "nested too deep");
  within_.push_back(value);
  if (dict != nullptr)
    for (const auto& [key, item] : dict->items) visit_item(path, key_text(key), item);
  if (list != nullptr)
    for (std::size_t i = 0; i < list->items.size(); ++i)
      visit_item(path, std::to_string(i), list->items[i]);
  within_.pop_back();
}

void ObjectWalk::visit_item(const std::string& path, const std::string& key, PicklePointer item) {
  if (++visited_ > kMaxVisited) throw DamagedError("it holds too many objects");
  if (path.size() + key.size() > kMaxText)
    return leave_out(path + "/" + key.substr(0, 100), "its name is too long");
  visit(item, within_.size() == 1 ? key : path + "/" + key);
}

void ObjectWalk::keep_text(const std::string& text, const std::string& path) {
  if (text.size() > kMaxText)
    leave_out(path, fmt::format("a text of {} bytes", text.size()));
  else
    keep(text, path);
}

void ObjectWalk::keep(nlohmann::json value, const std::string& path) {
  if (found_.values.size() >= kMaxStateValues)
    return leave_out(path, fmt::format("only {} numbers and texts are kept", kMaxStateValues));
  if (found_.values.contains(path)) return leave_out(path, "another value has the same path");
  if (!json_problem({{path, value}}).empty()) return leave_out(path, "not representable in JSON");
  found_.values[path] = std::move(value);
}

void ObjectWalk::visit_object(const PickleObject& object, const std::string& path) {
  const std::size_t tensors = tensors_in(object);
  found_.hidden_tensors += tensors;
  std::string reason = fmt::format("an object of '{}'", *object.name);
  if (tensors != 0) reason += " with " + counted(tensors, "tensor");
  leave_out(path, std::move(reason));
}

std::size_t ObjectWalk::tensors_in(const PickleObject& object) {
  std::size_t tensors = 0;
  std::unordered_set<PicklePointer> seen;
  std::vector<PicklePointer> rest = object.parts;
  while (!rest.empty()) {
    const PicklePointer value = rest.back();
    rest.pop_back();
    if (!seen.insert(value).second) continue;
    if (++visited_ > kMaxVisited) throw DamagedError("it holds too many objects");
    if (pickle_as<std::shared_ptr<const PickleTensor>>(value) != nullptr) ++tensors;
    if (const auto* inner = pickle_as<PickleObject>(value))
      rest.insert(rest.end(), inner->parts.begin(), inner->parts.end());
    if (const auto* list = pickle_as<PickleList>(value))
      rest.insert(rest.end(), list->items.begin(), list->items.end());
    if (const auto* dict = pickle_as<PickleDict>(value))
      for (const auto& item : dict->items) rest.push_back(item.second);
  }
  return tensors;
}

void ObjectWalk::add(const PickleTensor& tensor, const std::string& path) {
  const std::string name = usable_name(path);
  std::string problem = tensor.problem;
  if (!array_name_problem(name).empty()) problem = "its name " + array_name_problem(name);
  if (!names_.insert(name).second)
    problem = "another tensor has the same path, and --skip leaves out both";
  if (problem.empty()) {
    ExternalArray array;
    array.name = name;
    problem = places_.place(tensor, array);
    if (problem.empty()) found_.arrays.push_back(std::move(array));
  }
  if (problem.empty() && name != path && !path.empty())
    found_.renamed.push_back({name, fmt::format("it is '{}' in the file", path)});
  if (!problem.empty()) found_.unreadable.push_back({name, std::move(problem)});
}

}  // namespace

std::optional<DType> storage_dtype(std::string_view type) {
  if (type == "UntypedStorage") return DType::uint8;
  for (const StorageType& known : kStorages)
    if (known.name == type) return known.dtype;
  return std::nullopt;
}

std::string_view storage_name(DType dtype) {
  for (const StorageType& known : kStorages)
    if (known.dtype == dtype) return known.name;
  return {};
}

FileContents torch_contents(PicklePointer root, const TorchStorages& storages) {
  return ObjectWalk(storages).run(root);
}

}  // namespace ddp::ckpt
