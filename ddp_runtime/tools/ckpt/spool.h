#pragma once
// External arrays as dense bytes: those that lie dense in their file are seen there, the others
// (transposed, sliced) are put in order in a file that has no name.

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "hdf5_ckpt/convert/external.h"

namespace ddp::ckpt::tool {

class Spool {
 public:
  // `file` and `arrays` outlive this; the nameless file is made where `near` is, or will be. Throws
  // IoError.
  Spool(std::span<const std::byte> file, std::span<const ExternalArray> arrays,
        const std::filesystem::path& near);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();

  // The bytes of array number `index`.
  std::span<const std::byte> dense(std::size_t index) const { return dense_[index]; }

 private:
  std::vector<std::span<const std::byte>> dense_;
  std::span<std::byte> mapped_;
};

}  // namespace ddp::ckpt::tool
