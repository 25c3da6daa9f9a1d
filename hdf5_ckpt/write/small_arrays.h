// SPDX-License-Identifier: Apache-2.0
// The small arrays of a file, copied before anything is written, so that their checksums are known
// when the skeleton is made and adjacent ones are written together. With thousands of small arrays,
// one libhdf5 call and one system call for each would take most of the time of a save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/io/target_file.h"

namespace ddp::ckpt {

class SmallArrays {
 public:
  // Copies arrays of at most kSmallBytes, as long as the total is at most kMaxBytes.
  static constexpr std::uint64_t kSmallBytes = kMinBlockBytes;  // so each is one block
  static constexpr std::uint64_t kMaxBytes = 32ULL << 20;
  explicit SmallArrays(std::span<const ArrayView* const> arrays);

  // The checksum of each array, in the given order; nullopt for arrays that were not copied.
  const std::vector<std::optional<std::uint32_t>>& crcs() const noexcept { return crcs_; }

  // Writes the copies; `offsets` has the file offsets of all arrays.
  void write(std::span<const std::uint64_t> offsets, TargetFile& target) const;

 private:
  std::vector<std::optional<std::uint32_t>> crcs_;
  std::vector<std::uint64_t> lengths_;  // lengths of the copies; 0 for other arrays
  std::vector<std::byte> bytes_;        // bytes of all copies, in order
};

}  // namespace ddp::ckpt
