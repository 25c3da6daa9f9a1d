// SPDX-License-Identifier: Apache-2.0
// Reads pickles of any protocol without Python and without executing anything: the parser knows the
// meaning of a fixed list of names (pickle_calls.h) and represents every other object by the name
// of its class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::ckpt {

struct PickleValue;
using PicklePointer = const PickleValue*;  // points into Pickle::values

struct PickleInteger {
  std::size_t bits = 0;  // of an integer that has more than 64
};
struct PickleBytes {
  std::string bytes;
};
struct PickleGlobal {
  std::string name;  // "torch.FloatStorage"; Python 3's names of modules
};
struct PickleList {
  std::vector<PicklePointer> items;  // of a tuple, a list or a set
};
struct PickleDict {
  std::vector<std::pair<PicklePointer, PicklePointer>> items;
};
struct PickleStorage {
  std::string type;  // "FloatStorage"
  std::string key;   // of the zip entry data/<key>
  std::uint64_t elements = 0;
  struct View {
    std::uint64_t offset = 0;  // elements
    std::uint64_t size = 0;
  };
  std::optional<View> view = {};  // of the storage with this key, in files before PyTorch 1.6
};
struct PickleTensor {
  PickleStorage storage;
  std::uint64_t offset = 0;  // elements
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // elements
  std::string dtype = {};              // "uint16"; empty: the type of the storage
  bool negated = false;                // the values are those of the storage with other signs
  bool conjugated = false;
  std::string problem = {};  // the reason why its values cannot be read; then nothing else is set
};
// An object whose class has no meaning here.
struct PickleObject {
  const std::string* name = nullptr;  // "argparse.Namespace"
  std::vector<PicklePointer> parts;   // what it was made from
};

struct PickleValue {
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, PickleInteger, double,
               std::string, PickleBytes, PickleGlobal, PickleList, PickleDict, PickleObject,
               std::shared_ptr<const PickleStorage>, std::shared_ptr<const PickleTensor>>
      value;
};

// Returns nullptr if the value is of another type.
template <typename Value>
const Value* pickle_as(PicklePointer pointer) {
  return std::get_if<Value>(&pointer->value);
}

// The result of a pickle; values may be shared, and a malicious pickle may contain cycles.
struct Pickle {
  std::deque<PickleValue> values;
  PicklePointer root = nullptr;
  std::size_t size = 0;  // bytes
};

// Reads the pickle at the beginning of `bytes`. Throws DamagedError naming the opcode or the rule
// that is violated.
Pickle parse_pickle(std::span<const std::byte> bytes);

}  // namespace ddp::ckpt
