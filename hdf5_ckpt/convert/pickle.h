// SPDX-License-Identifier: Apache-2.0
// Reads the pickles that torch.save writes for dictionaries of tensors, without Python and without
// executing anything: the parser recognizes a fixed list of names and calls none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::ckpt {

struct PickleValue;
using PicklePointer = const PickleValue*;  // points into Pickle::values

struct PickleGlobal {
  std::string name;  // "torch FloatStorage"
};
struct PickleList {
  std::vector<PicklePointer> items;  // of a tuple or a list
};
struct PickleDict {
  std::vector<std::pair<PicklePointer, PicklePointer>> items;
};
struct PickleStorage {
  std::string type;  // "FloatStorage"
  std::string key;   // of the zip entry data/<key>
};
struct PickleTensor {
  PickleStorage storage;
  std::uint64_t offset = 0;  // elements
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // elements
};

struct PickleValue {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, PickleGlobal, PickleList,
               PickleDict, PickleStorage, PickleTensor>
      value;
};

// The result of a pickle; values may be shared, and a malicious pickle may contain cycles.
struct Pickle {
  std::deque<PickleValue> values;
  PicklePointer root = nullptr;
};

// Throws DamagedError naming the opcode or name that is not supported.
Pickle parse_pickle(std::span<const std::byte> bytes);

}  // namespace ddp::ckpt
