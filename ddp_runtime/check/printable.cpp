#include "ddp_runtime/check/printable.h"

#include <algorithm>

namespace ddp::check {

std::string printable(std::string_view text, std::size_t most) {
  return printable_line(text.substr(0, text.find('\n')), most);
}

std::string printable_line(std::string_view text, std::size_t most) {
  std::string result(text.substr(0, most));
  std::replace(result.begin(), result.end(), '\n', ' ');
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

}  // namespace ddp::check
