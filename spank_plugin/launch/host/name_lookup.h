// SPDX-License-Identifier: Apache-2.0
// Asks the name service of this host for a name, within a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "spank_plugin/launch/facts.h"

namespace ddp::launch {

struct NameAnswer {
  NameLookup lookup = NameLookup::not_done;
  std::vector<std::string> addresses;  // numeric, without loopback ones, at most eight
};

// How a name is resolved; runs in a child process. Only another one than the default in tests.
using Resolver = std::function<NameAnswer(const std::string& name)>;

// getaddrinfo: usable if any address is outside 127.0.0.0/8 and ::1; unknown_name only if the name
// service says so, no_answer for all its other errors.
NameAnswer resolve(const std::string& name);

// The same in a child process that is killed when the limit is over: name services can hang for a
// minute, and neither a thread nor an alarm is possible inside slurmstepd.
// NameLookup::not_done if no child can be started. Throws std::bad_alloc only.
NameAnswer look_up_name(const std::string& name, std::chrono::milliseconds limit,
                        const Resolver& resolver = resolve);

// True if this host has the numeric address, so that a program on it can be reached there. False
// for 0.0.0.0 and ::, and for text that is not an address.
bool is_own_address(const std::string& address) noexcept;

}  // namespace ddp::launch
