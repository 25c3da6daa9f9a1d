// SPDX-License-Identifier: Apache-2.0
// A stack machine for pickle protocol 2, like the one that Python's pickletools describes, without
// the instructions that could call arbitrary objects.

#include "hdf5_ckpt/convert/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxValues = 20000000;

class Machine {
 public:
  explicit Machine(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Pickle run() {
    while (true) {
      const auto code = static_cast<unsigned char>(number<std::uint8_t>());
      if (code == '.') {
        const PickleValue* const root = pop();
        return {std::move(made_), root};
      }
      if (++steps_ > kMaxValues) fail("it is too long");
      if (!constant(code) && !container(code) && !memory(code) && !object(code))
        fail(fmt::format("opcode 0x{:02x} is not one that a dictionary of tensors needs", code));
    }
  }

 private:
  [[noreturn]] static void fail(const std::string& problem) {
    throw DamagedError("the pickle is rejected: " + problem);
  }

  template <typename Value>
  PickleValue* make(Value value) {
    return &made_.emplace_back(PickleValue{std::move(value)});
  }

  template <typename Number>
  Number number() {
    Number value = 0;
    const auto raw = take(sizeof value);
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  std::span<const std::byte> take(std::size_t size) {
    if (size > bytes_.size() - at_) fail("it ends too early");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::string text(std::size_t size) {
    const auto raw = take(size);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

  std::string line() {
    std::string result;
    for (char c = 0; (c = static_cast<char>(number<std::uint8_t>())) != '\n';) result.push_back(c);
    return result;
  }

  void push(PickleValue* value) { stack_.push_back(value); }

  PickleValue* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
      fail("its stack is empty");
    PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<PicklePointer> pop_to_mark() {
    if (marks_.empty()) fail("it has no mark");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PicklePointer> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  template <typename Value>
  static const Value& as(const PickleValue* pointer, const char* what) {
    const auto* value = std::get_if<Value>(&pointer->value);
    if (value == nullptr) fail(fmt::format("an operand is not {}", what));
    return *value;
  }

  template <typename Value>
  static Value& as(PickleValue* pointer, const char* what) {
    auto* value = std::get_if<Value>(&pointer->value);
    if (value == nullptr) fail(fmt::format("an operand is not {}", what));
    return *value;
  }

  PickleValue* top() {
    if (stack_.empty()) fail("its stack is empty");
    return stack_.back();
  }

  bool constant(unsigned char code) {
    switch (code) {
      case 0x80:
        if (const int version = number<std::uint8_t>(); version > 2)
          fail(fmt::format("protocol {} is newer than 2", version));
        return true;
      case 'N':
        return push(make(std::monostate{})), true;
      case 0x88:
        return push(make(true)), true;
      case 0x89:
        return push(make(false)), true;
      case 'J':
        return push(make(std::int64_t{number<std::int32_t>()})), true;
      case 'K':
        return push(make(std::int64_t{number<std::uint8_t>()})), true;
      case 'M':
        return push(make(std::int64_t{number<std::uint16_t>()})), true;
      case 0x8a:
        return push(make(long_number())), true;
      case 'G':
        return push(make(big_endian_double())), true;
      case 'X':
        return push(make(text(number<std::uint32_t>()))), true;
      default:
        return false;
    }
  }

  std::int64_t long_number() {
    const auto raw = take(number<std::uint8_t>());
    if (raw.size() > sizeof(std::int64_t)) fail("a number has more than 64 bits");
    const bool negative = !raw.empty() && (raw.back() & std::byte{0x80}) != std::byte{0};
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, raw.data(), raw.size());
    return static_cast<std::int64_t>(value);
  }

  double big_endian_double() {
    auto raw = take(sizeof(double));
    std::array<std::byte, sizeof(double)> turned{};
    std::reverse_copy(raw.begin(), raw.end(), turned.begin());
    return std::bit_cast<double>(turned);
  }

  bool container(unsigned char code) {
    switch (code) {
      case '(':
        return marks_.push_back(stack_.size()), true;
      case ')':
      case ']':
        return push(make(PickleList{})), true;
      case '}':
        return push(make(PickleDict{})), true;
      case 't':
      case 'l':
        return push(make(PickleList{pop_to_mark()})), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(code - 0x84U), true;
      case 's':
        return set_item(), true;
      case 'u':
        return set_items(), true;
      case 'a': {
        PicklePointer const item = pop();
        return as<PickleList>(top(), "a list").items.push_back(item), true;
      }
      case 'e': {
        auto items = pop_to_mark();
        auto& list = as<PickleList>(top(), "a list").items;
        return list.insert(list.end(), items.begin(), items.end()), true;
      }
      default:
        return false;
    }
  }

  void push_tuple(std::size_t size) {
    PickleList tuple;
    for (std::size_t i = 0; i < size; ++i) tuple.items.push_back(pop());
    std::reverse(tuple.items.begin(), tuple.items.end());
    push(make(std::move(tuple)));
  }

  void set_item() {
    PicklePointer const value = pop();
    PicklePointer const key = pop();
    as<PickleDict>(top(), "a dictionary").items.emplace_back(key, value);
  }

  void set_items() {
    auto items = pop_to_mark();
    if (items.size() % 2 != 0) fail("a key has no value");
    auto& dict = as<PickleDict>(top(), "a dictionary").items;
    for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
  }

  bool memory(unsigned char code) {
    switch (code) {
      case 'q':
        return memo_[number<std::uint8_t>()] = top(), true;
      case 'r':
        return memo_[number<std::uint32_t>()] = top(), true;
      case 'h':
        return recall(number<std::uint8_t>()), true;
      case 'j':
        return recall(number<std::uint32_t>()), true;
      default:
        return false;
    }
  }

  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it reads a memo entry that it has not stored");
    push(found->second);
  }

  bool object(unsigned char code) {
    switch (code) {
      case 'c': {
        const std::string module = line();
        const std::string name = module + " " + line();
        if (!is_known(name)) fail(fmt::format("it names '{:.100}'", name));
        return push(make(PickleGlobal{name})), true;
      }
      case 'Q':
        return push(make(storage_of(pop()))), true;
      case 'R': {
        const PickleValue* const arguments = pop();
        const PickleValue* const function = pop();
        return push(build(as<PickleGlobal>(function, "a name").name,
                          as<PickleList>(arguments, "a tuple").items)),
               true;
      }
      case 'b':  // attributes of an OrderedDict: a state_dict's versions
        pop();
        as<PickleDict>(top(), "a dictionary");
        return true;
      default:
        return false;
    }
  }

  static bool is_known(const std::string& name) {
    static constexpr std::array<std::string_view, 3> kKnown = {"collections OrderedDict",
                                                               "torch._utils _rebuild_tensor_v2",
                                                               "torch._utils _rebuild_parameter"};
    return std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end() ||
           (name.starts_with("torch ") && name.ends_with("Storage"));
  }

  // ('storage', torch.FloatStorage, key, device, elements)
  static PickleStorage storage_of(PicklePointer pointer) {
    const auto& items = as<PickleList>(pointer, "a tuple").items;
    if (items.size() != 5 || as<std::string>(items[0], "a text") != "storage")
      fail("a reference is not to a storage");
    const std::string& type = as<PickleGlobal>(items[1], "a storage's type").name;
    if (!type.starts_with("torch ")) fail("a storage has no type");
    return {type.substr(6), as<std::string>(items[2], "a key")};
  }

  static std::uint64_t size_of(PicklePointer pointer) {
    const std::int64_t value = as<std::int64_t>(pointer, "a number");
    if (value < 0) fail("a size or a stride is negative");
    return static_cast<std::uint64_t>(value);
  }

  static std::vector<std::uint64_t> sizes_of(PicklePointer pointer) {
    std::vector<std::uint64_t> sizes;
    for (const auto& item : as<PickleList>(pointer, "a tuple").items)
      sizes.push_back(size_of(item));
    return sizes;
  }

  // A parameter is represented by its tensor.
  PickleValue* build(const std::string& name, const std::vector<PicklePointer>& arguments) {
    if (name == "collections OrderedDict" && arguments.empty()) return make(PickleDict{});
    if (name == "torch._utils _rebuild_parameter" && arguments.size() == 3) {
      return make(as<PickleTensor>(arguments[0], "a tensor"));
    }
    if (name == "torch._utils _rebuild_tensor_v2" && arguments.size() >= 6)
      return make(PickleTensor{as<PickleStorage>(arguments[0], "a storage"), size_of(arguments[1]),
                               sizes_of(arguments[2]), sizes_of(arguments[3])});
    fail(fmt::format("it does not use '{}' as torch.save does", name));
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::size_t steps_ = 0;
  std::deque<PickleValue> made_;  // a deque, because pointers into it must stay valid
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleValue*> memo_;
};

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes) {
  return Machine(bytes).run();
}

}  // namespace ddp::ckpt
