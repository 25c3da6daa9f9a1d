// SPDX-License-Identifier: Apache-2.0
// The two ends of a connection prove to each other that they have the step's key, without sending
// it. Each draws a random number, and each answers with an HMAC over both numbers and the purpose
// of the connection. These are the three passes of ISO/IEC 9798-4:
//
//   caller    -> listener   caller's nonce, rank
//   listener  -> caller     listener's nonce, listener's proof
//   caller    -> listener   caller's proof
//
// A proof is valid for one connection, one role and one step: replaying a recorded proof is
// useless, and so is reflecting a proof to the end that sent it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/secret/key.h"

namespace ddp {

enum class Side : std::uint8_t { caller, listener };

// The parameters of one connection, known to both ends. Every proof covers all of them.
struct Meeting {
  std::string purpose;  // "check", "error channel"
  std::string step;     // identity of the step
  int rank = 0;         // the caller's rank
  std::string callers_nonce;
  std::string listeners_nonce;
};

// 128 random bits as hexadecimal digits.
std::string random_nonce();
inline constexpr std::size_t kNonceCharacters = 32;

// The proof as hexadecimal digits.
std::string proof_of(const Key& key, const Meeting& meeting, Side who);
bool is_proof(std::string_view proof, const Key& key, const Meeting& meeting, Side who);

// The key for the messages that `sender` sends after both ends have authenticated.
Key session_key(const Key& key, const Meeting& meeting, Side sender);

}  // namespace ddp
