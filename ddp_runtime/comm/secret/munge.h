// MUNGE, where the system has it: what one process of a user encodes, only processes of the same
// user on machines with the same MUNGE key can decode. The library is loaded when it is needed.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::comm {

struct Munge {
  // A credential that only this user can decode. Throws RuntimeError.
  std::function<std::string(const std::string& payload)> encode;
  // The payload of a credential of this user. Throws RuntimeError if somebody else made it, or if
  // it is none. Its age is not looked at: clocks may be wrong, which is what checks are for.
  std::function<std::string(const std::string& credential)> decode;
};

// Nullopt without the library. `socket` is munged's; empty stands for the usual one.
std::optional<Munge> load_munge(const std::string& socket);

}  // namespace ddp::comm
