// SPDX-License-Identifier: Apache-2.0
// Provides external arrays as dense bytes. An array whose bytes in its file are its values is used
// in place; any other array (transposed, sliced, conjugated) is copied to an unnamed temporary
// file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/foreign_file.h"

namespace ddp::ckpt::tool {

class Spool {
 public:
  // `file` and `arrays` must outlive this object. The temporary file is created in the directory of
  // `near`, which need not exist yet. Throws IoError.
  Spool(const ForeignFile& file, std::span<const ExternalArray> arrays,
        const std::filesystem::path& near);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();

  // The bytes of array `index`.
  std::span<const std::byte> dense(std::size_t index) const { return dense_[index]; }

 private:
  std::vector<std::span<const std::byte>> dense_;
  std::span<std::byte> mapped_;
};

}  // namespace ddp::ckpt::tool
