#pragma once
// The small arrays of a file, copied before anything is written: so their checksums are known when
// the skeleton is made, and those that lie side by side are written together. With thousands of
// them, a call of libhdf5 and one of the kernel for each is what a save takes time for.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hdf5_ckpt/array.h"
#include "hdf5_ckpt/detail/target_file.h"
#include "hdf5_ckpt/manifest.h"

namespace ddp::ckpt {

class SmallArrays {
 public:
  // Copies arrays of at most kSmallBytes, as long as all copies together have at most kMaxBytes.
  static constexpr std::uint64_t kSmallBytes = kMinBlockBytes;  // so each is one block
  static constexpr std::uint64_t kMaxBytes = 32ULL << 20;
  explicit SmallArrays(std::span<const ArrayView* const> arrays);

  // Of each array, in the order given; nothing for those that were not copied.
  const std::vector<std::optional<std::uint32_t>>& crcs() const noexcept { return crcs_; }

  // Writes the copies; `offsets` are those of all arrays in the file.
  void write(std::span<const std::uint64_t> offsets, TargetFile& target) const;

 private:
  std::vector<std::optional<std::uint32_t>> crcs_;
  std::vector<std::uint64_t> lengths_;  // of the copies; 0 for other arrays
  std::vector<std::byte> bytes_;        // of all copies, in order
};

}  // namespace ddp::ckpt
