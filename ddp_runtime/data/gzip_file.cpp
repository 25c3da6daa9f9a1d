// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/gzip_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/errors.h"

namespace ddp::data {

std::vector<unsigned char> read_maybe_gzipped(const std::filesystem::path& file,
                                              std::size_t most_bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  errno = 0;
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> stream(gzopen(file.c_str(), "rb"), gzclose);
  if (!stream) {
    throw UsageError(fmt::format("cannot open {}: {}", file.string(), std::strerror(errno)));
  }
  std::vector<unsigned char> contents;
  while (true) {
    const std::size_t at = contents.size();
    contents.resize(at + kChunk);
    const int n = gzread(stream.get(), contents.data() + at, static_cast<unsigned>(kChunk));
    contents.resize(at + static_cast<std::size_t>(n > 0 ? n : 0));
    // A truncated stream is a buffer error, which zlib 1.3.2 tells with its last bytes, and older
    // ones with the end.
    int error = Z_OK;
    const char* text = gzerror(stream.get(), &error);
    if (n < 0 || error != Z_OK) {
      throw RuntimeError(fmt::format("{} is damaged or truncated ({}); download it again",
                                     file.string(),
                                     error == Z_ERRNO ? std::strerror(errno) : text));
    }
    if (n == 0) return contents;
    if (contents.size() > most_bytes) {
      throw RuntimeError(fmt::format("{} holds more than {} MiB, the limit for such a file",
                                     file.string(), most_bytes >> 20U));
    }
  }
}

}  // namespace ddp::data
