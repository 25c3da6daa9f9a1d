// SPDX-License-Identifier: Apache-2.0
// A stack machine for pickles, like the one that Python's pickletools describes. What would call an
// object in Python calls a function of pickle_calls.h here, or makes a PickleObject.

#include "hdf5_ckpt/convert/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "hdf5_ckpt/convert/pickle_calls.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxSteps = 20000000;
constexpr std::size_t kMaxCopied = 256000000;  // bytes
constexpr int kNewestProtocol = 5;
// Places of constants, after those of the numbers of a byte.
constexpr std::size_t kNone = 256;
constexpr std::size_t kTrue = 257;
constexpr std::size_t kFalse = 258;
constexpr std::size_t kConstants = 259;

// The operands of opcodes.
class Operands {
 public:
  explicit Operands(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return at_; }

  template <typename Number>
  Number number() {
    Number value = 0;
    const auto raw = take(sizeof value);
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  // Bytes after their number.
  template <typename Size>
  std::span<const std::byte> counted() {
    return take(number<Size>());
  }
  template <typename Size>
  std::string text() {
    const auto raw = counted<Size>();
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

  std::string line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) fail_pickle("it ends too early");
    const auto raw = take(static_cast<std::size_t>(end - rest.begin()) + 1);
    return {reinterpret_cast<const char*>(raw.data()), raw.size() - 1};
  }

  double big_endian_double() {
    std::array<std::byte, sizeof(double)> turned{};
    const auto raw = take(sizeof(double));
    std::reverse_copy(raw.begin(), raw.end(), turned.begin());
    return std::bit_cast<double>(turned);
  }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail_pickle("it ends too early");
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

class Stack {
 public:
  void push(PickleValue* value) { values_.push_back(value); }
  void mark() { marks_.push_back(values_.size()); }

  PickleValue* top() const {
    if (values_.empty()) fail_pickle("its stack is empty");
    return values_.back();
  }

  PickleValue* pop() {
    if (values_.empty() || (!marks_.empty() && values_.size() <= marks_.back()))
      fail_pickle("its stack is empty");
    PickleValue* const value = values_.back();
    values_.pop_back();
    return value;
  }

  std::vector<PicklePointer> pop(std::size_t count) {
    std::vector<PicklePointer> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(pop());
    std::reverse(values.begin(), values.end());
    return values;
  }

  std::vector<PicklePointer> pop_to_mark() {
    if (marks_.empty()) fail_pickle("it has no mark");
    if (marks_.back() > values_.size()) fail_pickle("its stack is empty");
    const auto first = values_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PicklePointer> values(first, values_.end());
    values_.erase(first, values_.end());
    marks_.pop_back();
    return values;
  }

  bool has_mark_on_top() const { return !marks_.empty() && marks_.back() == values_.size(); }

 private:
  std::vector<PickleValue*> values_;
  std::vector<std::size_t> marks_;
};

// An integer of any size, as two's complement. Numbers that a 64-bit type can hold are kept.
PickleValue long_number(std::span<const std::byte> raw) {
  if (raw.empty()) return {std::int64_t{0}};
  const bool negative = (raw.back() & std::byte{0x80}) != std::byte{0};
  const std::byte filler = negative ? std::byte{0xFF} : std::byte{0};
  while (raw.size() > 1 && raw.back() == filler) raw = raw.first(raw.size() - 1);
  const bool sign_is_lost = ((raw.back() & std::byte{0x80}) != std::byte{0}) != negative;
  const std::size_t bits = 8 * (raw.size() + (sign_is_lost ? 1 : 0));
  if (raw.size() > sizeof(std::uint64_t)) return {PickleInteger{bits}};
  std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
  std::memcpy(&value, raw.data(), raw.size());
  if (bits <= 64) return {static_cast<std::int64_t>(value)};
  return negative ? PickleValue{PickleInteger{bits}} : PickleValue{value};
}

// "12", or "12L" as Python 2 wrote it; "00" and "01" are false and true in protocol 0.
PickleValue number_in(std::string text) {
  if (text == "00" || text == "01") return {text == "01"};
  if (text.ends_with('L')) text.pop_back();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return {PickleInteger{4 * text.size()}};
  if (error != std::errc() || end != text.data() + text.size()) fail_pickle("a number is wrong");
  return {value};
}

PickleValue floating_number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail_pickle("a number is wrong");
  return {value};
}

// 'text' of protocol 0, whose escape sequences no name of a tensor needs.
std::string quoted_in(const std::string& line) {
  const bool quoted = line.size() >= 2 && line.front() == line.back() &&
                      (line.front() == '\'' || line.front() == '"');
  if (!quoted || line.find('\\') != std::string::npos) fail_pickle("a text has escape sequences");
  return line.substr(1, line.size() - 2);
}

class Machine {
 public:
  explicit Machine(std::span<const std::byte> bytes) : in_(bytes) {}

  Pickle run() {
    for (std::size_t steps = 0; steps < kMaxSteps; ++steps) {
      const auto code = static_cast<unsigned char>(in_.number<std::uint8_t>());
      if (code == '.') {
        const PickleValue* const root = stack_.pop();
        return {std::move(made_), root, in_.position()};
      }
      if (!number(code) && !text(code) && !container(code) && !change(code) && !memory(code) &&
          !object(code))
        fail_pickle(fmt::format("opcode 0x{:02x} is unknown", code));
    }
    fail_pickle("it is too long");
  }

 private:
  PickleValue* make(PickleValue value) { return &made_.emplace_back(std::move(value)); }
  template <typename Value>
  bool push(Value value) {
    stack_.push(make(PickleValue{std::move(value)}));
    return true;
  }
  bool push_value(PickleValue value);
  // Small constants are made once, because a file may have millions of them.
  bool push_constant(std::size_t index, PickleValue value) {
    PickleValue*& made = constants_[index];
    if (made == nullptr) made = make(std::move(value));
    return stack_.push(made), true;
  }

  bool number(unsigned char code);
  bool text(unsigned char code);
  bool container(unsigned char code);
  bool change(unsigned char code);
  void add(PickleValue* to, const std::vector<PicklePointer>& items, bool pairs);
  bool memory(unsigned char code);
  bool recall(std::uint64_t index);
  bool object(unsigned char code);
  bool call();

  Operands in_;
  std::deque<PickleValue> made_;  // a deque, because pointers into it must stay valid
  Stack stack_;
  std::unordered_map<std::uint64_t, PickleValue*> memo_;
  std::array<PickleValue*, kConstants> constants_{};
  std::size_t copied_ = 0;  // bytes
};

// The bytes of a value that a call may have copied from its arguments.
std::size_t copied_bytes(const PickleValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return text->size();
  if (const auto* bytes = std::get_if<PickleBytes>(&value.value)) return bytes->bytes.size();
  if (const auto* list = std::get_if<PickleList>(&value.value)) return 8 * list->items.size();
  if (const auto* dict = std::get_if<PickleDict>(&value.value)) return 16 * dict->items.size();
  if (const auto* object = std::get_if<PickleObject>(&value.value)) return 8 * object->parts.size();
  return 0;
}

bool Machine::push_value(PickleValue value) {
  // Few bytes of a pickle can repeat the copy of a large container.
  copied_ += copied_bytes(value);
  if (copied_ > kMaxCopied) fail_pickle("its containers are copied too often");
  return stack_.push(make(std::move(value))), true;
}

bool Machine::number(unsigned char code) {
  switch (code) {
    case 0x80:
      if (const int version = in_.number<std::uint8_t>(); version > kNewestProtocol)
        fail_pickle(fmt::format("protocol {} is newer than {}", version, kNewestProtocol));
      return true;
    case 0x95:  // the size of a frame
      return in_.number<std::uint64_t>(), true;
    case 'N':
      return push_constant(kNone, {std::monostate{}});
    case 0x88:
      return push_constant(kTrue, {true});
    case 0x89:
      return push_constant(kFalse, {false});
    case 'J':
      return push(std::int64_t{in_.number<std::int32_t>()});
    case 'K': {
      const auto value = in_.number<std::uint8_t>();
      return push_constant(value, {std::int64_t{value}});
    }
    case 'M':
      return push(std::int64_t{in_.number<std::uint16_t>()});
    case 0x8a:
      return push_value(long_number(in_.counted<std::uint8_t>()));
    case 0x8b:
      return push_value(long_number(in_.counted<std::uint32_t>()));
    case 'I':
    case 'L':
      return push_value(number_in(in_.line()));
    case 'F':
      return push_value(floating_number_in(in_.line()));
    case 'G':
      return push(in_.big_endian_double());
    default:
      return false;
  }
}

bool Machine::text(unsigned char code) {
  switch (code) {
    case 'X':
    case 'T':  // a str of Python 2
      return push(in_.text<std::uint32_t>());
    case 0x8c:
    case 'U':
      return push(in_.text<std::uint8_t>());
    case 0x8d:
      return push(in_.text<std::uint64_t>());
    case 'V':
      return push(in_.line());
    case 'S':
      return push(quoted_in(in_.line()));
    case 'C':
      return push(PickleBytes{in_.text<std::uint8_t>()});
    case 'B':
      return push(PickleBytes{in_.text<std::uint32_t>()});
    case 0x8e:
    case 0x96:
      return push(PickleBytes{in_.text<std::uint64_t>()});
    default:
      return false;
  }
}

bool Machine::container(unsigned char code) {
  switch (code) {
    case '(':
      return stack_.mark(), true;
    case ')':
    case ']':
    case 0x8f:
      return push(PickleList{});
    case '}':
      return push(PickleDict{});
    case 't':
    case 'l':
    case 0x91:
      return push(PickleList{stack_.pop_to_mark()});
    case 0x85:
    case 0x86:
    case 0x87:
      return push(PickleList{stack_.pop(code - 0x84U)});
    case 'd': {
      const auto items = stack_.pop_to_mark();
      push(PickleDict{});
      return add(stack_.top(), items, true), true;
    }
    case '0':
      if (stack_.has_mark_on_top()) return stack_.pop_to_mark(), true;
      return stack_.pop(), true;
    case '1':
      return stack_.pop_to_mark(), true;
    case '2':
      return stack_.push(stack_.top()), true;
    default:
      return false;
  }
}

// Changes the container or the object on top of the stack.
bool Machine::change(unsigned char code) {
  switch (code) {
    case 's':
    case 'u': {
      const auto items = code == 's' ? stack_.pop(2) : stack_.pop_to_mark();
      return add(stack_.top(), items, true), true;
    }
    case 'a':
    case 'e':
    case 0x90: {
      const auto items = code == 'a' ? stack_.pop(1) : stack_.pop_to_mark();
      return add(stack_.top(), items, false), true;
    }
    case 'b': {
      // Attributes of containers and tensors, such as the versions in a state_dict, are not data.
      const auto state = stack_.pop(1);
      if (auto* object = std::get_if<PickleObject>(&stack_.top()->value))
        object->parts.push_back(state.front());
      return true;
    }
    default:
      return false;
  }
}

void Machine::add(PickleValue* to, const std::vector<PicklePointer>& items, bool pairs) {
  if (auto* object = std::get_if<PickleObject>(&to->value)) {
    object->parts.insert(object->parts.end(), items.begin(), items.end());
    return;
  }
  if (!pairs) {
    auto* const list = std::get_if<PickleList>(&to->value);
    if (list == nullptr) fail_pickle("an operand is not a list");
    list->items.insert(list->items.end(), items.begin(), items.end());
    return;
  }
  auto* const dict = std::get_if<PickleDict>(&to->value);
  if (dict == nullptr) fail_pickle("an operand is not a dictionary");
  if (items.size() % 2 != 0) fail_pickle("a key has no value");
  for (std::size_t i = 0; i < items.size(); i += 2)
    dict->items.emplace_back(items[i], items[i + 1]);
}

bool Machine::memory(unsigned char code) {
  switch (code) {
    case 'q':
      return memo_[in_.number<std::uint8_t>()] = stack_.top(), true;
    case 'r':
      return memo_[in_.number<std::uint32_t>()] = stack_.top(), true;
    case 0x94: {
      const std::size_t index = memo_.size();
      return memo_[index] = stack_.top(), true;
    }
    case 'h':
      return recall(in_.number<std::uint8_t>());
    case 'j':
      return recall(in_.number<std::uint32_t>());
    case 'p':
    case 'g': {
      const PickleValue index = number_in(in_.line());
      const auto* number = std::get_if<std::int64_t>(&index.value);
      if (number == nullptr || *number < 0) fail_pickle("a number is wrong");
      if (code == 'g') return recall(static_cast<std::uint64_t>(*number));
      return memo_[static_cast<std::uint64_t>(*number)] = stack_.top(), true;
    }
    default:
      return false;
  }
}

bool Machine::recall(std::uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail_pickle("it reads a memo entry that it has not stored");
  return stack_.push(found->second), true;
}

bool Machine::object(unsigned char code) {
  switch (code) {
    case 'c': {
      const std::string module = in_.line();
      return push(PickleGlobal{global_name(module, in_.line())});
    }
    case 0x93: {
      const auto names = stack_.pop(2);
      const auto* module = std::get_if<std::string>(&names[0]->value);
      const auto* name = std::get_if<std::string>(&names[1]->value);
      if (module == nullptr || name == nullptr) fail_pickle("a name is not a text");
      return push(PickleGlobal{global_name(*module, *name)});
    }
    case 0x82:
      return in_.number<std::uint8_t>(), push(PickleGlobal{"extension"});
    case 0x83:
      return in_.number<std::uint16_t>(), push(PickleGlobal{"extension"});
    case 0x84:
      return in_.number<std::uint32_t>(), push(PickleGlobal{"extension"});
    case 'P':
      return in_.line(), push_value(persistent(make({std::monostate{}})));
    case 'Q':
      return push_value(persistent(stack_.pop()));
    case 'R':
    case 0x81:
      return call();
    case 0x92:
      stack_.pop();  // keywords
      return call();
    case 'o': {
      auto items = stack_.pop_to_mark();
      if (items.empty()) fail_pickle("its stack is empty");
      return push_value(called(items.front(), std::span(items).subspan(1)));
    }
    case 'i': {
      const std::string module = in_.line();
      const PickleValue* const type = make({PickleGlobal{global_name(module, in_.line())}});
      return push_value(called(type, stack_.pop_to_mark()));
    }
    default:
      return false;
  }
}

// Calls the function below the tuple of arguments on top of the stack.
bool Machine::call() {
  const PickleValue* const arguments = stack_.pop();
  const PickleValue* const function = stack_.pop();
  const auto* tuple = std::get_if<PickleList>(&arguments->value);
  if (tuple == nullptr) fail_pickle("an operand is not a tuple");
  return push_value(called(function, tuple->items));
}

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes) {
  return Machine(bytes).run();
}

}  // namespace ddp::ckpt
