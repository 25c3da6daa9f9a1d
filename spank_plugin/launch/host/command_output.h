#pragma once
// What a program of this machine prints, within limits of time and size.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

// Runs arguments[0], looked up in PATH, without input; its messages go nowhere. Nothing if it
// cannot be started, fails, prints more than `max_bytes`, or takes longer than the limit; it is
// killed then. Throws std::bad_alloc only. Must not be called where SIGCHLD is somebody else's
// affair.
std::optional<std::string> output_of(const std::vector<std::string>& arguments,
                                     std::chrono::milliseconds limit, std::size_t max_bytes);

}  // namespace ddp::launch
