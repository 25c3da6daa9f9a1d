// SPDX-License-Identifier: Apache-2.0
// Provides external arrays as dense bytes. An array that is dense in its file is used in place; any
// other array (transposed, sliced) is copied to an unnamed temporary file in dense order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "hdf5_ckpt/convert/external.h"

namespace ddp::ckpt::tool {

class Spool {
 public:
  // `file` and `arrays` must outlive this object. The temporary file is created in the directory of
  // `near`, which need not exist yet. Throws IoError.
  Spool(std::span<const std::byte> file, std::span<const ExternalArray> arrays,
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
