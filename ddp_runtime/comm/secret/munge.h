// SPDX-License-Identifier: Apache-2.0
// MUNGE, on systems that have it: a credential encoded by one process of a user can be decoded only
// by processes of the same user on machines with the same MUNGE key. The library is loaded on
// demand.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::comm {

struct Munge {
  // A credential that only this user can decode. Throws RuntimeError.
  std::function<std::string(const std::string& payload)> encode;
  // The payload of a credential of this user. Throws RuntimeError if another user made it or if it
  // is not valid. Its age is not checked: clocks may be wrong, which is one of the things that
  // checks look for.
  std::function<std::string(const std::string& credential)> decode;
};

// Returns nullopt if the library is missing. `socket` is munged's; empty selects the default.
std::optional<Munge> load_munge(const std::string& socket);

}  // namespace ddp::comm
