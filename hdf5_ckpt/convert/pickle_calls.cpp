// SPDX-License-Identifier: Apache-2.0
// One table: a name, and the function that gives its result from the arguments.

#include "hdf5_ckpt/convert/pickle_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxName = 1000;  // bytes of the names of classes and storages
constexpr std::size_t kMaxDimensions = 64;

using Arguments = std::span<const PicklePointer>;
using Storage = std::shared_ptr<const PickleStorage>;
using Tensor = std::shared_ptr<const PickleTensor>;

template <typename Value>
const Value& require(PicklePointer pointer, const char* what) {
  if (const auto* value = pickle_as<Value>(pointer)) return *value;
  fail_pickle(fmt::format("an operand is not {}", what));
}

bool is_none(PicklePointer pointer) {
  return pickle_as<std::monostate>(pointer) != nullptr;
}

// ---- containers ------------------------------------------------------------------------------
// Each returns nullopt for arguments that the class does not take in the pickles of Python.

using Result = std::optional<PickleValue>;

// Copies a dictionary, or makes one from pairs.
Result dict_from(PicklePointer value) {
  if (const auto* dict = pickle_as<PickleDict>(value)) return PickleValue{*dict};
  const auto* pairs = pickle_as<PickleList>(value);
  if (pairs == nullptr) return std::nullopt;
  PickleDict dict;
  for (const PicklePointer item : pairs->items) {
    const auto* pair = pickle_as<PickleList>(item);
    if (pair == nullptr || pair->items.size() != 2) return std::nullopt;
    dict.items.emplace_back(pair->items[0], pair->items[1]);
  }
  return PickleValue{std::move(dict)};
}

Result dict(Arguments arguments) {
  if (arguments.empty()) return PickleValue{PickleDict{}};
  return arguments.size() == 1 ? dict_from(arguments[0]) : std::nullopt;
}

// The first argument makes the values of missing keys.
Result default_dict(Arguments arguments) {
  return dict(arguments.empty() ? arguments : arguments.subspan(1));
}

Result list(Arguments arguments) {
  if (arguments.empty()) return PickleValue{PickleList{}};
  const auto* items = pickle_as<PickleList>(arguments[0]);
  return items != nullptr ? Result(PickleValue{*items}) : std::nullopt;
}

// torch.device("cuda", 0)
Result device(Arguments arguments) {
  if (arguments.empty() || arguments.size() > 2) return std::nullopt;
  const auto* type = pickle_as<std::string>(arguments[0]);
  if (type == nullptr) return std::nullopt;
  if (arguments.size() == 1) return PickleValue{*type};
  const auto* index = pickle_as<std::int64_t>(arguments[1]);
  if (index == nullptr) return std::nullopt;
  return PickleValue{fmt::format("{}:{}", *type, *index)};
}

Result text(Arguments arguments) {
  const auto* value = arguments.size() == 1 ? pickle_as<std::string>(arguments[0]) : nullptr;
  return value != nullptr ? Result(PickleValue{*value}) : std::nullopt;
}

// Protocol 2 has no bytes: it stores a text whose code points are the bytes.
Result encoded(Arguments arguments) {
  const auto* text = arguments.size() == 2 ? pickle_as<std::string>(arguments[0]) : nullptr;
  if (text == nullptr) return std::nullopt;
  PickleBytes result;
  for (std::size_t i = 0; i < text->size(); ++i) {
    const auto lead = static_cast<unsigned char>((*text)[i]);
    if (lead >= 0x80 && (lead > 0xC3 || i + 1 == text->size())) return std::nullopt;
    const unsigned low = lead < 0x80 ? lead : static_cast<unsigned char>((*text)[++i]);
    result.bytes += static_cast<char>(lead < 0x80 ? low : (lead & 0x03U) << 6U | (low & 0x3FU));
  }
  return PickleValue{std::move(result)};
}

Result bytes(Arguments arguments) {
  if (arguments.empty()) return PickleValue{PickleBytes{}};
  const auto* value = pickle_as<PickleBytes>(arguments[0]);
  return value != nullptr ? Result(PickleValue{*value}) : std::nullopt;
}

// copyreg._reconstructor(class, base, state), and the same of numpy
Result reconstructed(Arguments arguments) {
  const auto* type = arguments.empty() ? nullptr : pickle_as<PickleGlobal>(arguments[0]);
  if (type == nullptr) return std::nullopt;
  return PickleValue{PickleObject{&type->name, {arguments.begin(), arguments.end()}}};
}

// ---- tensors ---------------------------------------------------------------------------------

std::uint64_t size_of(PicklePointer pointer) {
  const std::int64_t value = require<std::int64_t>(pointer, "a number");
  if (value < 0) fail_pickle("a size or a stride is negative");
  return static_cast<std::uint64_t>(value);
}

std::vector<std::uint64_t> sizes_of(PicklePointer pointer) {
  const auto& items = require<PickleList>(pointer, "a tuple").items;
  if (items.size() > kMaxDimensions) fail_pickle("a tensor has too many dimensions");
  std::vector<std::uint64_t> sizes;
  sizes.reserve(items.size());
  for (const PicklePointer item : items) sizes.push_back(size_of(item));
  return sizes;
}

PickleValue unreadable(std::string problem) {
  PickleTensor tensor;
  tensor.problem = std::move(problem);
  return {std::make_shared<const PickleTensor>(std::move(tensor))};
}

PickleTensor strided(Arguments arguments) {
  if (arguments.size() < 4) fail_pickle("a tensor has too few arguments");
  PickleTensor tensor;
  tensor.storage = *require<Storage>(arguments[0], "a storage");
  tensor.offset = size_of(arguments[1]);
  tensor.shape = sizes_of(arguments[2]);
  tensor.strides = sizes_of(arguments[3]);
  return tensor;
}

// Flags of a view, with which the values differ from those in the storage: {"conj": True}.
void set_flags(PickleTensor& tensor, PicklePointer flags) {
  if (is_none(flags)) return;
  for (const auto& [key, value] : require<PickleDict>(flags, "a dictionary of flags").items) {
    const std::string& name = require<std::string>(key, "a text");
    const auto* set = pickle_as<bool>(value);
    if (set != nullptr && !*set) continue;
    bool* const known = name == "neg"    ? &tensor.negated
                        : name == "conj" ? &tensor.conjugated
                                         : nullptr;
    if (known == nullptr || set == nullptr) {
      tensor.problem = fmt::format("it has the flag '{:.100}', whose meaning is unknown", name);
      return;
    }
    *known = true;
  }
}

PickleValue shared(PickleTensor tensor) {
  return {std::make_shared<const PickleTensor>(std::move(tensor))};
}

Result tensor_1(Arguments arguments) {
  return shared(strided(arguments));
}

Result tensor_2(Arguments arguments) {
  PickleTensor tensor = strided(arguments);
  if (arguments.size() > 6) set_flags(tensor, arguments[6]);
  return shared(std::move(tensor));
}

Result tensor_3(Arguments arguments) {
  PickleTensor tensor = strided(arguments);
  if (arguments.size() < 7) fail_pickle("a tensor has too few arguments");
  const std::string& dtype = require<PickleGlobal>(arguments[6], "a type").name;
  tensor.dtype = dtype.substr(dtype.find('.') + 1);
  if (arguments.size() > 7) set_flags(tensor, arguments[7]);
  return shared(std::move(tensor));
}

// A parameter is represented by its tensor.
Result parameter(Arguments arguments) {
  if (arguments.empty()) fail_pickle("a parameter has no tensor");
  if (const auto* object = pickle_as<PickleObject>(arguments[0]))
    return unreadable(fmt::format("it is a '{:.100}'", *object->name));
  return PickleValue{require<Tensor>(arguments[0], "a tensor")};
}

// _rebuild_from_type_v2(function, class, arguments, attributes). Other classes than PyTorch's own
// may give the bytes another meaning.
Result typed(Arguments arguments) {
  if (arguments.size() < 3) fail_pickle("a tensor has too few arguments");
  const std::string& type = require<PickleGlobal>(arguments[1], "a class").name;
  constexpr std::array<std::string_view, 5> kPlain = {
      "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter",
      "torch.nn.parameter.Buffer", "torch.nn.Parameter"};
  if (std::find(kPlain.begin(), kPlain.end(), type) == kPlain.end())
    return unreadable(fmt::format("it is a '{:.100}'", type));
  return called(arguments[0], require<PickleList>(arguments[2], "a tuple").items);
}

Result sparse(Arguments) {
  return unreadable("it is sparse; call its to_dense() before torch.save");
}
Result quantized(Arguments) {
  return unreadable("it is quantized; call its dequantize() before torch.save");
}
Result meta(Arguments) {
  return unreadable("it has no data, because it was on the device 'meta'");
}
Result nested(Arguments) {
  return unreadable("it is a nested tensor; call its to_padded_tensor() before torch.save");
}
Result wrapper(Arguments) {
  return unreadable("it is of a class that wraps other tensors");
}

struct Known {
  std::string_view name;
  Result (*result)(Arguments);
};
constexpr std::array kKnown = {
    Known{"collections.OrderedDict", dict},
    Known{"collections.Counter", dict},
    Known{"collections.UserDict", dict},
    Known{"collections.defaultdict", default_dict},
    Known{"collections.deque", list},
    Known{"builtins.dict", dict},
    Known{"builtins.list", list},
    Known{"builtins.tuple", list},
    Known{"builtins.set", list},
    Known{"builtins.frozenset", list},
    Known{"builtins.str", text},
    Known{"builtins.bytes", bytes},
    Known{"builtins.bytearray", bytes},
    Known{"_codecs.encode", encoded},
    Known{"copyreg._reconstructor", reconstructed},
    Known{"numpy.core.multiarray._reconstruct", reconstructed},
    Known{"numpy._core.multiarray._reconstruct", reconstructed},
    Known{"torch.Size", list},
    Known{"torch.device", device},
    Known{"torch.serialization._get_layout", text},
    Known{"torch._utils._rebuild_tensor", tensor_1},
    Known{"torch._utils._rebuild_tensor_v2", tensor_2},
    Known{"torch._utils._rebuild_tensor_v3", tensor_3},
    Known{"torch._utils._rebuild_parameter", parameter},
    Known{"torch._utils._rebuild_parameter_with_state", parameter},
    Known{"torch.nn.parameter.Parameter", parameter},
    Known{"torch.nn.parameter.Buffer", parameter},
    Known{"torch._tensor._rebuild_from_type_v2", typed},
    Known{"torch._utils._rebuild_sparse_tensor", sparse},
    Known{"torch._utils._rebuild_sparse_csr_tensor", sparse},
    Known{"torch._utils._rebuild_qtensor", quantized},
    Known{"torch._utils._rebuild_meta_tensor_no_storage", meta},
    Known{"torch._utils._rebuild_nested_tensor", nested},
    Known{"torch._utils._rebuild_wrapper_subclass", wrapper},
};

// The class of an object that something unknown makes.
const std::string* class_of(PicklePointer function) {
  static const std::string kUnnamed = "object";
  if (const auto* global = pickle_as<PickleGlobal>(function)) return &global->name;
  if (const auto* object = pickle_as<PickleObject>(function)) return object->name;
  return &kUnnamed;
}

}  // namespace

void fail_pickle(const std::string& problem) {
  throw DamagedError("the pickle is rejected: " + problem);
}

std::string global_name(const std::string& module, const std::string& name) {
  if (module.size() + name.size() > kMaxName) fail_pickle("a name is too long");
  if (module == "__builtin__") return "builtins." + name;
  if (module == "copy_reg") return "copyreg." + name;
  return module + "." + name;
}

PickleValue called(PicklePointer function, Arguments arguments) {
  const std::string* const name = class_of(function);
  const auto known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == *name; });
  if (known != kKnown.end() && pickle_as<PickleGlobal>(function) != nullptr)
    if (Result result = known->result(arguments)) return std::move(*result);
  return {PickleObject{name, {arguments.begin(), arguments.end()}}};
}

// ('storage', torch.FloatStorage, key, device, elements), and before PyTorch 1.6 also the place in
// another storage, or None. ('module', class, ...) stands for a class with its source text.
PickleValue persistent(PicklePointer id) {
  static const std::string kName = "persistent id";
  const auto* tuple = pickle_as<PickleList>(id);
  if (tuple == nullptr || tuple->items.empty()) return {PickleObject{&kName, {}}};
  const auto& items = tuple->items;
  const std::string& kind = require<std::string>(items[0], "a text");
  if (kind == "module" && items.size() > 1) return {PickleObject{class_of(items[1]), {}}};
  if (kind != "storage" || items.size() < 5 || items.size() > 6)
    fail_pickle("a reference is not to a storage");
  const std::string& type = require<PickleGlobal>(items[1], "a storage's type").name;
  if (!type.starts_with("torch.")) fail_pickle("a storage has no type");
  const std::string& key = require<std::string>(items[2], "a key");
  if (key.size() > kMaxName) fail_pickle("a name is too long");
  PickleStorage storage{type.substr(type.rfind('.') + 1), key, size_of(items[4])};
  if (items.size() == 6 && !is_none(items[5])) {
    const auto& view = require<PickleList>(items[5], "a tuple").items;
    if (view.size() != 3) fail_pickle("a view of a storage does not have three parts");
    storage.view = {size_of(view[1]), size_of(view[2])};
  }
  return {std::make_shared<const PickleStorage>(std::move(storage))};
}

}  // namespace ddp::ckpt
