// SPDX-License-Identifier: Apache-2.0
// Resolves a name with this host's name service, within a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

struct NameAnswer {
  NameLookup lookup = NameLookup::not_done;
  std::vector<std::string> addresses;  // numeric, those that other nodes can use, at most eight
};

// Resolves a name; runs in a child process. Only tests replace the default.
using Resolver = std::function<NameAnswer(const std::string& name)>;

// Calls getaddrinfo. Returns usable if other nodes can use any address, unknown_name only if the
// name service reports that the name does not exist, and no_answer for all other errors.
NameAnswer resolve(const std::string& name);

// Resolves the name in a child process that is killed at the limit: name services can hang for a
// minute, and neither a thread nor an alarm is possible inside slurmstepd. Returns
// NameLookup::not_done if no child can be started. Throws only std::bad_alloc.
NameAnswer look_up_name(const std::string& name, std::chrono::milliseconds limit,
                        const Resolver& resolver = resolve);

// True if this host has the numeric address, so that a program on it can be reached there. False
// for 0.0.0.0 and ::, and for text that is not an address.
bool is_own_address(const std::string& address) noexcept;

// True if this process has no interface but the loopback, as in a container with a network of its
// own.
bool has_only_loopback() noexcept;

}  // namespace ddp::launch
