// SPDX-License-Identifier: Apache-2.0
// How a dataset of another program is stored, and what that means for its values. Runs in the child
// of hdf5_child.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/hdf5_handle.h"

namespace ddp::ckpt {

struct DatasetForm {
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t offset = 0;  // of its bytes, if they are its values
  // Its values are not bytes in one place: only libhdf5 can read them.
  bool encoded = false;
  std::optional<std::uint32_t> crc32c = {};  // an attribute of our own files
  // Not empty: the reason why its values cannot be read, or why it has none.
  std::string unreadable = {};
  std::string left_out = {};
};

// `ours`: the file was written by hdf5_ckpt. Throws UnsupportedError for a part of an array.
DatasetForm form_of(hid_t dataset, bool ours);

// Opens the file for reading without plugins, file locks and external links.
Hdf5File open_foreign(const std::string& path);

// Writes the values of the dataset `name` into the file descriptor at `offset`, piece by piece, in
// the order and the form in which a checkpoint stores them.
struct Extraction {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t offset = 0;
};
void extract(hid_t file, const Extraction& what, int to);

}  // namespace ddp::ckpt
