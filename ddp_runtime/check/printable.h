// Texts of drivers, files and other programs, on their way into reports of all nodes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::check {

// The first line, at most `most` characters of it; what is not printable ASCII becomes "?".
std::string printable(std::string_view text, std::size_t most);

// All lines as one, at most `most` characters of it; a line break becomes a space, what else is not
// printable ASCII becomes "?".
std::string printable_line(std::string_view text, std::size_t most);

}  // namespace ddp::check
