// SPDX-License-Identifier: Apache-2.0
// What all directions of `ddp-ckpt convert` have in common: the choice of arrays by their names,
// and the file that they are written to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/convert/name_pattern.h"
#include "hdf5_ckpt/convert/name_prefix.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt::tool {

// Bytes of an array that are read at a time, and the limit for the additional buffers of the
// threads.
inline constexpr std::uint64_t kPieceBytes = 16ULL << 20;

// The arrays that --only and --skip choose.
class Choice {
 public:
  explicit Choice(const Conversion& conversion);

  bool takes(const std::string& name) const;

  // Throws UsageError if a pattern matches none of the names, which is a mistake in it.
  void require_effect(const std::vector<std::string>& names) const;

 private:
  std::vector<NamePattern> only_;
  std::vector<NamePattern> skip_;
};

// without_prefix(); throws Error if no name of `source` starts with the prefix.
std::vector<ShortName> require_prefix(const std::string& prefix,
                                      std::span<const std::string_view> names,
                                      const std::filesystem::path& source);

// The arrays to write, and their bytes.
struct Arrays {
  std::vector<ArrayHeader> headers;
  GiveBytes give;
};

// Writes a safetensors or torch.save file. Shows the progress.
void write_arrays(const std::filesystem::path& to, TargetKind kind, const Arrays& arrays);

// Writes the chosen arrays of a checkpoint into a file; returns their number. With a map, they get
// the names of another program, and are transposed where it has them so.
std::size_t export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& to,
                              TargetKind kind, const Conversion& conversion, const Output& output);

}  // namespace ddp::ckpt::tool
