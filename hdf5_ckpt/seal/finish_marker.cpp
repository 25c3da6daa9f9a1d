// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/finish_marker.h"

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "base/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/seal/name_order.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// The text of a small file; empty if it cannot be read.
std::string small_text(const fs::path& file) {
  constexpr std::size_t kMost = 4096;
  try {
    return std::string(trimmed(text_of(open_named_file(file), "", kMost)));
  } catch (const Error&) {
    return "";
  }
}

bool names(const fs::path& file, const fs::path& checkpoint) {
  return small_text(file) == checkpoint.filename().string();
}

// "500" for iter_0000500.
bool counts(const fs::path& file, const fs::path& checkpoint) {
  const NumberedName name = numbered_name(checkpoint.filename().string());
  return !name.counts.empty() &&
         parse_decimal(small_text(file), name.counts.front()) == std::optional(name.counts.front());
}

// A zip file, as torch.save writes it: its directory is at its end, without a comment.
bool ends_like_zip(const fs::path& file) {
  constexpr std::size_t kEndBytes = 22;
  constexpr std::array kSignature = {std::byte{'P'}, std::byte{'K'}, std::byte{5}, std::byte{6}};
  try {
    const OpenedFile opened = open_named_file(file);
    std::array<std::byte, kSignature.size()> found{};
    return opened.size >= kEndBytes &&
           read_fully(opened.fd.get(), found, opened.size - kEndBytes).bytes == found.size() &&
           found == kSignature;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<fs::path> finish_marker(const fs::path& checkpoint) {
  if (!fs::is_directory(checkpoint))
    return ends_like_zip(checkpoint) ? std::optional(checkpoint) : std::nullopt;
  for (const char* name : {".metadata", "trainer_state.json"})
    if (fs::exists(checkpoint / name)) return checkpoint / name;
  const fs::path root = checkpoint.parent_path();
  if (names(root / "latest", checkpoint)) return root / "latest";
  const fs::path iteration = root / "latest_checkpointed_iteration.txt";
  return counts(iteration, checkpoint) ? std::optional(iteration) : std::nullopt;
}

bool is_complete_marker(const fs::path& marker) {
  constexpr std::size_t kMost = std::size_t{64} << 20U;
  if (marker.extension() != ".json") return true;
  try {
    parse_json(text_of(open_named_file(marker), "", kMost));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace ddp::ckpt
