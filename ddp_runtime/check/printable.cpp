#include "ddp_runtime/check/printable.h"

#include <algorithm>

namespace ddp::check {

std::string printable(std::string_view text, std::size_t most) {
  std::string result(text.substr(0, std::min(most, text.find('\n'))));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

}  // namespace ddp::check
