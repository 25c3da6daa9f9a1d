// SPDX-License-Identifier: Apache-2.0
// Help whose lines stay as they were written.
#pragma once

#include <CLI/CLI.hpp>

namespace ddp::tools {

// From 2.5 on, CLI11 joins the lines of descriptions and footers to paragraphs.
template <typename Formatter>
void keep_lines(Formatter& formatter) {
  if constexpr (requires { formatter.enable_description_formatting(false); }) {
    formatter.enable_description_formatting(false);
    formatter.enable_footer_formatting(false);
  }
}

// Call it before subcommands are added, which inherit it.
inline void keep_help_lines(CLI::App& app) {
  keep_lines(*app.get_formatter());
}

}  // namespace ddp::tools
