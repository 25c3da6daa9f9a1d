// SPDX-License-Identifier: Apache-2.0
// MUNGE, on systems that have it. A credential encoded by one process of a user can be decoded only
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
  // Returns the payload of a credential of this user. Throws RuntimeError if another user created
  // the credential or if it is invalid. Does not check its age, because clocks may be wrong, which
  // ddp-check must be able to detect.
  std::function<std::string(const std::string& credential)> decode;
};

// Returns nullopt if the library is missing. `socket` is the socket of munged; empty selects the
// default.
std::optional<Munge> load_munge(const std::string& socket);

}  // namespace ddp::comm
