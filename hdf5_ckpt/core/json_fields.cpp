// SPDX-License-Identifier: Apache-2.0
// Bounded parsing and checked access. Messages quote values shortened and in ASCII, because the
// values are of unknown origin and a terminal shows them.

#include "hdf5_ckpt/core/json_fields.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxJsonValues = 16000000;
constexpr std::size_t kMaxShownBytes = 40;
// Upper bound for a value's memory besides its text: the value itself in a growing list, its node
// or string on the heap, and its entry in the list with which the library destroys values.
constexpr std::size_t kBytesPerValue = 160;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text.replace(kMaxShownBytes, std::string::npos, "...");
  return text;
}

std::string problem_at(const json& value, const std::string& where, int depth) {
  if (depth > kMaxJsonDepth) return fmt::format("{} is nested too deep", where);
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("{} is not a finite number; leave it out or write it as a string", where);
  if (value.is_binary()) return fmt::format("{} is binary; save it as an array", where);
  if (value.is_structured())
    for (const auto& [key, child] : value.items()) {
      std::string problem = problem_at(child, fmt::format("{}/{}", where, key), depth + 1);
      if (!problem.empty()) return problem;
    }
  return "";
}

// Scans a text, and stores only the names in the current objects. The library's parser with a
// callback would also work, but it scans all elements of a list again after each element, so that
// 10,000 arrays would take seconds.
class Bounds : public nlohmann::json_sax<json> {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(std::int64_t) override { return value(); }
  bool number_unsigned(std::uint64_t) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool binary(json::binary_t&) override { return value(); }
  bool key(std::string& name) override {
    names_[objects_ - 1].push_back(name);
    return value();
  }
  bool start_object(std::size_t) override {
    if (names_.size() == objects_) names_.emplace_back();
    names_[objects_++].clear();
    return open();
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override {
    require_each_once(names_[--objects_]);
    return close();
  }
  bool end_array() override { return close(); }
  // Ignores syntax errors, which the parser that reads the text afterwards reports.
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

  std::size_t values() const { return values_; }

 private:
  bool value() {
    if (depth_ >= kMaxJsonDepth) throw DamagedError("its JSON is nested too deep");
    if (++values_ > kMaxJsonValues) throw DamagedError("its JSON holds too many values");
    return true;
  }
  bool open() {
    value();
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  // The parser would take the last of several values in silence.
  static void require_each_once(std::vector<std::string>& names) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw DamagedError(
          fmt::format("its JSON has the name '{}' twice", sanitize_beginning(*twice, 100)));
  }

  std::size_t values_ = 0;
  int depth_ = 0;
  std::vector<std::vector<std::string>> names_;  // of the objects that lead to the current place
  std::size_t objects_ = 0;
};

// The library's destructor allocates memory, and a failure there terminates the process. So this
// function allocates the total first, where a failure can be reported.
void require_memory(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw UnreadableError(fmt::format(
        "reading its JSON may take {} MiB of memory, more than this process may use", bytes >> 20));
  ::munmap(memory, bytes);
}

}  // namespace

json parse_bounded_json(std::string_view text) {
  try {
    Bounds bounds;
    json::sax_parse(text, &bounds);
    require_memory(1 + text.size() + bounds.values() * kBytesPerValue);
    return json::parse(text);
  } catch (const json::exception& error) {
    // The parser quotes the invalid text, which may be long.
    throw DamagedError("it is not JSON: " + sanitize_beginning(error.what(), 200));
  }
}

std::string json_problem(const json& value) {
  std::string problem = problem_at(value, "", 2);
  if (!problem.empty()) return problem;
  try {
    static_cast<void>(value.dump());
  } catch (const json::exception&) {
    return "a string in it is not UTF-8";
  }
  return "";
}

JsonFields::JsonFields(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw DamagedError(fmt::format("{} is {}, not an object", where_, shown(object)));
}

void JsonFields::fail(const char* key, const std::string& problem) const {
  throw DamagedError(fmt::format("{}{}{} {}", where_, where_.empty() ? "" : ".", key, problem));
}

const json& JsonFields::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) fail(key, "is missing");
  return *found;
}

const json& JsonFields::list(const char* key, std::size_t most) const {
  const json& value = at(key);
  if (!value.is_array()) fail(key, fmt::format("is {}, not a list", shown(value)));
  if (value.size() > most)
    fail(key, fmt::format("has {} entries, more than {}", value.size(), most));
  return value;
}

std::uint64_t JsonFields::number(const char* key, std::uint64_t most) const {
  const json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    fail(key, fmt::format("is {}, not a whole number from 0 to {}", shown(value), most));
  return value.get<std::uint64_t>();
}

const std::string& JsonFields::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(key, fmt::format("is {}, not a string", shown(value)));
  return value.get_ref<const std::string&>();
}

std::uint32_t JsonFields::checksum(const char* key) const {
  return checksum_value(at(key), fmt::format("{}{}{}", where_, where_.empty() ? "" : ".", key));
}

std::string checksum_text(std::uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

std::uint32_t checksum_value(const json& value, const std::string& where) {
  std::uint32_t crc = 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), crc, 16);
    if (text == checksum_text(crc)) return crc;
  }
  throw DamagedError(
      fmt::format("{} is {}, not a checksum of eight hexadecimal digits", where, shown(value)));
}

}  // namespace ddp::ckpt
