// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/group.h"

#include <algorithm>

namespace ddp::comm {

std::vector<std::string> Group::all_gather_text(std::string_view mine) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> lengths(ranks);
  auto length = static_cast<std::int64_t>(mine.size());
  all_gather(buffer_of(length), buffer_of(std::span(lengths)), "text lengths").wait();

  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  if (longest == 0) return std::vector<std::string>(ranks);
  std::vector<char> padded(longest, '\0');
  std::copy(mine.begin(), mine.end(), padded.begin());
  std::vector<char> all(longest * ranks);
  all_gather(buffer_of(std::span(padded)), buffer_of(std::span(all)), "texts").wait();

  std::vector<std::string> texts;
  texts.reserve(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    texts.emplace_back(all.data() + r * longest, static_cast<std::size_t>(lengths[r]));
  }
  return texts;
}

std::string Group::broadcast_text(std::string_view text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(buffer_of(length), root, "text length").wait();
  std::string result(static_cast<std::size_t>(length), '\0');
  if (rank() == root) result.assign(text);
  if (length > 0) broadcast(buffer_of(std::span(result)), root, "text").wait();
  return result;
}

}  // namespace ddp::comm
