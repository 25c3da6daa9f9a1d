// SPDX-License-Identifier: Apache-2.0
// Messages quote names and texts shortened and in ASCII, because a terminal shows them.
#include "base/json/bounded_json.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace ddp {
namespace {

using nlohmann::json;

// Upper bound for a value's memory besides its text: the value itself in a growing list, its node
// or string on the heap, and its entry in the list with which the library destroys values.
constexpr std::size_t kBytesPerValue = 160;
// Below this, asking for the memory takes longer than parsing, and a process that does not have it
// cannot do anything else either.
constexpr std::size_t kMinBytesAskedFor = std::size_t{1} << 20;

// Scans a text, and stores only the names in the current objects. The library's parser with a
// callback would also work, but it scans all elements of a list again after each element, so that
// 10,000 arrays would take seconds.
class Bounds : public nlohmann::json_sax<json> {
 public:
  explicit Bounds(JsonLimits limits) : limits_(limits) {}

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
    if (depth_ >= limits_.depth) throw JsonError("its JSON is nested too deep");
    if (++values_ > limits_.values) throw JsonError("its JSON holds too many values");
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

  // The parser would silently take the last of several values.
  static void require_each_once(std::vector<std::string>& names) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw JsonError("its JSON has the name '" + sanitize_beginning(*twice, 100) + "' twice");
  }

  JsonLimits limits_;
  std::size_t values_ = 0;
  int depth_ = 0;
  std::vector<std::vector<std::string>> names_;  // of the objects that lead to the current place
  std::size_t objects_ = 0;
};

// The library's destructor allocates memory, and a failure there terminates the process. So this
// function allocates the total first, where a failure can be reported.
void require_memory(std::size_t bytes) {
  if (bytes < kMinBytesAskedFor) return;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw JsonMemoryError("reading its JSON may take " + std::to_string(bytes >> 20) +
                          " MiB of memory, more than this process may use");
  ::munmap(memory, bytes);
}

}  // namespace

json parse_bounded_json(std::string_view text, JsonLimits limits) {
  try {
    Bounds bounds(limits);
    json::sax_parse(text, &bounds);
    require_memory(text.size() + bounds.values() * kBytesPerValue);
    return json::parse(text);
  } catch (const json::exception& error) {
    // The parser quotes the invalid text, which may be long.
    throw JsonError("it is not JSON: " + sanitize_beginning(error.what(), 200));
  }
}

json parse_bounded_json_or_null(std::string_view text, JsonLimits limits) {
  try {
    return parse_bounded_json(text, limits);
  } catch (const JsonError&) {
    return nullptr;
  }
}

}  // namespace ddp
