// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/core/checksummed_text.h"

#include <fmt/format.h>

#include <span>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"

namespace ddp::ckpt {
namespace {

constexpr std::string_view kPrefix = "{\"crc32c\": \"";
constexpr std::size_t kDigits = 8;

std::uint32_t checksum_of(std::string_view body) {
  return crc32c(std::as_bytes(std::span(body)));
}

}  // namespace

std::string with_checksum(std::string_view fields) {
  const std::string body = fmt::format("\",\n{}", fields);
  return fmt::format("{}{}{}", kPrefix, checksum_text(checksum_of(body)), body);
}

std::uint32_t require_checksum(std::string_view text, std::string_view kind, std::size_t most) {
  if (text.size() > most) throw DamagedError(fmt::format("it is larger than {} bytes", most));
  if (text.size() < kPrefix.size() + kDigits || !text.starts_with(kPrefix))
    throw DamagedError(fmt::format("it does not start like {}", kind));
  const std::uint32_t checksum = checksum_of(text.substr(kPrefix.size() + kDigits));
  if (text.substr(kPrefix.size(), kDigits) != checksum_text(checksum))
    throw DamagedError("its checksum is wrong: it was truncated or changed");
  return checksum;
}

}  // namespace ddp::ckpt
