// SPDX-License-Identifier: Apache-2.0
// Reads JSON of unknown origin. Every access names the expected type and range and, on a mismatch,
// reports the location and the value found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddp::ckpt {

// Like parse_bounded_json, but throws DamagedError, or UnreadableError if this process might not
// have the memory that parsing could need.
nlohmann::json parse_json(std::string_view text);

// Returns the reason why `value` cannot be written as JSON and read back unchanged ("/lr is not a
// finite number"); empty if it can.
std::string json_problem(const nlohmann::json& value);

// An object and its location ("arrays[3]") for messages. All members throw DamagedError.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where);

  const std::string& where() const noexcept { return where_; }
  const nlohmann::json& at(const char* key) const;
  const nlohmann::json& list(const char* key, std::size_t most) const;
  std::uint64_t number(const char* key, std::uint64_t most) const;
  const std::string& text(const char* key) const;
  // Eight lowercase hexadecimal digits.
  std::uint32_t checksum(const char* key) const;
  bool has(const char* key) const { return object_.contains(key); }

  [[noreturn]] void fail(const char* key, const std::string& problem) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

std::string checksum_text(std::uint32_t crc);

// Parses the result of checksum_text. Throws DamagedError starting with `where`.
std::uint32_t checksum_value(const nlohmann::json& json, const std::string& where);

}  // namespace ddp::ckpt
