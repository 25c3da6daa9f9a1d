// SPDX-License-Identifier: Apache-2.0
// Entries of a checkpoint directory that take up space but that no run would resume from.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp::ckpt {

struct Leftover {
  enum class Kind : std::uint8_t {
    unfinished,  // left by an interrupted save or deletion
    set_aside,   // from an abandoned branch; intact
    replaced,    // damaged, and replaced by an intact one
  };
  Kind kind = Kind::unfinished;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::chrono::seconds age{0};  // since the last write to it, by its file system's clock
};

// Lists the leftovers in `root` and in `root`/best, sorted by name. Throws IoError if a directory
// cannot be listed.
std::vector<Leftover> leftovers_in(const std::filesystem::path& root);

// Removes the leftover and its contents without following links. Throws IoError.
void remove_leftover(const Leftover& leftover);

}  // namespace ddp::ckpt
