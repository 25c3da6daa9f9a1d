#pragma once
// What takes space in a checkpoint directory and is no checkpoint that a run would resume.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp::ckpt {

struct Leftover {
  enum class Kind : std::uint8_t {
    unfinished,  // of a save or a deletion that was interrupted
    set_aside,    // of an abandoned branch; whole
    replaced,    // was damaged and replaced by a whole one
  };
  Kind kind = Kind::unfinished;
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::chrono::seconds age{0};  // since anything in it was written, by the clock of its file system
};

// Those in `root` and in `root`/best, by name. Throws IoError if a directory cannot be listed.
std::vector<Leftover> leftovers_in(const std::filesystem::path& root);

// Removes it and what is in it, following no link. Throws IoError.
void remove_leftover(const Leftover& leftover);

}  // namespace ddp::ckpt
