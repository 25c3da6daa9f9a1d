// SPDX-License-Identifier: Apache-2.0
// Messages quote values shortened and in ASCII, because the values are of unknown origin and a
// terminal shows them.

#include "hdf5_ckpt/core/json_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/json/bounded_json.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownBytes = 40;

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

}  // namespace

json parse_json(std::string_view text) {
  try {
    return parse_bounded_json(text);
  } catch (const JsonMemoryError& error) {
    throw UnreadableError(error.what());
  } catch (const JsonError& error) {
    throw DamagedError(error.what());
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
