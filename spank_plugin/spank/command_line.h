// SPDX-License-Identifier: Apache-2.0
// The command line of srun, for options that SPANK does not pass on to plugins.
#pragma once

#include <initializer_list>
#include <string_view>

namespace ddp::spank {

// True if a word of this process's command line, before "--", begins with one of these texts. The
// words of the step's program count as well, so the answer may only decide about a message or a
// fallback.
bool has_own_option(std::initializer_list<std::string_view> beginnings) noexcept;

}  // namespace ddp::spank
