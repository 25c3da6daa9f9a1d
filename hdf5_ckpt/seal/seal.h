// SPDX-License-Identifier: Apache-2.0
// A seal: the list of the files of a checkpoint that another program saved, with their checksums.
// It says that the checkpoint is whole, which such a checkpoint does not say by itself: its
// directory exists from the moment in which its save begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::ckpt {

inline constexpr const char* kSealName = "seal.json";           // in the directory that it seals
inline constexpr const char* kSealDraftPrefix = ".seal.json.";  // before its rename
inline constexpr std::size_t kMaxSealBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxSealedFiles = 1'000'000;

struct SealedFile {
  std::string path;  // below the directory; empty for a checkpoint that is one file
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  bool operator==(const SealedFile&) const = default;
};

// A symbolic link. Of what it points to nothing is known.
struct SealedLink {
  std::string path;
  std::string target;
  bool operator==(const SealedLink&) const = default;
};

struct Seal {
  std::int64_t written_ns = 0;    // since 1970, when the youngest file was last changed
  std::vector<SealedFile> files;  // sorted by path, none twice
  std::vector<SealedLink> links;  // the same
  bool operator==(const Seal&) const = default;
};

// Returns the name of the seal of `checkpoint`: "seal.json" in a directory, "<file>.seal.json"
// beside a file.
std::filesystem::path seal_of(const std::filesystem::path& checkpoint);

// True for the name of the seal of a file.
bool is_seal_of_file(std::string_view name);

// Throws Error if the seal would be too large, or a name is not UTF-8.
std::string serialize_seal(const Seal& seal);

// Throws DamagedError if the text is not that of a seal; Error if a newer version wrote it.
Seal parse_seal(std::string_view text);

}  // namespace ddp::ckpt
