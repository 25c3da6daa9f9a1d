// SPDX-License-Identifier: Apache-2.0
// Shared code of the HDF5 writers: shapes, attributes, and properties that make equal contents give
// equal bytes. Call while holding an Hdf5Session. All functions throw Error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/hdf5_handle.h"

namespace ddp::ckpt {

// Arrays of at least kAlignedArrayBytes start at a multiple of kAlignment in the file.
inline constexpr std::uint64_t kAlignedArrayBytes = 65536;

// Returns access properties for a file that no other process uses yet and whose HDF5 structures
// take about `metadata` bytes.
Hdf5Properties private_file_access(std::uint64_t metadata);

// Returns properties of class `kind` (H5P_FILE_CREATE, ...) for an object without timestamps.
Hdf5Properties timeless(hid_t kind);

// Returns link properties for names in UTF-8.
Hdf5Properties utf8_link();

Hdf5Space space_of(const Shape& shape);

// Returns a UTF-8 string type of `length` bytes.
Hdf5Type text_type(std::size_t length);

// Add attributes to an open object.
void put_attribute(hid_t object, const std::string& name, hid_t type, hid_t space,
                   const void* value);  // null: an attribute without elements
void put_shape(hid_t object, const std::string& name, const Shape& shape);
void put_text(hid_t object, const std::string& name, std::string_view text);
void put_json(hid_t object, const std::string& name, const nlohmann::json& value);  // no lists

}  // namespace ddp::ckpt
