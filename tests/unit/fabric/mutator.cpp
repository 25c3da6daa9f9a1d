// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fabric/mutator.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddp::test {
namespace {

constexpr std::size_t kMaxLength = 16'384;

constexpr std::array<std::string_view, 24> kStumblingBlocks{"\n",
                                                            "=",
                                                            "==",
                                                            "^",
                                                            "^=",
                                                            ",",
                                                            ":",
                                                            "#",
                                                            "[preset ",
                                                            "]",
                                                            " ",
                                                            "\t",
                                                            "-1",
                                                            "0x",
                                                            "0",
                                                            "::",
                                                            "99999999999999999999",
                                                            "ffff:ffff",
                                                            "%",
                                                            "\x1b[31m",
                                                            "\xff",
                                                            "/",
                                                            "..",
                                                            "../../../../../.."};

}  // namespace

void Mutator::damage_once(std::string& text) {
  const std::size_t at = below(text.size() + 1);
  const std::size_t length = std::min(below(32), text.size() - at);
  switch (below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(at, length));
      break;
    case 3:
      text.resize(at);
      break;
    case 4:
      text.insert(at, 1, static_cast<char>(below(256)));
      break;
    case 5:
      text.insert(at, below(64) == 0 ? 6000 : below(40), static_cast<char>('0' + below(75)));
      break;
    default:
      text.insert(at, kStumblingBlocks[below(kStumblingBlocks.size())]);
  }
}

std::string Mutator::damaged(std::string text) {
  const std::size_t times = 1 + below(6);
  for (std::size_t i = 0; i < times; ++i) damage_once(text);
  if (text.size() > kMaxLength) text.resize(kMaxLength);
  return text;
}

}  // namespace ddp::test
