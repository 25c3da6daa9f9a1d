// SPDX-License-Identifier: Apache-2.0
// JSON texts that start with their own checksum at a fixed place, so that any flipped bit is found
// before the JSON parser sees a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::ckpt {

// Returns `{"crc32c": "<digits>",\n<fields>`. `fields` are the other ones of the object, with the
// brace that ends it.
std::string with_checksum(std::string_view fields);

// Returns the checksum of such a text. Throws DamagedError ("it does not start like a manifest") if
// it is longer than `most` bytes, is not one, or was changed.
std::uint32_t require_checksum(std::string_view text, std::string_view kind, std::size_t most);

}  // namespace ddp::ckpt
