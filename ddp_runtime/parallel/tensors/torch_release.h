// SPDX-License-Identifier: Apache-2.0
// The release of libtorch that a process has loaded. libtorch promises no binary compatibility
// between releases: with another one than at build time, a program crashes without a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp {

// Returns the release, such as "2.15.0", in a value of libtorch's TORCH_ABI_VERSION.
std::string torch_release_of(std::uint64_t abi_version);

// Returns the release, such as "2.15.0", in the text of at::show_config(); an empty string if it
// does not name one.
std::string torch_release_in(std::string_view configuration);

// Returns one sentence if a program built with the release `built` cannot run with the release
// `loaded` in the file `path`. Only the first two numbers count. An empty `loaded` is accepted.
std::optional<std::string> torch_release_problem(std::string_view built, std::string_view loaded,
                                                 std::string_view path);

}  // namespace ddp
